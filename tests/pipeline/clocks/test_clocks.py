"""The graph of clocks: ways are the composition of their hops, and the least uncertain one is taken."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from pipeline import clocks
from pipeline.clock_anchors import sort_out
from pipeline.clock_domains import Domain, TimeConversion
from pipeline.clock_maps import Anchor, RateModel
from pipeline.clocks import ClockGraph, Edge

SECOND = 1_000_000_000
TSC, PERF, MONOTONIC, WALL = (Domain(clock, "web-1") for clock in ("tsc", "perf", "monotonic", "realtime"))
MODEL = RateModel(lone_ppb=500_000, wander_ppb=1_000)


def edge(source: Domain, target: Domain, *anchors: tuple[int, int, int]) -> Edge:
    return Edge.of_anchors(source, target, sort_out([Anchor(*one) for one in anchors], MODEL))


def column(*values: int) -> pl.Series:
    return pl.Series(values, dtype=pl.Int64)


anchor_lists = st.lists(
    st.tuples(st.integers(0, 100), st.integers(-20_000, 20_000), st.integers(0, 2_000)),
    min_size=1,
    max_size=6,
    unique_by=lambda one: one[0],
).map(lambda found: [(s * SECOND, s * SECOND + off // 100, u) for s, off, u in found])
times = st.integers(0, 100 * SECOND)


@given(anchor_lists, anchor_lists, st.lists(times, min_size=1), st.integers(1, (1 << 32) - 1))
def test_a_way_is_the_composition_of_its_hops(
    first: list[tuple[int, int, int]], second: list[tuple[int, int, int]], values: list[int], mult: int
) -> None:
    conversion = TimeConversion(32, mult, 0)
    graph = ClockGraph(
        [
            Edge.of_conversion(TSC, PERF, conversion),
            edge(MONOTONIC, PERF, *first),
            edge(MONOTONIC, WALL, *second),
        ]
    )
    whole = graph.convert(column(*values), TSC, WALL)
    assert whole is not None
    assert whole.path == (TSC, PERF, MONOTONIC, WALL)
    by_hop, uncertainty = column(*values), 0
    for start, end in zip(whole.path, whole.path[1:], strict=False):
        step = graph.convert(by_hop, start, end)
        assert step is not None
        by_hop = step.values
        uncertainty = max(uncertainty, step.uncertainty.max())  # type: ignore[type-var]
    assert whole.values.to_list() == by_hop.to_list()
    # a bound never shrinks on the way
    assert whole.uncertainty.max() >= uncertainty - 1  # type: ignore[operator]


@given(st.permutations(range(3)))
def test_the_least_uncertain_way_is_taken_whatever_the_order_of_edges(order: list[int]) -> None:
    edges = [
        edge(MONOTONIC, PERF, (0, 0, 9_000), (SECOND, SECOND, 9_000)),  # direct, and poor
        edge(MONOTONIC, WALL, (0, 77, 50), (SECOND, SECOND + 77, 50)),
        edge(WALL, PERF, (77, 5, 50), (SECOND + 77, SECOND + 5, 50)),
    ]
    graph = ClockGraph([edges[number] for number in order])
    found = graph.convert(column(SECOND // 2), PERF, MONOTONIC)
    assert found is not None
    assert found.path == (PERF, WALL, MONOTONIC)
    assert found.uncertainty[0] < 1_000
    assert graph.digest == ClockGraph(edges).digest


def test_unrelated_clocks_and_the_same_clock() -> None:
    graph = ClockGraph([edge(MONOTONIC, PERF, (0, 0, 5))])
    assert graph.convert(column(1), WALL, PERF) is None
    same = graph.convert(column(1, 2), PERF, PERF)
    assert same is not None
    assert (same.values.to_list(), same.uncertainty.to_list()) == ([1, 2], [0, 0])
    assert graph.convert_one(2 * SECOND, MONOTONIC, PERF) == (2 * SECOND, 5 + 1_000_000)


@given(anchor_lists, times)
def test_a_range_pushed_down_keeps_exactly_what_lies_in_it(
    anchors: list[tuple[int, int, int]], bound: int
) -> None:
    graph = ClockGraph([edge(MONOTONIC, PERF, *anchors)])
    path = graph.path(PERF, MONOTONIC, 0, 100 * SECOND)
    assert path is not None
    first = clocks.lowest(path, bound)
    before, at = clocks.follow(path, column(first - 1, first)).values
    assert before < bound <= at


def test_a_hundred_thousand_anchors_are_sorted_out() -> None:
    anchors = [Anchor(n * 1_000_000, n * 1_000_000 + 400 + n % 7, 50) for n in range(100_000)]
    found = sort_out(anchors, MODEL)
    assert (len(found.eras), found.dropped) == (1, ())
