"""The kernel's TSC formula, bit for bit, against a plain transcription of it in Python's unbounded integers."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.clock_domains import TimeConversion
from pipeline.errors import InputError
from pipeline.tsc import TscMap

WORD = 1 << 64

conversions = st.builds(
    TimeConversion,
    shift=st.integers(0, 32),
    mult=st.integers(1, (1 << 32) - 1),
    zero=st.integers(-(1 << 63), (1 << 63) - 1),
)
ticks_lists = st.lists(st.integers(0, (1 << 63) - 1), min_size=1)


def kernel_ns(known: TimeConversion, ticks: int) -> int:
    if known.is_short:
        ticks = (known.cycles + ((ticks - known.cycles) & known.mask)) % WORD
    quot, rem = ticks >> known.shift, ticks & ((1 << known.shift) - 1)
    return (known.zero + quot * known.mult + ((rem * known.mult) >> known.shift)) % WORD


def kernel_ticks(known: TimeConversion, ns: int) -> int:
    quot, rem = divmod((ns - known.zero) % WORD, known.mult)
    return ((quot << known.shift) + (rem << known.shift) // known.mult) % WORD


def column(values: list[int]) -> pl.Series:
    return pl.Series("time", values, dtype=pl.Int64)


def words(values: pl.Series) -> list[int]:
    return [value % WORD for value in values.to_list()]


@given(conversions, ticks_lists)
def test_ns_are_the_kernels(known: TimeConversion, ticks: list[int]) -> None:
    ns, uncertainty = TscMap(known).convert(column(ticks))
    assert words(ns) == [kernel_ns(known, one) for one in ticks]
    assert uncertainty.to_list() == [0] * len(ticks)


@given(conversions, st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1))
def test_ticks_are_the_kernels(known: TimeConversion, ns: list[int]) -> None:
    ticks, _ = TscMap(known).inverse().convert(column(ns))
    assert words(ticks) == [kernel_ticks(known, one) for one in ns]


@given(ticks_lists, st.integers(8, 63), st.integers(0, (1 << 63) - 1))
def test_a_short_counter_is_continued(ticks: list[int], bits: int, cycles: int) -> None:
    known = TimeConversion(19, 174_000, 5, cycles, (1 << bits) - 1, is_short=True)
    ns, _ = TscMap(known).convert(column(ticks))
    assert words(ns) == [kernel_ns(known, one) for one in ticks]


def test_by_hand() -> None:
    # shift 1, mult 3: 1.5 ns a tick; 7 ticks: 3 whole pairs (9 ns) and one half pair (1.5, rounded down to 1), from 100
    ns, _ = TscMap(TimeConversion(1, 3, 100)).convert(column([0, 1, 2, 7]))
    assert ns.to_list() == [100, 101, 103, 110]


def test_a_negative_zero_wraps_as_in_most_recordings() -> None:
    known = TimeConversion(31, 933_678_325, -500_000_000_000_000 % WORD)
    ticks = 1_300_000_000_000_000
    ns, _ = TscMap(known).convert(column([ticks]))
    assert ns.to_list() == [ticks * 933_678_325 // (1 << 31) - 500_000_000_000_000]


# a tick shorter than a nanosecond, and numbers that wrap nowhere
@given(st.integers(1, 32), st.data())
def test_a_range_is_pushed_down_to_the_first_tick_of_each_ns(shift: int, data: st.DataObject) -> None:
    mult = data.draw(st.integers(max(1, (1 << shift) // 100), (1 << shift) - 1))
    known = TimeConversion(shift, mult, data.draw(st.integers(0, 1 << 60)))
    forward = TscMap(known)
    ns = known.zero + data.draw(st.integers(0, 1 << 54))
    tick = forward.lowest(ns)
    at, before = (forward.convert(column([one]))[0][0] for one in (tick, max(tick - 1, 0)))
    assert at == ns  # ns -> tick -> ns is the identity
    assert before < ns or tick == 0


@given(st.integers(1, 32), st.data())
def test_ticks_come_back_within_one_ns_of_ticks(shift: int, data: st.DataObject) -> None:
    mult = data.draw(st.integers(max(1, (1 << shift) // 100), min(8 << shift, (1 << 32) - 1)))
    forward = TscMap(TimeConversion(shift, mult, data.draw(st.integers(0, 1 << 60))))
    ticks = sorted(data.draw(st.lists(st.integers(0, 1 << 54), min_size=2)))
    ns, _ = forward.convert(column(ticks))
    assert ns.is_sorted()
    back, _ = forward.inverse().convert(ns)
    ticks_of_a_ns = -(-(1 << shift) // mult)
    assert all(0 <= tick - again <= ticks_of_a_ns for tick, again in zip(ticks, back, strict=True))


@pytest.mark.parametrize(("shift", "mult"), [(0, 0), (33, 1), (-1, 1), (0, 1 << 32)])
def test_impossible_numbers_are_refused(shift: int, mult: int) -> None:
    with pytest.raises(InputError, match="impossible TSC conversion"):
        TscMap(TimeConversion(shift, mult, 0))
