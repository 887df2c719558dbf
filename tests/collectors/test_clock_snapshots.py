"""A snapshot moves every clock to one instant and bounds how wrong that can be."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import clock_snapshots

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


@pytest.mark.parametrize("line", ["", "x", "{}", '{"snapshot": 1}'])
def test_what_is_no_snapshot_is_an_error(line: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        clock_snapshots.from_line(line)
