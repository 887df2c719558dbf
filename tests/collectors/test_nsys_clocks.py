"""What SQLite exports of Nsight Systems say of their clock, and that nothing in a hostile one is run or breaks."""

from __future__ import annotations

import gzip
import io
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collectors import nsys_clocks, source_clocks
from collectors.source import Source
from pipeline.clock_domains import Domain, Reading, SourceClocks
from pipeline.errors import InputError

SECOND = 1_000_000_000
START = "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);"
STARTED = (
    START
    + "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1796097220123456789, '2026-12-01T05:13:40', '');"
)
HOST = (
    "CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT);"
    "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('Hostname', 'gpu-7'), ('CpuCores', '2');"
)
EVENTS = (
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER);"
    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100, 900), (500, 600);"
    "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER);"
    "INSERT INTO NVTX_EVENTS VALUES (-50, NULL), (700, 800);"
)

Clocks = Callable[..., SourceClocks]


@pytest.fixture
def clocks(tmp_path: Path) -> Clocks:
    def read(script: str, **known: str) -> SourceClocks:
        path = tmp_path / "run.sqlite"
        path.unlink(missing_ok=True)
        base = sqlite3.connect(path)
        base.executescript(script)
        base.close()
        before = path.read_bytes()
        found = source_clocks.of(path, name="run.sqlite", **known)
        assert path.read_bytes() == before
        assert [one.name for one in tmp_path.iterdir()] == ["run.sqlite"]  # no journal beside it
        return found

    return read


def readings(found: SourceClocks) -> tuple[Reading, ...]:
    (snapshot,) = found.snapshots
    return snapshot.readings


def test_the_session_began_when_the_wall_clock_showed_its_start(clocks: Clocks) -> None:
    found = clocks(STARTED + HOST + EVENTS)
    assert (found.clock, found.host, found.first, found.last) == ("session", "gpu-7", -50, 900)
    assert found.domain == Domain("session", "run.sqlite")
    assert readings(found) == (
        Reading(Domain("session", "run.sqlite"), 0),
        Reading(Domain("realtime", "gpu-7"), 1_796_097_220_123_456_789, 1_000_000),
    )
    assert "within 1 ms" in found.notes[0]


def test_what_the_caller_knows_of_the_host_goes_before(clocks: Clocks) -> None:
    found = clocks(STARTED + HOST + EVENTS, host="db-2", boot_id="3f2a")
    assert readings(found)[1].domain == Domain("realtime", "db-2", "3f2a")


def test_a_packed_export_and_one_from_a_pipe_say_the_same(clocks: Clocks, tmp_path: Path) -> None:
    found = clocks(STARTED + HOST + EVENTS)
    data = (tmp_path / "run.sqlite").read_bytes()
    (tmp_path / "run.sqlite.gz").write_bytes(gzip.compress(data))
    assert source_clocks.of(tmp_path / "run.sqlite.gz", name="run.sqlite") == found
    assert nsys_clocks.read(Source("run.sqlite", io.BytesIO(data))) == found


