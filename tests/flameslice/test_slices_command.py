"""`flameslice slices` and `chart` from outside, and what they share: conservation, ranges, refusals."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from collectors import perf_script
from collectors.source import Source
from pipeline import intervals, schema

if TYPE_CHECKING:
    from conftest import RunCli  # type: ignore[import-not-found]

SAMPLES = [("app", 1, 10.0001, 150_000), ("app", 2, 10.0002, 70_000), ("db", 3, 11.5, 250_000)]
CAPTURE = "".join(
    f"{comm} {tid}/{tid} [000] {time:.9f}: {period} cpu-clock: \n\t 401010 f (/bin/a)\n\n"
    for comm, tid, time, period in SAMPLES
)


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "perf.txt"
    path.write_text(CAPTURE)
    return path


def test_one_row_per_slice_lane_kind_and_stack(run_cli: RunCli, capture: Path, tmp_path: Path) -> None:
    ran = run_cli("slices", capture, "-o", tmp_path / "x.parquet")
    assert (ran.status, ran.stdout, ran.stderr) == (0, b"", "")
    table = pl.read_parquet(tmp_path / "x.parquet")
    assert table.schema == schema.SLICES
    first = table.filter(pl.col("lane") == "tid:1")
    # the sample at 10.0001 s stands for the 150 us before it
    assert first.select("slice", "busy_ns", "events", "name", "stack").rows() == [
        (99_999, 50_000, 0, "app", "f"),
        (100_000, 100_000, 0, "app", "f"),
        (100_001, 0, 1, "app", "f"),
    ]


@pytest.mark.parametrize("width", ["1us", "100us", "1s", "7ns"])
def test_busy_time_is_conserved_at_any_width(run_cli: RunCli, capture: Path, width: str) -> None:
    ran = run_cli("slices", capture, "--width", width)
    table = pl.read_csv(io.BytesIO(ran.stdout))
    assert table["busy_ns"].sum() == sum(sample[3] for sample in SAMPLES)


def test_json_and_ranges(run_cli: RunCli, capture: Path) -> None:
    ran = run_cli("slices", capture, "--json", "--tid", "3")
    document = json.loads(ran.stdout)
    assert (document["schema_version"], document["width_ns"]) == ("1.0", 100_000)
    assert {row["lane"] for row in document["slices"]} == {"tid:3"}
    assert all(isinstance(row["stack_id"], str) for row in document["slices"])
    ran = run_cli("slices", capture, "--json", "--from", "0s", "--to", "50us")
    rows = json.loads(ran.stdout)["slices"]
    assert sum(row["busy_ns"] for row in rows if row["lane"] == "tid:2") == 20_000  # 10.00013 to 10.00015


def test_inferred_switches_are_listed(run_cli: RunCli, tmp_path: Path) -> None:
    def switch(time: str, leaver: int, comer: int) -> str:
        args = f"prev_comm=a prev_pid={leaver} prev_prio=1 prev_state=S ==> next_comm=b next_pid={comer} next_prio=1"
        return f"            a {leaver}/{leaver} [000] {time}: sched:sched_switch: {args}\n"

    # thread 7 leaves, the CPU is said to idle, and 7 leaves again: its return was not reported
    seen = "            a 7/7 [000] 1.000140000: cpu-clock: \n"
    (tmp_path / "sched.txt").write_text(switch("1.000100000", 7, 0) + seen + switch("1.000200000", 7, 8))
    ran = run_cli("slices", "sched.txt", "--intervals", "i.parquet", "-o", "s.parquet")
    assert ran.status == 0, ran.stderr
    assert "1 switches that the kernel did not report" in ran.stderr
    table = pl.read_parquet(tmp_path / "i.parquet").filter(pl.col("repaired") & (pl.col("kind") == "running"))
    assert table.select("tid", "raw_start", "raw_end").rows() == [(7, 1_000_140_000, 1_000_200_000)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("app 1 cycles:\n\t 401010 f (/bin/a)\n\n" * 3, "no times"),
        ("main;f 12\nmain;g 3\n", "no samples with times"),
    ],
)
def test_what_has_no_times_is_refused_in_one_line(
    run_cli: RunCli, tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "untimed.txt"
    path.write_text(text)
    for command in (["slices"], ["chart", "-o", str(tmp_path / "x.html")]):
        ran = run_cli(command[0], path, *command[1:])
        assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (1, b"", 1), ran.stderr
        assert said in ran.stderr


def test_a_chart_is_written_whole(run_cli: RunCli, capture: Path, tmp_path: Path) -> None:
    ran = run_cli("chart", capture, "-o", tmp_path / "x.html")
    assert ran.status == 0, ran.stderr
    page = (tmp_path / "x.html").read_text()
    assert "cpu-clock" in page
    assert "<html" in page


@pytest.mark.parametrize("width", ["1us", "100us", "1s"])
def test_the_corpus_conserves_cpu_time(run_cli: RunCli, corpus: Path, tmp_path: Path, width: str) -> None:
    path = corpus / "perf/local/fp_ns.txt"
    ran = run_cli("slices", path, "--width", width, "-o", tmp_path / "x.parquet")
    assert ran.status == 0, ran.stderr
    table = pl.read_parquet(tmp_path / "x.parquet").filter(pl.col("kind") == "cpu")
    assert table["busy_ns"].sum() == table["period"].sum() == 755_511_016  # 377 samples of 2004008 ns


def timehist_rows(text: str) -> list[tuple[int, int, int, int, int]]:
    """Return (time us, tid, wait us, delay us, run us) of the lines of perf sched timehist."""
    import re

    line = re.compile(
        r"\s*(\d+)\.(\d{6}) \[\d+\]  .*?\[(\d+)(?:/\d+)?\]\s+(\d+\.\d+)\s+(\d+\.\d+)\s+(\d+\.\d+)"
    )
    rows = []
    for found in map(line.match, text.splitlines()):
        if found:
            wait, delay, run = (round(float(found[at]) * 1000) for at in (4, 5, 6))
            rows.append((int(found[1]) * 10**6 + int(found[2]), int(found[3]), wait, delay, run))
    return rows


def test_threads_run_and_wait_as_perf_sched_timehist_says(perf: str, corpus: Path, tmp_path: Path) -> None:
    import subprocess

    data = corpus / "perf/local/perfdata/sched.data"
    text = tmp_path / "sched.txt"
    with text.open("wb") as out:
        subprocess.run(
            [perf, "script", "-f", "--ns", "-i", data], stdout=out, stderr=subprocess.DEVNULL, check=True
        )
    told = subprocess.run(
        [perf, "sched", "timehist", "-f", "-i", data], capture_output=True, check=True
    ).stdout
    with Source.open_path(str(text)) as source:
        table, losses, _ = intervals.build(perf_script.read(source).perf_events)
    runs = {
        (row["raw_end"] // 1000, row["tid"]): row
        for row in table.filter(pl.col("kind") == "running").iter_rows(named=True)
    }
    waits: dict[tuple[int, int, str], int] = {}
    ends: dict[tuple[int, int], int] = {}
    for row in table.filter(pl.col("kind") == "off_cpu").sort("raw_start").iter_rows(named=True):
        waits[row["tid"], row["raw_end"], row["name"]] = row["raw_end"] - row["raw_start"]
        ends[row["tid"], row["raw_end"]] = row["raw_start"]
    compared = repaired = 0
    for time_us, tid, wait, delay, run in timehist_rows(told.decode("utf-8", "replace")):
        ours = runs[time_us, tid]
        if ours["repaired"]:
            repaired += 1
            continue
        runnable = waits.get((tid, ours["raw_start"], "runnable"), 0)
        before = ends.get((tid, ours["raw_start"]), ours["raw_start"])
        blocked = waits.get((tid, before if runnable else ours["raw_start"], "blocked"), 0)
        assert abs(ours["raw_end"] - ours["raw_start"] - run * 1000) <= 1000
        if delay:
            assert abs(runnable - delay * 1000) <= 1000
        if wait:
            assert abs(runnable + blocked - wait * 1000) <= 1000
        compared += 1
    assert compared > 1000
    assert repaired <= {loss.reason: loss.count for loss in losses}["repaired_idle_exit"]
