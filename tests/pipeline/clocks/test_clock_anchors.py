"""Anchors to maps: exact between them, never wrong by more than stated, steps and contradictions told apart."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from pipeline.clock_anchors import Anchors, map_of, sort_out
from pipeline.clock_maps import Anchor, PiecewiseMap, RateModel

MODEL = RateModel(Fraction(1), lone_ppb=500_000, wander_ppb=20_000)
SECOND = 1_000_000_000


def column(values: list[int]) -> pl.Series:
    return pl.Series("time", values, dtype=pl.Int64)


def mapped(anchors: Anchors) -> PiecewiseMap:
    made = map_of(anchors)
    assert made is not None
    return made


def through(*anchors: Anchor, model: RateModel = MODEL) -> PiecewiseMap:
    return mapped(sort_out(anchors, model))


def at(clock_map: PiecewiseMap, *values: int) -> list[tuple[int, int]]:
    converted, uncertainty = clock_map.convert(column(list(values)))
    return list(zip(converted.to_list(), uncertainty.to_list(), strict=True))


# by hand


def test_between_two_anchors_is_a_line_rounded_down() -> None:
    lines = through(Anchor(1000, 50_000), Anchor(4000, 53_001), model=RateModel(lone_ppb=10_000_000))
    assert [value for value, _ in at(lines, 1000, 1001, 2500, 4000)] == [50_000, 51_000 - 999, 51_500, 53_001]


def test_outside_the_nearest_segments_rate_goes_on() -> None:
    lines = through(
        Anchor(0, 0),
        Anchor(1000, 1000),
        Anchor(2000, 2100),
        model=RateModel(Fraction(1), lone_ppb=200_000_000),
    )
    assert at(lines, -10, 3000) == [(-10, 0), (3200, 0)]


def test_the_bound_by_hand() -> None:
    # 40 ns at one end, 20 at the other, 1000 ppb of wander: in the middle of 2 s (40 + 20) / 2 + 1e-6 * 1e9 / 2
    model = RateModel(Fraction(1), lone_ppb=500_000, wander_ppb=1000)
    lines = through(Anchor(0, 0, 40), Anchor(2 * SECOND, 2 * SECOND, 20), model=model)
    assert at(lines, 0, SECOND, 2 * SECOND) == [(0, 40), (SECOND, 530), (2 * SECOND, 20)]
    # one second outside: 20 of the anchor, 60 ns in 2 s for the rate, 1000 for the wander
    assert at(lines, 3 * SECOND) == [(3 * SECOND, 20 + 30 + 1000)]


def test_a_lone_anchor_has_the_models_rate_and_a_bound_that_grows() -> None:
    lines = through(Anchor(0, 100, 3), model=RateModel(Fraction(1), lone_ppb=500_000))
    assert at(lines, -SECOND, 0, SECOND) == [(100 - SECOND, 500_003), (100, 3), (100 + SECOND, 500_003)]


def test_a_lone_anchor_without_a_rate_makes_no_map() -> None:
    assert map_of(sort_out([Anchor(0, 0)], RateModel(None))) is None


def test_a_contradicting_anchor_is_dropped_and_named() -> None:
    anchors = [Anchor(second * SECOND, second * SECOND, 50) for second in range(5)]
    anchors[2] = Anchor(2 * SECOND, 2 * SECOND + 30_000_000, 50, "snapshot 2")
    found = sort_out(anchors, MODEL)
    assert [one.origin for one in found.dropped] == ["snapshot 2"]
    assert (len(found.eras), found.steps) == (1, ())


def test_a_step_forward_makes_two_eras() -> None:
    anchors = [Anchor(second * SECOND, second * SECOND + (second > 2) * SECOND) for second in range(6)]
    found = sort_out(anchors, MODEL)
    assert (len(found.eras), found.dropped) == (2, ())
    assert [step.size for step in found.steps] == [SECOND]
    lines = mapped(found)
    assert at(lines, 2 * SECOND)[0][0] == 2 * SECOND
    assert at(lines, 3 * SECOND)[0] == (4 * SECOND, 0)
    value, uncertainty = at(lines, 2 * SECOND + SECOND // 2)[0]
    for truth in (2 * SECOND + SECOND // 2, 3 * SECOND + SECOND // 2):  # before the step, or behind it
        assert abs(truth - value) <= uncertainty


def test_a_clock_set_back_makes_its_times_ambiguous_and_says_how_much() -> None:
    anchors = [
        Anchor(second * SECOND, (100 + second) * SECOND - (second > 2) * 2 * SECOND) for second in range(6)
    ]
    found = sort_out(anchors, MODEL)
    assert [step.size for step in found.steps] == [-2 * SECOND]
    back = mapped(found.inverse())
    # 101.5 s was shown at 1.5 s and again at 3.5 s
    value, uncertainty = at(back, 101 * SECOND + SECOND // 2)[0]
    for truth in (SECOND + SECOND // 2, 3 * SECOND + SECOND // 2):
        assert abs(truth - value) <= uncertainty
    assert at(back, 100 * SECOND) == [(0, 0)]
    assert at(back, 103 * SECOND) == [(5 * SECOND, 0)]


def test_a_counter_that_was_reset_is_two_eras_both_ways() -> None:
    rate = Fraction(23, 10)
    anchors = [Anchor(s * SECOND, (9_000_000 + s) * SECOND * 23 // 10) for s in range(3)]
    anchors += [Anchor(s * SECOND, (s - 3) * SECOND * 23 // 10 + 77) for s in range(3, 6)]
    found = sort_out(anchors, RateModel(rate, lone_ppb=50_000))
    assert len(found.eras) == 2
    back = mapped(found.inverse())
    assert at(back, 77) == [(3 * SECOND, 0)]
    assert at(back, 9_000_001 * SECOND * 23 // 10) == [(SECOND, 0)]


# laws


@dataclass(frozen=True)
class Truth:
    """A clock whose rate against the other changes at some instants, within the model's wander."""

    starts: list[int]
    values: list[Fraction]
    rates: list[Fraction]

    def at(self, x: int) -> Fraction:
        number = max(bisect_right(self.starts, x) - 1, 0)
        return self.values[number] + (x - self.starts[number]) * self.rates[number]


