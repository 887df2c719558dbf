"""What programs and notebooks import: stored tables as polars and pandas, and captures by name wherever they lie."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import polars as pl
import pytest

import flameslice.ingest
from flameslice import api
from pipeline import schema
from pipeline.errors import FlamesliceError, InputError, UsageError

ROOT = Path(__file__).resolve().parents[2]
# two samples, one without a period; a tracepoint; a process name that no UTF-8 is
TEXT = (
    b"app 7/8 [001] 9007199.254740993: 250000 cpu-clock: \n"  # ns: 2**53 + 1, which no float holds
    b"\t401000 inner+0x0 (/bin/app)\n\t401010 main+0x1 (/bin/app)\n\n"
    b"app 7/8 [001] 9007199.254740995: cpu-clock: \n\t401010 main+0x1 (/bin/app)\n\n"
    b"not a line of perf script\n"
    b"\xff 7/9 [000] 9007199.254740999: sched:sched_waking: comm=app pid=8 prio=120 target_cpu=001\n\n"
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A perf script text with a line that is none."""
    path = tmp_path / "server.txt"
    path.write_bytes(TEXT)
    return path


@pytest.fixture
def data(source: Path, tmp_path: Path) -> Path:
    """A store that holds it as the capture `server`."""
    data = tmp_path / "kept"
    flameslice.ingest.ingest([str(source)], data=str(data), name="server", now_realtime_ns=0)
    return data


def test_scan_returns_the_rows_as_they_are_stored(data: Path) -> None:
    rows = api.scan("perf_events", "server", data)
    assert rows.collect_schema() == {**schema.KEYS, **schema.PERF_EVENTS}
    found = rows.sort("row").select("row", "tid", "period", "raw_time", "comm").collect().rows()
    assert found == [
        (0, 8, 250000, 9007199254740993, "app"),
        (1, 8, None, 9007199254740995, "app"),
        (2, 9, None, 9007199254740999, r"\xff"),
    ]
    depths = api.scan("stacks", "server", data).select(pl.len(), pl.max("depth")).collect()
    assert depths.row(0) == (2, 2)  # main, and inner called by it


def test_to_pandas_keeps_every_digit(data: Path) -> None:
    rows = api.to_pandas("perf_events", "server", data)
    assert list(rows.columns) == [*schema.KEYS.names(), *schema.PERF_EVENTS.names()]
    assert list(rows.index) == [0, 1, 2]
    assert list(rows["raw_time"]) == [9007199254740993, 9007199254740995, 9007199254740999]
    assert rows["period"][0] == 250000
    assert rows["period"][1] is pd.NA
    for name, kind in {**schema.KEYS, **schema.PERF_EVENTS}.items():
        if kind == pl.String:
            assert pd.api.types.is_string_dtype(rows[name].dtype), name
        else:
            assert str(rows[name].dtype) == str(kind), name


@pytest.mark.parametrize("table", schema.STORED)
def test_both_return_the_same_of_every_table(data: Path, table: str) -> None:
    scanned = api.scan(table, "server", data).sort("source", "row").collect()
    frame = api.to_pandas(table, "server", data)
    assert list(frame.columns) == scanned.columns
    assert frame.astype(object).where(frame.notna(), None).values.tolist() == [
        list(row) for row in scanned.rows()
    ]
    assert scanned.height > 0 or table in ("stack_weights", "threads", "clock_snapshots")


def test_a_stored_capture_reads_like_its_file(source: Path, data: Path) -> None:
    file, kept = api.fold(source), api.fold("server", data=data)
    assert (kept.rows, kept.clock) == (file.rows, file.clock)
    assert {name: one.samples for name, one in kept.events.items()} == {
        name: one.samples for name, one in file.events.items()
    }
    assert [one.reason for one in kept.losses.as_tuple()] == [one.reason for one in file.losses.as_tuple()]
    assert api.read("server", data=data).perf_events.equals(api.read(source).perf_events)
    order = ["slice", "lane", "kind", "name", "stack_id"]
    cut = api.slices("server", width_ns=100, data=data)
    assert cut["busy_ns"].sum() > 0
    assert cut.sort(order).equals(api.slices(source, width_ns=100).sort(order))


def test_the_environment_names_the_store(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMESLICE_DATA", str(data))
    assert len(api.to_pandas("perf_events", "server")) == 3
    assert api.fold("server").rows == api.fold("capture:server").rows > 0


def test_an_id_a_name_and_a_forced_name_are_one_capture(data: Path) -> None:
    (folder,) = (data / "captures").iterdir()
    capture = folder.name.removeprefix("capture=")
    for name in ("server", capture, f"capture:{capture}", "capture:server"):
        assert api.scan("frames", name, data).select("capture").collect()["capture"].unique().to_list() == [
            capture
        ]


def test_a_table_that_is_not_kept_is_told(data: Path) -> None:
    for table in ("slices", "intervals", "none"):
        with pytest.raises(UsageError, match=f"no stored table '{table}': give one of perf_events, "):
            api.scan(table, "server", data)
        with pytest.raises(UsageError, match="no stored table"):
            api.to_pandas(table, "server", data)


def test_a_capture_that_is_not_there_is_told(data: Path, tmp_path: Path) -> None:
    for name in ("none", "a/b", "", "..", "capture:none"):
        with pytest.raises(InputError, match=r"no such capture in .*kept"):
            api.to_pandas("frames", name, data)
    with pytest.raises(InputError, match=r"no such capture in .*never-made"):
        api.scan("frames", "server", tmp_path / "never-made")
    assert not (tmp_path / "never-made").exists()
    for call in (api.fold, api.read, api.slices):
        with pytest.raises(FlamesliceError, match=r"no such file, and no capture in .*kept"):
            call("none", data=data)


def test_captures_of_one_name_are_told_apart_by_id(source: Path, data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_bytes(TEXT * 2)
    flameslice.ingest.ingest([str(other)], data=str(data), name="server", now_realtime_ns=0)
    with pytest.raises(InputError, match="2 captures have this name: give an id: "):
        api.to_pandas("perf_events", "server", data)
    counts = {
        len(api.to_pandas("perf_events", folder.name.removeprefix("capture="), data))
        for folder in (data / "captures").iterdir()
    }
    assert counts == {3, 6}


def test_importing_it_is_quick() -> None:
    code = "import sys; from flameslice import api; print(sorted({'polars', 'pandas', 'pyarrow'} & sys.modules.keys()))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.stderr) == ("[]\n", "")
