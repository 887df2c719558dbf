"""Slices: by hand, by brute force over nanoseconds, and by the laws that they promise."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import schema, slices

KINDS = ("cpu", "off_cpu", "syscall", "dma_wait")


def intervals(*rows: dict[str, Any]) -> pl.DataFrame:
    base: dict[str, Any] = dict.fromkeys(schema.INTERVALS.names())
    base |= {"host": "h", "kind": "cpu", "tid": 1, "stack_id": 5, "name": "n", "events": 1}
    return pl.DataFrame([base | row for row in rows], schema=schema.INTERVALS)


def busy(table: pl.DataFrame) -> dict[int, int]:
    return {row["slice"]: row["busy_ns"] for row in table.iter_rows(named=True)}


def test_an_interval_gives_each_slice_their_overlap() -> None:
    table = slices.cut(intervals({"raw_start": 950, "raw_end": 1130, "period": 180}), width_ns=100)
    # [950, 1130) over [900, 1000) [1000, 1100) [1100, 1200); the sample was taken at its end
    assert busy(table) == {9: 50, 10: 100, 11: 30}
    assert table["start_ns"].to_list() == [900, 1000, 1100]
    assert table["events"].to_list() == [0, 0, 1]
    assert table["period"].to_list() == [0, 0, 180]
    assert table["bytes"].to_list() == [None] * 3
    assert set(table["lane"]) == {"tid:1"}


def test_an_interval_that_ends_at_a_border_is_counted_in_the_slice_of_its_instant() -> None:
    table = slices.cut(intervals({"raw_start": 100, "raw_end": 200}), width_ns=100)
    assert [(row["slice"], row["busy_ns"], row["events"]) for row in table.iter_rows(named=True)] == [
        (1, 100, 0),
        (2, 0, 1),
    ]


@pytest.mark.parametrize(
    ("row", "lane"),
    [
        ({"kind": "irq", "cpu": 3, "tid": None}, "cpu:3"),
        ({"kind": "softirq", "cpu": 0}, "cpu:0"),
        ({"kind": "block_io", "name": "259,0"}, "dev:259,0"),
        ({"kind": "syscall", "tid": 77}, "tid:77"),
    ],
)
def test_lanes(row: dict[str, Any], lane: str) -> None:
    table = slices.cut(intervals(row | {"raw_start": 0, "raw_end": 10}), width_ns=100)
    assert table["lane"].to_list() == [lane]


def test_times_before_zero_are_floored() -> None:
    assert busy(slices.cut(intervals({"raw_start": -150, "raw_end": 50}), width_ns=100)) == {
        -2: 50,
        -1: 100,
        0: 50,
    }


def test_hour_long_overlapping_waits_cost_what_they_touch() -> None:
    hour = 3600 * 10**9
    rows = [{"kind": "off_cpu", "raw_start": at, "raw_end": hour + at} for at in range(1000)]
    table = slices.cut(intervals(*rows), width_ns=100_000, from_ns=10**9, to_ns=2 * 10**9)
    assert table.height == 10_000
    assert set(table["busy_ns"]) == {1000 * 100_000}


def test_nothing_in_gives_an_empty_table() -> None:
    table = slices.cut(intervals(), width_ns=100)
    assert table.height == 0
    assert table.schema == schema.SLICES


ROWS = st.lists(
    st.tuples(
        st.integers(-500, 500),
        st.integers(0, 300),
        st.sampled_from(KINDS),
        st.integers(1, 2),
        st.integers(0, 1),
    ),
    max_size=8,
)
Row = tuple[int, int, str, int, int]


def table_of(rows: list[Row]) -> pl.DataFrame:
    return intervals(
        *(
            {
                "raw_start": start,
                "raw_end": start + length,
                "kind": kind,
                "tid": tid,
                "stack_id": stack,
                "period": length,
            }
            for start, length, kind, tid, stack in rows
        )
    )


def sums(table: pl.DataFrame) -> tuple[int, int, int]:
    return int(table["busy_ns"].sum()), int(table["events"].sum()), int(table["period"].sum() or 0)


@given(ROWS, st.sampled_from([1, 7, 100, 1000]))
def test_cutting_equals_counting_nanoseconds(rows: list[Row], width: int) -> None:
    wanted: dict[tuple[int, str, str, int], int] = {}
    for start, length, kind, tid, stack in rows:
        for at in range(start, start + length):
            key = (at // width, f"tid:{tid}", kind, stack)
            wanted[key] = wanted.get(key, 0) + 1
    cut = slices.cut(table_of(rows), width_ns=width)
    found = {
        (row["slice"], row["lane"], row["kind"], row["stack_id"]): row["busy_ns"]
        for row in cut.iter_rows(named=True)
        if row["busy_ns"]
    }
    assert found == wanted
    total = sum(row[1] for row in rows)
    assert sums(cut) == (total, len(rows), total)


@given(ROWS, st.integers(-400, 400), st.integers(0, 500), st.integers(0, 500))
def test_ranges_add_up(rows: list[Row], first: int, left: int, right: int) -> None:
    table = table_of(rows)

    def part(start: int, end: int) -> tuple[int, int, int]:
        return sums(slices.cut(table, width_ns=100, from_ns=start, to_ns=end))

    middle, last = first + left, first + left + right
    both = [one + other for one, other in zip(part(first, middle), part(middle, last), strict=True)]
    assert both == list(part(first, last))


@given(ROWS, st.permutations(range(8)))
def test_the_order_of_rows_is_irrelevant(rows: list[Row], order: list[int]) -> None:
    mixed = [rows[at] for at in order if at < len(rows)]
    columns = ["slice", "lane", "kind", "stack_id"]
    one, other = (slices.cut(table_of(some), width_ns=100).sort(columns) for some in (rows, mixed))
    assert one.equals(other)


@given(ROWS)
def test_cutting_finer_and_adding_up_equals_cutting_coarser(rows: list[Row]) -> None:
    fine = slices.cut(table_of(rows), width_ns=10)
    keys = ["slice", "lane", "kind", "stack_id"]
    again = fine.with_columns(pl.col("slice") // 10).group_by(keys).agg(pl.col("busy_ns", "events").sum())
    coarse = slices.cut(table_of(rows), width_ns=100).select(*keys, "busy_ns", "events")
    assert again.sort(keys).equals(coarse.sort(keys))


@given(ROWS, st.sampled_from([10, 100]))
def test_a_moment_counts_for_one_kind_only(rows: list[Row], width: int) -> None:
    order = slices.SHARE_KINDS
    wanted: dict[tuple[int, int, str], int] = {}
    for tid in {row[3] for row in rows}:
        for at in range(-500, 801):
            here = [
                kind for start, length, kind, who, _ in rows if who == tid and start <= at < start + length
            ]
            if here:
                key = (at // width, tid, min(here, key=order.index))
                wanted[key] = wanted.get(key, 0) + 1
    found = {
        (row["slice"], row["tid"], kind): row[f"{kind}_ns"]
        for row in slices.shares(table_of(rows), width_ns=width).iter_rows(named=True)
        for kind in order
        if row[f"{kind}_ns"]
    }
    assert found == wanted
