"""What any source says of its clock: perf.data, perf script text with all kinds of times, and formats without."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from collectors import perf_script, source_clocks
from collectors.source import Source
from pipeline.clock_domains import Domain, Reading, Snapshot, SourceClocks
from pipeline.errors import FlamesliceError
from pipeline.tables import Tables

HEADER = """# ========
# hostname : web-1
# clockid: monotonic (1)
# reference time: 2026-12-01 03:53:40.690226 = 1796097220.690226 (TOD) = 840.058400372 (monotonic)
# ========
"""


def samples(*times: str) -> str:
    return "".join(f"app 1/2 [000] {time}: 250000 cpu-clock:\n\t401000 f (/bin/a)\n\n" for time in times)


@pytest.fixture
def clocks(tmp_path: Path) -> Callable[..., SourceClocks]:
    def read(text: str, **known: str) -> SourceClocks:
        path = tmp_path / "run.txt"
        path.write_text(text)
        return source_clocks.of(path, name="run.txt", **known)

    return read


def snapshot(uncertainty_ns: int) -> tuple[Snapshot, ...]:
    monotonic = Reading(Domain("monotonic", "web-1"), 840_058_400_372, uncertainty_ns)
    wall = Reading(Domain("realtime", "web-1"), 1_796_097_220_690_226_000, 4_000)
    return (Snapshot((monotonic, wall), "run.txt: reference time"),)


@pytest.mark.parametrize(("ending", "uncertainty_ns"), [("", 999), ("000", 999), ("001", 0), ("010", 0)])
def test_a_text_has_the_clock_of_its_header(
    clocks: Callable[..., SourceClocks], ending: str, uncertainty_ns: int
) -> None:
    found = clocks(HEADER + samples(f"840.100002{ending}", "840.100001"))
    end_ns = 840_100_002_000 + int(ending or 0)
    assert found == SourceClocks(
        "run.txt",
        "monotonic",
        "web-1",
        "",
        snapshot(uncertainty_ns),
        None,
        840_100_001_000,
        end_ns,
        ("1 of 2 events are earlier than the one before them",),
    )


def test_a_text_without_header_is_on_perfs_own_clock(clocks: Callable[..., SourceClocks]) -> None:
    found = clocks(samples("840.1", "840.2"), host="db-2", boot_id="3f2a")
    assert found == SourceClocks(
        "run.txt", "perf", "db-2", "3f2a", first=840_100_000_000, last=840_200_000_000, is_assumed=True
    )


def test_relative_times_are_the_sources_own(clocks: Callable[..., SourceClocks]) -> None:
    assert clocks(samples("0.000000", "0.001000")) == SourceClocks(
        "run.txt", "relative", first=0, last=1_000_000, notes=("its times count from its own beginning",)
    )
    headed = clocks(HEADER + samples("0.000000", "0.001000"))
    assert (headed.clock, headed.snapshots) == ("relative", snapshot(0))
    assert len(headed.notes) == 1


def test_differences_are_no_times(clocks: Callable[..., SourceClocks]) -> None:
    found = clocks(samples("0.000000", "0.003690", "0.000018", "0.003979"))
    assert (found.clock, found.first, found.last) == ("", None, None)
    assert found.notes == (
        "its times are differences between events, as perf script --deltatime prints them",
    )


def test_joined_recordings_are_told(clocks: Callable[..., SourceClocks]) -> None:
    found = clocks(samples("840.1", "840.2", "12.1", "12.2"))
    assert found.notes == ("it holds 2 recordings one behind the other",)


@pytest.mark.parametrize("text", ["main;f 12\nmain;g 3\n", "app 1 cycles:\n\t 401010 f (/bin/a)\n\n" * 3])
def test_what_has_no_times_has_no_clock(clocks: Callable[..., SourceClocks], text: str) -> None:
    assert clocks(text, host="db-2") == SourceClocks("run.txt", "", "db-2")


def test_what_nothing_reads_is_refused(clocks: Callable[..., SourceClocks]) -> None:
    with pytest.raises(FlamesliceError, match=r"run\.txt: the file is empty"):
        clocks("")


def test_tables_that_were_read_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.txt"
    path.write_text(HEADER + samples("840.100001", "840.100002"))
    with Source.open_path(str(path)) as source:
        tables = perf_script.read(source)
    expected = source_clocks.of(path)

    def never(*_: object, **__: object) -> Tables:
        raise AssertionError("read again")

    monkeypatch.setattr(perf_script, "read", never)
    assert source_clocks.of(path, tables=tables) == expected
    assert source_clocks.of_tables(tables, str(path)) == expected


def test_a_file_of_perf_and_its_text_say_the_same(perf: str, tmp_path: Path) -> None:
    data = tmp_path / "perf.data"
    spin = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"
    command = [
        perf,
        "record",
        "-q",
        "-N",
        "-k",
        "monotonic",
        "-F",
        "499",
        "-e",
        "cpu-clock",
        "-o",
        str(data),
        "--",
    ]
    subprocess.run([*command, "sh", "-c", spin], check=True, capture_output=True)
    text = tmp_path / "run.txt"
    with text.open("wb") as out:
        subprocess.run([perf, "script", "--header", "--ns", "-i", str(data)], check=True, stdout=out)
    of_data, of_text = source_clocks.of(data), source_clocks.of(text)
    assert of_data.clock == of_text.clock == "monotonic"
    assert of_data.host == of_text.host
    assert [one.readings for one in of_data.snapshots] == [one.readings for one in of_text.snapshots] != []
    assert (of_data.first, of_data.last) == (of_text.first, of_text.last)


def test_every_source_of_the_corpus_has_a_clock_or_none(corpus: Path) -> None:
    found: dict[str, str] = {}
    for path in sorted((corpus / "perf/local").iterdir()):
        if path.is_file():
            try:
                found[path.name] = source_clocks.of(path).clock
            except FlamesliceError:
                found[path.name] = "refused"
    assert found["fp_deltatime.txt"] == found["no_timestamp.txt"] == ""
    assert found["clockid_boottime.header_ns.txt"] == "boottime"
    assert found["clockid_realtime.header_ns.txt"] == "realtime"
    assert found["fp_ns.txt"] == found["raw_syscalls_all.txt.gz"] == "perf"
    assert {name for name, clock in found.items() if clock == "refused"} == {
        "perf_sched_timehist.out.txt",
        "perf_trace.out.txt",
    }
