"""ftrace text given to every command that takes perf script text: a file, standard input, and a stored capture."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

if TYPE_CHECKING:
    from conftest import RunCli  # type: ignore[import-not-found]

DATA = Path(__file__).parents[1] / "data" / "ftrace"
MONO = DATA / "mono.txt"
TASK = "2636"  # `a b-1 [2] <x>`
# by the lines: 216942 to 218014 and 218091 to 218129 until it was woken; then 23 and 42 us until it ran
OFF_CPU = b"a_b-1_[2]_<x>;[blocked] 1110000\na_b-1_[2]_<x>;[runnable] 65000\n"


def test_slices_hold_what_the_lines_say(run_cli: RunCli) -> None:
    ran = run_cli("slices", MONO, "--tid", TASK)
    assert ran.status == 0
    assert "its clock is taken as sched_clock" in ran.stderr
    table = pl.read_csv(io.BytesIO(ran.stdout))
    busy = dict(table.group_by("kind").agg(pl.sum("busy_ns")).iter_rows())
    # writes of 1 and 7 us, and a sleep from 216929 to 218038
    assert busy["syscall"] == 1_000 + 7_000 + 1_109_000
    # blocked or waiting for a CPU: 216942 to 218037 and 218091 to 218171; of a last run no end is known
    assert busy["off_cpu"] == 1_095_000 + 80_000


def test_a_clock_that_is_told_counts(run_cli: RunCli) -> None:
    told = json.loads(run_cli("clocks", MONO, "--clock", "mono.txt=mono", "--json").stdout)
    assert told["timeline"].startswith("monotonic")
    assert told["sources"][0]["clock"] == "monotonic"


def test_flame_graphs_and_charts(run_cli: RunCli, tmp_path: Path) -> None:
    ran = run_cli("flamegraph", MONO, "--kind", "off_cpu", "--format", "folded", "--tid", TASK)
    assert (ran.status, ran.stdout) == (0, OFF_CPU)
    stacks = run_cli("flamegraph", DATA / "userstack.txt", "--format", "folded", "--event", "all").stdout
    assert b";entry_SYSCALL_64_after_hwframe" in stacks
    assert run_cli("chart", MONO, "-o", tmp_path / "chart.html").status == 0
    assert "clock_nanosleep" in (tmp_path / "chart.html").read_text()


def test_standard_input_and_a_stored_capture_say_the_same(run_cli: RunCli, tmp_path: Path) -> None:
    of_file = run_cli("slices", MONO)
    assert of_file.status == 0
    assert run_cli("slices", "-", stdin=MONO.read_bytes()).stdout == of_file.stdout
    data = tmp_path / "kept"
    assert run_cli("ingest", MONO, "--data", data, "--capture", "web").status == 0
    stored = run_cli("slices", "web", "--data", data)
    assert (stored.status, stored.stdout) == (0, of_file.stdout)
    assert "its clock is taken as sched_clock" in stored.stderr
    clocks = json.loads(run_cli("clocks", "web", "--data", data, "--json").stdout)
    assert clocks["sources"][0]["clock"] == "sched_clock"
    assert any("names no clock: taken to be sched_clock" in words for words in clocks["assumptions"])
    told = run_cli("slices", MONO, "--clock", "mono")
    assert "its times are monotonic, as --clock says" in told.stderr
    assert "its clock is taken as" not in told.stderr


def test_ticks_are_placed_by_anchors_and_not_without(run_cli: RunCli, tmp_path: Path) -> None:
    tsc = DATA / "x86_tsc.txt"
    ran = run_cli("slices", tsc)
    assert (ran.status, ran.stdout) == (1, b"")
    assert "nothing relates tsc to monotonic" in ran.stderr
    # 2.5 ticks are a nanosecond
    anchors = [
        "--anchor=tsc:95541000000000=monotonic:1000000000",
        "--anchor=tsc:95543500000000=monotonic:2000000000",
    ]
    ran = run_cli("slices", tsc, *anchors)
    assert ran.status == 0, ran.stderr
    assert pl.read_csv(io.BytesIO(ran.stdout))["busy_ns"].sum() > 0
    data = tmp_path / "kept"
    assert run_cli("ingest", tsc, "--data", data, "--capture", "web").status == 0
    assert run_cli("slices", "web", "--data", data, *anchors).stdout == ran.stdout
    for input_words in ([tsc], ["web", "--data", data]):
        ran = run_cli("flamegraph", *input_words, "--from", "+1ms")
        assert (ran.status, ran.stdout) == (2, b"")
        assert "ticks of the TSC" in ran.stderr


@pytest.mark.parametrize("command", ["slices", "chart"])
def test_ordinals_are_refused_and_drawn(run_cli: RunCli, command: str, tmp_path: Path) -> None:
    ran = run_cli(
        command,
        DATA / "counter.txt",
        "-o",
        tmp_path / "out.html",
        *(["--format", "csv"] if command == "slices" else []),
    )
    assert ran.status == 1
    assert "record with a trace_clock that counts time" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
    drawn = run_cli("flamegraph", DATA / "counter.txt", "--format", "folded", "--event", "all")
    assert drawn.status == 0
    assert drawn.stdout.startswith(b"<idle> 5\n")