@pytest.mark.parametrize(
    ("printed", "wall_ns", "uncertainty_ns"),
    [
        ("2026-12-01T05:13:40", 1_796_102_020 * SECOND + SECOND // 2, SECOND // 2 + 1_000_000),
        ("2026-12-01 05:13:40.25Z", 1_796_102_020_255_000_000, 5_000_000 + 1_000_000),
    ],
)
def test_a_printed_start_is_as_sure_as_its_digits(
    clocks: Clocks, printed: str, wall_ns: int, uncertainty_ns: int
) -> None:
    found = clocks(
        "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcTime TEXT, localTime TEXT);"
        f"INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES ('{printed}', '');" + EVENTS
    )
    assert readings(found)[1] == Reading(Domain("realtime"), wall_ns, uncertainty_ns)


@pytest.mark.parametrize(
    ("normalize", "shift", "start_ns"),
    [("false", "0", 0), ("false", "-500", -500), ("true", "0", 1_796_097_220_123_456_789)],
)
def test_times_that_the_export_shifted_are_shifted_in_the_anchor(
    clocks: Clocks, normalize: str, shift: str, start_ns: int
) -> None:
    found = clocks(
        STARTED + EVENTS + "CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);"
        f"INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PARAM_TIME_NORMALIZE', '{normalize}'),"
        f"('EXPORT_PARAM_TIME_SHIFT', '{shift}');"
    )
    assert readings(found)[0].value == start_ns


@pytest.mark.parametrize(
    "start",
    [
        "",
        START,
        START + "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES ('soon', 'noon', x'00');",
        START + "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (-1, '2026-13-01T00:00:00', '');",
        START + "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (9223372036854775807, NULL, '');",
        STARTED + "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (7, '', '');",
        "CREATE VIEW TARGET_INFO_SESSION_START_TIME AS SELECT 7 AS utcEpochNs;",
    ],
)
def test_without_one_usable_start_its_times_are_its_own(clocks: Clocks, start: str) -> None:
    found = clocks(start + EVENTS)
    assert (found.clock, found.snapshots, found.first, found.last) == ("relative", (), -50, 900)
    assert "start" in found.notes[0] or "began" in found.notes[0]


@pytest.mark.parametrize(
    "odd",
    [
        "CREATE VIEW v AS WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n) SELECT * FROM n;",
        "CREATE TABLE computed (a INTEGER, start INTEGER AS (a - 1000));INSERT INTO computed VALUES (1);",
        "CREATE VIRTUAL TABLE words USING fts5(start);",
        "CREATE TABLE texts (start TEXT, end TEXT);INSERT INTO texts VALUES ('-9', '9999'), (x'ff', NULL);",
        "CREATE TABLE floats (start REAL);INSERT INTO floats VALUES (-1e300);",
        'CREATE TABLE "od""d; DROP TABLE x" (start INTEGER, "e""nd" INTEGER);',
        'CREATE TABLE "bell\x07" (start INTEGER);INSERT INTO "bell\x07" VALUES (-999);',
    ],
)
def test_what_is_no_plain_table_of_integers_is_passed_over(clocks: Clocks, odd: str) -> None:
    found = clocks(STARTED + EVENTS + odd)
    assert (found.first, found.last) == (-50, 900)


def test_an_export_without_events_has_no_first_time(clocks: Clocks) -> None:
    found = clocks(STARTED)
    assert (found.clock, found.first, found.last) == ("session", None, None)


def test_another_database_is_refused(clocks: Clocks) -> None:
    with pytest.raises(InputError, match="no export of Nsight Systems"):
        clocks("CREATE TABLE people (start INTEGER);")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(cut=st.integers(100, 12_000), place=st.integers(0, 12_000), byte=st.integers(0, 255))
def test_a_damaged_database_is_one_line_or_still_read(
    tmp_path: Path, cut: int, place: int, byte: int
) -> None:
    path = tmp_path / "whole.sqlite"
    if not path.exists():
        base = sqlite3.connect(path)
        base.executescript(STARTED + HOST + EVENTS)
        base.close()
    data = bytearray(path.read_bytes()[:cut])
    if 16 <= place < len(data):
        data[place] = byte
    said = ""
    try:
        said = nsys_clocks.read(Source("run.sqlite", io.BytesIO(bytes(data)))).clock
    except InputError as error:
        said = str(error)
    assert said in ("session", "relative") or said.startswith(
        ("run.sqlite: SQLite cannot", "run.sqlite: this SQLite")
    )
    assert "\n" not in said


@pytest.mark.parametrize(
    ("name", "wall_ns", "host", "first", "last"),
    [
        (
            "01_nsightful_power_iteration_baseline",
            1754324972242076786,
            "94b8b7b3215f",
            -1957198520,
            1857495583,
        ),
        ("02_nsysai_h100_2gpu_1s", 1779630014975716426, "modal", 155357525002, 156326972607),
        ("03_nsysai_mock", 1776781226557295056, "DESKTOP-KBEMEQS", 957289961, 1704839602),
        ("06_reduction_report1", 1727468158052981384, "Zero", 170972, 703214030),
    ],
)
def test_starts_of_real_sessions(
    corpus: Path, name: str, wall_ns: int, host: str, first: int, last: int
) -> None:
    found = source_clocks.of(corpus / f"nsys/{name}.sqlite")
    assert readings(found)[1] == Reading(Domain("realtime", host), wall_ns, 1_000_000)
    assert (found.first, found.last) == (first, last)


def test_a_real_export_without_a_start_is_relative(corpus: Path) -> None:
    found = source_clocks.of(corpus / "nsys/04_nsysai_healthy_1pct.sqlite")
    assert (found.clock, found.first, found.last) == ("relative", -3000, 403_990_000)