@st.composite
def truths(draw: st.DrawFn) -> Truth:
    base = draw(st.integers(-400_000, 400_000))
    lengths = draw(st.lists(st.integers(1, 5 * SECOND), min_size=1, max_size=6))
    starts, values, rates = [0], [Fraction(draw(st.integers(-(10**15), 10**15)))], []
    for length in lengths:
        ppb = base + draw(st.integers(0, MODEL.wander_ppb))
        rates.append(1 + Fraction(ppb, 1_000_000_000))
        starts.append(starts[-1] + length)
        values.append(values[-1] + length * rates[-1])
    rates.append(rates[-1])
    return Truth(starts, values, rates)


times = st.integers(-2 * SECOND, 32 * SECOND)


@st.composite
def readings(draw: st.DrawFn, truth: Truth, x: int | None = None) -> Anchor:
    """A reading of the truth that is wrong by no more than it says."""
    x = draw(times) if x is None else x
    off = draw(st.integers(-20_000, 20_000))
    return Anchor(x, math.floor(truth.at(x)) + off, abs(off) + 1 + draw(st.integers(0, 5000)))


@given(st.data())
def test_the_truth_is_never_outside_the_bound(data: st.DataObject) -> None:
    truth = data.draw(truths())
    anchors = data.draw(st.lists(readings(truth), min_size=1, max_size=12))
    found = sort_out(anchors, MODEL)
    assert found.dropped == ()
    assert found.steps == ()
    asked = data.draw(st.lists(times, min_size=1, max_size=20))
    for x, (value, uncertainty) in zip(asked, at(mapped(found), *asked), strict=True):
        assert abs(truth.at(x) - value) <= uncertainty + 1
    # and back: of a time on clock y, the instant on clock x
    ys = [math.floor(truth.at(x)) for x in asked]
    for x, (value, uncertainty) in zip(asked, at(mapped(found.inverse()), *ys), strict=True):
        assert abs(x - value) <= uncertainty + 2


