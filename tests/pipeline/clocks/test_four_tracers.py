"""One run of marker calls, recorded by four tracers for over a minute: all of them end on ktime within microseconds.

The files are tests/data/clocks, made by tools/record_clocks.py. Truth is what CLOCK_MONOTONIC showed before and after
each call, and where `perf -k CLOCK_MONOTONIC` put it.
"""

from __future__ import annotations

import csv
import gzip
import re
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from collectors import clock_snapshots
from pipeline.align import Alignment, align
from pipeline.clock_domains import Domain, SourceClocks
from pipeline.clock_snapshot_table import snapshots_of
from pipeline.losses import LossLedger

DATA = Path(__file__).parents[2] / "data" / "clocks"
HOST, BOOT = "guest", "boot"
TRACERS = {"perf": "perf", "monotonic_raw": "monotonic_raw", "monotonic": "monotonic", "trace": "tsc"}
_LINE = re.compile(
    r" (\d+)(?:\.(\d{9}))?: (?:syscalls:sys_enter_getpriority: |sys_getpriority\().*who: 0x([0-9a-f]+)"
)


@cache
def seen(tracer: str) -> dict[int, int]:
    """Return when a tracer saw each marker, on its own clock."""
    text = gzip.decompress((DATA / f"{tracer}.txt.gz").read_bytes()).decode()
    return {int(who, 16): int(whole + (rest or "")) for whole, rest, who in _LINE.findall(text)}


@cache
def brackets() -> dict[int, tuple[int, int]]:
    with gzip.open(DATA / "markers.csv.gz", "rt", newline="") as lines:
        return {int(row[0]): (int(row[1]), int(row[2])) for row in list(csv.reader(lines))[1:]}


@pytest.fixture(scope="module")
def alignment(tmp_path_factory: pytest.TempPathFactory) -> Alignment:
    path = tmp_path_factory.mktemp("clocks") / "clocks.jsonl"
    path.write_bytes(gzip.decompress((DATA / "clocks.jsonl.gz").read_bytes()))
    ledger = LossLedger()
    snapshots = snapshots_of(clock_snapshots.read(path, HOST, BOOT, ledger), path.name)
    assert ledger.as_tuple() == ()
    found = [
        SourceClocks(name, clock, HOST, BOOT, first=min(seen(name).values()), last=max(seen(name).values()))
        for name, clock in TRACERS.items()
    ]
    return align(found, extra=snapshots)


def aligned(alignment: Alignment, tracer: str) -> tuple[list[int], list[int], list[int]]:
    """Return marker, time on the timeline, and uncertainty."""
    placed = alignment.sources[list(TRACERS).index(tracer)]
    both = sorted(seen(tracer).keys() & seen("monotonic").keys())
    done = placed.to_timeline(pl.Series([seen(tracer)[marker] for marker in both], dtype=pl.Int64))
    return both, done.values.to_list(), done.uncertainty.to_list()


def test_the_recording_is_over_a_minute_of_four_tracers(alignment: Alignment) -> None:
    truth = seen("monotonic")
    assert max(truth.values()) - min(truth.values()) > 60_000_000_000
    assert all(len(seen(tracer).keys() & truth.keys()) > 1200 for tracer in TRACERS)
    assert alignment.timeline == Domain("monotonic", HOST, BOOT)
    assert alignment.warnings == ()
    alignment.check(100_000)


@pytest.mark.parametrize("tracer", [tracer for tracer in TRACERS if tracer != "monotonic"])
def test_a_tracer_lands_on_ktime(alignment: Alignment, tracer: str) -> None:
    """In one call the tracers stamp one after the other: that distance is real, and what remains is the error."""
    markers, times, _ = aligned(alignment, tracer)
    ahead = sorted(time - seen("monotonic")[marker] for marker, time in zip(markers, times, strict=True))
    stamped_apart = ahead[len(ahead) // 2]
    assert abs(stamped_apart) < 3_000
    off = sorted(abs(one - stamped_apart) for one in ahead)
    assert off[len(off) // 2] < 1_000
    assert off[len(off) * 99 // 100] < 5_000


@pytest.mark.parametrize("tracer", TRACERS)
def test_the_call_lies_between_the_reads_within_the_bound(alignment: Alignment, tracer: str) -> None:
    """The tracer stamps inside the call: before and after hold, give or take what is stated."""
    markers, times, uncertain = aligned(alignment, tracer)
    for marker, time, uncertainty in zip(markers, times, uncertain, strict=True):
        before, after = brackets()[marker]
        assert before - uncertainty <= time <= after + uncertainty


def test_taking_perfs_clock_for_monotonic_misses_by_many_slices() -> None:
    off = [
        seen("perf")[marker] - time for marker, time in seen("monotonic").items() if marker in seen("perf")
    ]
    assert min(abs(one) for one in off) > 12 * 100_000
