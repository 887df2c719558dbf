"""A snapshot moves every clock to one instant and bounds how wrong that can be."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import clock_snapshots
from collectors.clock_snapshots import Reading
from pipeline.losses import LossLedger

REALTIME_AHEAD_NS = 1_796_000_000_000_000_000


@given(st.lists(st.integers(0, 100_000), min_size=61, max_size=61))
def test_the_uncertainty_bounds_the_error_whatever_delays_a_read(delays_ns: list[int]) -> None:
    now_ns, left = 5_000, iter(delays_ns)

    def read_ns(clock: int) -> int:
        nonlocal now_ns
        now_ns += next(left, 1)
        return now_ns + (REALTIME_AHEAD_NS if clock == time.CLOCK_REALTIME else 0)

    readings = {one.clock: one for one in clock_snapshots.take(read_ns)}
    monotonic, realtime = readings["monotonic"], readings["realtime"]
    assert monotonic.uncertainty == 0
    assert abs(realtime.value - monotonic.value - REALTIME_AHEAD_NS) <= realtime.uncertainty


def test_the_tightest_of_several_tries_counts() -> None:
    steps = iter([0] + [1000, 1000, 1000, 10, 10, 10] + [1000] * 100)
    now_ns = 0

    def read_ns(clock: int) -> int:
        nonlocal now_ns
        now_ns += next(steps)
        return now_ns

    readings = clock_snapshots.take(read_ns, tries=2)
    assert readings[1].uncertainty == 10


def test_a_line_comes_back() -> None:
    readings = clock_snapshots.take()
    assert [one.clock for one in readings] == ["monotonic", "monotonic_raw", "boottime", "realtime", "tai"]
    line = clock_snapshots.to_line(3, readings)
    assert line.endswith("}\n")
    assert clock_snapshots.from_line(line) == (3, readings)


_ONE = '{"snapshot": 1, "clocks": {"perf": {"value_ns": %s, "uncertainty_ns": %s}}}'


@pytest.mark.parametrize(
    "line",
    [
        "",
        "x",
        "{}",
        '{"snapshot": 1}',
        _ONE % ("99999999999999999999", "0"),
        _ONE % ("1", "-1"),
        _ONE % ("1.5", "0"),
        _ONE % ('"1"', "0"),
        _ONE % ("true", "0"),
        _ONE % ("NaN", "Infinity"),
        '{"snapshot": "1", "clocks": {}}',
        '{"snapshot": 1, "clocks": []}',
        '{"snapshot": 1, "clocks": {"tsc": {"value_ns": 1, "uncertainty_ns": 0}}}',
        "[" * 100_000,
    ],
)
def test_what_is_no_snapshot_is_an_error(line: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 -- the reader counts the line, whatever is wrong with it
        clock_snapshots.from_line(line)


def test_lines_that_hold_none_are_counted_and_the_others_read(tmp_path: Path) -> None:
    path = tmp_path / "clocks.jsonl"
    ticks = clock_snapshots.to_line(1, (Reading("monotonic", 5, 1), Reading("tsc", 7, 0)))
    path.write_text(ticks + _ONE % ("1" * 30, "0") + "\n" + "[" * 50_000 + "\n")
    ledger = LossLedger()
    table = clock_snapshots.read(path, "web-1", "b", ledger)
    assert table.rows() == [("web-1", "b", 1, "monotonic", 5, 1), ("web-1", "b", 1, "tsc", 7, 0)]
    assert [(loss.reason, loss.count, loss.first_line) for loss in ledger.as_tuple()] == [
        ("unreadable_line", 2, 2)
    ]