@given(st.data())
def test_an_exact_snapshot_never_enlarges_the_worst_bound(data: st.DataObject) -> None:
    truth = data.draw(truths())
    anchors = data.draw(st.lists(readings(truth), min_size=2, max_size=8))
    exact_x = data.draw(times)
    exact = Anchor(exact_x, math.floor(truth.at(exact_x)), 0)
    asked = sorted(
        {*data.draw(st.lists(times, min_size=1, max_size=20)), *(one.x for one in anchors), exact_x}
    )
    before = max(uncertainty for _, uncertainty in at(through(*anchors), *asked))
    after = max(uncertainty for _, uncertainty in at(through(*anchors, exact), *asked))
    assert after <= before + 1


@given(st.data())
def test_a_map_is_monotone_and_equals_the_exact_rational_rounded_down(data: st.DataObject) -> None:
    truth = data.draw(truths())
    found = sort_out(data.draw(st.lists(readings(truth), min_size=2, max_size=8)), MODEL)
    lines = mapped(found)
    asked = sorted(data.draw(st.lists(times, min_size=2, max_size=30)))
    values = [value for value, _ in at(lines, *asked)]
    assert values == sorted(values)
    for x, value in zip(asked, values, strict=True):
        for left, right in pairwise(found.all()):
            if left.x <= x < right.x:
                assert value == math.floor(
                    left.y + Fraction((x - left.x) * (right.y - left.y), right.x - left.x)
                )


@given(st.data())
def test_a_range_is_pushed_down_to_the_first_time_that_reaches_it(data: st.DataObject) -> None:
    truth = data.draw(truths())
    lines = through(*data.draw(st.lists(readings(truth), min_size=2, max_size=8)))
    target = math.floor(truth.at(data.draw(times)))
    lowest = lines.lowest(target)
    (below, _), (reached, _) = at(lines, lowest - 1, lowest)
    assert below < target <= reached


@given(st.integers(-(1 << 62), 1 << 62), st.integers(0, 1 << 62), st.data())
def test_far_from_the_anchors_nothing_degrades(x0: int, span: int, data: st.DataObject) -> None:
    """Products far beyond 64 bits: years of uptime, and one long segment."""
    x1 = min(x0 + span + 1, (1 << 62) + (1 << 61))
    y1 = 5 + math.floor((x1 - x0) * Fraction(1_000_200_000, 1_000_000_000)) + 1
    lines = through(Anchor(x0, 5), Anchor(x1, y1), model=RateModel(lone_ppb=10**9))
    asked = data.draw(st.lists(st.integers(x0, x1), min_size=1))
    expected = [math.floor(5 + Fraction((x - x0) * (y1 - 5), x1 - x0)) for x in asked]
    assert [value for value, _ in at(lines, *asked)] == expected


def test_what_leaves_64_bits_is_null_and_never_wraps() -> None:
    lines = through(Anchor(0, (1 << 63) - 10), model=RateModel())
    assert lines.convert(column([5, 9, 10, 1 << 40]))[0].to_list() == [
        (1 << 63) - 5,
        (1 << 63) - 1,
        None,
        None,
    ]


def test_nulls_stay_and_order_does_not_matter() -> None:
    lines = through(*(Anchor(s * SECOND, s * SECOND + 5) for s in range(4)))
    values = pl.Series("time", [3 * SECOND, None, 0, SECOND], dtype=pl.Int64)
    assert lines.convert(values)[0].to_list() == [3 * SECOND + 5, None, 5, SECOND + 5]
    assert lines.convert(column([]))[0].to_list() == []
