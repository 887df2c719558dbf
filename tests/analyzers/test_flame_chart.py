"""Flame charts from intervals made by hand: which cells, which shares, which slices, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers import chart_waits, flame_chart
from analyzers.chart_shares import STATES
from analyzers.flame_chart import FlameChart, Lane
from pipeline import schema
from pipeline.errors import InputError, UsageError
from pipeline.stacks import Frame, StackTrie
from pipeline.tables import TrieTables

ALL = frozenset({"cpu", "running", "off_cpu", "syscall", "dma_wait"})


class Capture:
    """Intervals, frames and stacks, one interval a call."""

    def __init__(self) -> None:
        self.trie = StackTrie()
        self._rows: list[tuple[dict[str, Any], int]] = []

    def add(
        self, kind: str, start_ns: int, end_ns: int, stack: str | Sequence[Frame] = "", **columns: Any
    ) -> Capture:
        frames = [Frame(name) for name in stack.split(";") if name] if isinstance(stack, str) else stack
        row = {"kind": kind, "raw_start": start_ns, "raw_end": end_ns, "tid": 7, "pid": 7, "comm": "decode"}
        self._rows.append((row | columns, self.trie.add(frames)))
        return self

    def tables(self) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        tables = TrieTables(self.trie)
        frames, stacks = tables.new_rows()
        rows = [row | {"stack_id": tables.node_ids[node]} for row, node in self._rows]
        names = schema.INTERVALS.names()
        table = pl.DataFrame(
            {name: [row.get(name) for row in rows] for name in names}, schema=schema.INTERVALS
        )
        return table, frames, stacks

    def chart(self, captured: frozenset[str] = ALL, **options: Any) -> FlameChart:
        return flame_chart.build(*self.tables(), captured, **{"width_ns": 10, **options})


def cells(chart: FlameChart, lane: int = 0) -> list[tuple[int, int, int, str]]:
    """Return depth, first slice, slices and name of every cell."""
    columns = chart.lanes[lane].cells
    names = [chart.names[number] for number in columns.name]
    return list(zip(columns.depth, columns.first_slice, columns.slices, names, strict=True))


def shares_of(lane: Lane) -> dict[str, list[int]]:
    """Return the states that a lane has time in."""
    return {state: list(lane.shares.of(state)) for state in STATES if any(lane.shares.of(state))}


# ------------------------------------------------------------------ cells


def test_a_frame_goes_on_while_it_and_its_callers_stay() -> None:
    capture = Capture().add("cpu", 0, 20, "main;step;dot").add("cpu", 20, 40, "main;step;add")
    capture.add("off_cpu", 40, 70, "main;wait", name="blocked").add("cpu", 80, 90, "main;step;dot")
    assert cells(capture.chart()) == [
        (0, 0, 7, "main"),
        (0, 8, 1, "main"),
        (1, 0, 4, "step"),
        (1, 4, 3, "wait"),
        (1, 8, 1, "step"),
        (2, 0, 2, "dot"),
        (2, 2, 2, "add"),
        (2, 4, 3, "[blocked]"),
        (2, 8, 1, "dot"),
    ]


def test_the_same_name_under_other_callers_is_another_cell() -> None:
    capture = Capture().add("cpu", 0, 10, "main;left;copy").add("cpu", 10, 20, "main;right;copy")
    assert [cell for cell in cells(capture.chart()) if cell[3] == "copy"] == [
        (2, 0, 1, "copy"),
        (2, 1, 1, "copy"),
    ]


def test_a_slice_shows_the_stack_that_took_most_of_its_foremost_state() -> None:
    capture = Capture().add("cpu", 0, 3, "main;a").add("cpu", 3, 7, "main;b")
    capture.add("off_cpu", 7, 10, "main;c", name="blocked")
    assert [name for *_, name in cells(capture.chart())] == ["main", "b"]


def test_of_states_that_took_the_same_the_wait_is_shown() -> None:
    capture = Capture().add("cpu", 0, 5, "run").add("off_cpu", 5, 10, "", name="runnable")
    assert cells(capture.chart()) == [(0, 0, 1, "[waiting for a CPU]")]


@pytest.mark.parametrize(
    ("kind", "name", "stack", "shown"),
    [
        ("off_cpu", "blocked", "main;poll", ["main", "poll", "[blocked]"]),
        ("off_cpu", "runnable", "main", ["main", "[waiting for a CPU]"]),
        ("off_cpu", "blocked", "", ["[blocked]"]),
        ("dma_wait", "259,0", "main", ["main", "[DMA wait: 259,0]"]),
        ("dma_wait", None, "", ["[DMA wait]"]),
        ("syscall", "read", "", ["[read]"]),
        ("running", None, "", ["[on a CPU, not sampled]"]),
        ("cpu", None, "", ["[no stack]"]),
    ],
)
def test_what_a_thread_waits_for_stands_innermost(
    kind: str, name: str | None, stack: str, shown: list[str]
) -> None:
    assert [cell[3] for cell in cells(Capture().add(kind, 0, 10, stack, name=name).chart())] == shown


def test_a_block_names_the_system_call_around_it() -> None:
    capture = Capture().add("syscall", 0, 30, name="futex").add("off_cpu", 10, 20, "lock", name="blocked")
    assert (1, 1, 1, "[blocked in futex]") in cells(capture.chart())


def test_a_dma_wait_without_a_stack_takes_that_of_the_sleep_below_it() -> None:
    capture = (
        Capture().add("dma_wait", 0, 10, name="259,0").add("off_cpu", 0, 10, "main;read", name="blocked")
    )
    assert [name for *_, name in cells(capture.chart())] == ["main", "read", "[DMA wait: 259,0]"]


def test_samples_inside_a_system_call_show_their_stack() -> None:
    capture = Capture().add("syscall", 0, 10, name="write").add("cpu", 2, 8, "main;write;copy")
    assert [name for *_, name in cells(capture.chart())] == ["main", "write", "copy"]


def test_names_are_spelled_as_in_flame_graphs_and_odd_bytes_survive() -> None:
    stack = [Frame("ns::run(int)"), Frame("[unknown]", dso="/usr/lib/libx.so"), Frame("caf\udce9\\n")]
    assert Capture().add("cpu", 0, 10, stack).chart().names == ("ns::run", "[libx.so]", "caf\udce9\\n")


def test_a_stack_of_thousands_of_frames_is_drawn() -> None:
    chart = Capture().add("cpu", 0, 10, [Frame("again")] * 5_000).chart()
    assert len(chart.lanes[0].cells) == 5_000
    assert max(chart.lanes[0].cells.depth) == 4_999


# ------------------------------------------------------------------ shares


def test_time_belongs_to_the_first_of_its_states_and_the_rest_was_not_captured() -> None:
    capture = Capture().add("syscall", 0, 28, name="read").add("off_cpu", 5, 18, name="blocked")
    capture.add("off_cpu", 18, 21, name="runnable").add("dma_wait", 7, 15).add("cpu", 20, 35, "main")
    assert shares_of(capture.chart().lanes[0]) == {
        "dma_wait": [3, 5, 0, 0],
        "blocked": [2, 3, 0, 0],
        "runnable": [0, 2, 1, 0],
        "syscall": [5, 0, 7, 0],
        "cpu": [0, 0, 2, 5],
    }


def test_time_that_the_scheduler_saw_is_cpu_time_once() -> None:
    capture = Capture().add("running", 0, 18).add("cpu", 5, 20, "main")
    assert shares_of(capture.chart().lanes[0]) == {"cpu": [10, 10]}


def test_disk_wait_while_runnable_is_disk_wait() -> None:
    capture = Capture().add("off_cpu", 0, 10, name="runnable").add("dma_wait", 0, 4)
    assert shares_of(capture.chart().lanes[0]) == {"dma_wait": [4], "runnable": [6]}


# ------------------------------------------------------------------ which slices


def busy_and_idle() -> Capture:
    """1,000 slices: it computes, from 400 to 449 waits for a CPU half the time, and sleeps from 500 on."""
    capture = Capture().add("cpu", 0, 4_000, "main")
    for slice_number in range(400, 450):
        start_ns = slice_number * 10
        capture.add("cpu", start_ns, start_ns + 5, "main")
        capture.add("off_cpu", start_ns + 5, start_ns + 10, "main", name="runnable")
    return capture.add("cpu", 4_500, 5_000, "main").add("off_cpu", 5_000, 10_000, "main", name="blocked")


def test_the_default_is_where_the_busiest_thread_waited_while_it_had_work() -> None:
    chart = busy_and_idle().chart(slices_shown=80)
    # blocks of 20 slices: of the windows that hold all of the wait, 380 begins first
    assert (chart.first_slice, chart.slices) == (380, 80)
    assert chart.chosen.startswith("where decode (tid 7) waited most while it had work")


def test_sleep_counts_up_to_the_work_beside_it() -> None:
    capture = Capture().add("cpu", 0, 5_000, "main").add("off_cpu", 5_000, 10_000, "main", name="blocked")
    # 8 slices around the moment it falls asleep: half work, half sleep; nowhere else is there so much of both
    assert capture.chart(slices_shown=8).first_slice == 496


def test_without_waiting_it_is_where_cpu_time_changes_most() -> None:
    capture = Capture().add("cpu", 0, 3_000, "main").add("cpu", 9_000, 10_000, "main")
    for start_ns in range(5_000, 5_400, 40):
        capture.add("cpu", start_ns, start_ns + 20, "main")
    chart = capture.chart(frozenset({"cpu"}), slices_shown=8)
    # blocks of 2 slices: off, on, off, on
    assert (chart.first_slice, chart.slices) == (498, 8)
    assert "CPU time changed most" in chart.chosen


def test_a_short_capture_is_shown_whole() -> None:
    chart = Capture().add("cpu", 995, 1_005, "main").chart()
    assert (chart.first_slice, chart.slices, chart.chosen) == (99, 2, "the whole capture")
    assert (chart.origin_ns, chart.end_ns) == (995, 1_005)


@pytest.mark.parametrize(
    ("options", "first_slice", "slices"),
    [
        ({"from_ns": 100, "to_ns": 200}, 10, 10),
        ({"from_ns": 105, "to_ns": 201}, 10, 11),
        ({"from_ns": 5_000, "slices_shown": 20}, 500, 20),
        ({"to_ns": 5_000, "slices_shown": 20}, 480, 20),
    ],
)
def test_a_range_that_was_asked_for_is_shown(options: dict[str, Any], first_slice: int, slices: int) -> None:
    chart = busy_and_idle().chart(**options)
    assert (chart.first_slice, chart.slices) == (first_slice, slices)
    assert len(chart.lanes[0].shares) == slices
    assert "--" in chart.chosen or "asked for" in chart.chosen


def test_the_overview_holds_all_time_of_the_first_lane() -> None:
    chart = busy_and_idle().chart(slices_shown=8)
    overview = chart.overview
    assert len(overview.shares) <= flame_chart.OVERVIEW_BUCKETS
    assert sum(sum(overview.shares.of(state)) for state in STATES) == 10_000
    assert overview.first_bucket == 0
    assert overview.width_ns % chart.width_ns == 0


# ------------------------------------------------------------------ which threads


def several_threads() -> Capture:
    capture = Capture().add("cpu", 0, 1_000, "idle", tid=0, pid=0, comm="swapper")
    for tid in range(1, 8):
        capture.add("cpu", 0, tid * 10, "main", tid=tid, cpu=tid % 2, comm=f"worker {tid}")
    return capture


def test_the_busiest_threads_are_shown_and_the_others_counted() -> None:
    chart = several_threads().chart()
    assert [(lane.tid, lane.comm) for lane in chart.lanes] == [
        (7, "worker 7"),
        (6, "worker 6"),
        (5, "worker 5"),
        (4, "worker 4"),
    ]
    assert chart.lanes_left_out == 3


def test_threads_and_cpus_that_were_asked_for() -> None:
    assert [lane.tid for lane in several_threads().chart(tids=[2, 3]).lanes] == [3, 2]
    assert [lane.tid for lane in several_threads().chart(cpus=[1]).lanes] == [7, 5, 3, 1]
    assert [lane.comm for lane in several_threads().chart(tids=[0]).lanes] == ["swapper"]


def test_the_first_lane_is_the_thread_that_the_range_was_chosen_for() -> None:
    capture = busy_and_idle().add("cpu", 3_000, 6_000, "other", tid=8)
    assert [lane.tid for lane in capture.chart(slices_shown=80).lanes] == [7, 8]


def test_a_lane_bears_the_name_that_its_thread_had_longest() -> None:
    capture = Capture().add("cpu", 0, 10, comm="sh").add("cpu", 10, 50, comm="decode\\xe9")
    assert capture.chart().lanes[0].comm == "decode\udce9"


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("capture", "options", "problem"),
    [
        (Capture(), {}, "nothing is left after the filters"),
        (Capture().add("cpu", 0, 10, tid=0), {}, "only the idle task"),
        (Capture().add("cpu", 0, 10, tid=3), {"tids": [4]}, "its threads are 3"),
        (Capture().add("cpu", 0, 10), {"from_ns": 500, "to_ns": 600}, "from 0.000000000 to 0.000000010 s"),
    ],
)
def test_nothing_to_show_is_an_error(capture: Capture, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        capture.chart(**options)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"from_ns": 0, "to_ns": 200_001},
            "holds 20001 slices, and a chart shows at most 20000: narrow --from",
        ),
        ({"from_ns": 50, "to_ns": 40}, "the range is empty"),
        ({"from_ns": 50, "to_ns": 50}, "the range is empty"),
    ],
)
def test_a_range_that_cannot_be_shown_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        Capture().add("cpu", 0, 1_000_000, "main").chart(**options)


def test_too_many_cells_are_refused_or_cost_lanes() -> None:
    deep = [Frame(f"f{depth}") for depth in range(6_000)]
    capture = Capture()
    for tid in (7, 8):
        for slice_number in range(0, 10, 2):
            capture.add("cpu", slice_number * 10, slice_number * 10 + 10, deep, tid=tid)
    chart = capture.chart()
    assert [len(lane.cells) for lane in chart.lanes] == [30_000]
    assert chart.lanes_left_out == 1
    for slice_number in range(10, 20, 2):
        capture.add("cpu", slice_number * 10, slice_number * 10 + 10, deep)
    with pytest.raises(UsageError, match="holds 60000 cells, and a chart shows at most 50000"):
        capture.chart()


# ------------------------------------------------------------------ the longest waits


def test_the_longest_waits_come_with_what_the_thread_was_doing() -> None:
    read = [Frame("main"), Frame("load"), Frame("read"), Frame("vfs_read", kind="kernel")]
    capture = Capture().add("cpu", 0, 10, "main").add("dma_wait", 10, 60, read, name="259,0")
    capture.add("cpu", 60, 70, "main").add("off_cpu", 70, 90, "main", name="runnable").add("cpu", 90, 200)
    waits = chart_waits.longest(capture.chart())
    assert [(wait.name, wait.first_slice, wait.slices, wait.callers) for wait in waits] == [
        ("[DMA wait: 259,0]", 1, 5, ("load", "read")),
        ("[waiting for a CPU]", 7, 2, ("main",)),
    ]


# ------------------------------------------------------------------ laws

KINDS = st.sampled_from(
    [
        ("cpu", None),
        ("running", None),
        ("off_cpu", "blocked"),
        ("off_cpu", "runnable"),
        ("syscall", "read"),
        ("dma_wait", "d"),
    ]
)
STACKS = st.lists(st.sampled_from("abc"), max_size=4).map(";".join)
INTERVALS = st.lists(
    st.tuples(KINDS, st.integers(0, 300), st.integers(1, 60), STACKS, st.sampled_from([7, 8])), min_size=1
)


def covered_ns(spans: Iterable[tuple[int, int]]) -> int:
    return len({at for start, end in spans for at in range(start, end)})


@settings(max_examples=40)
@given(INTERVALS, st.integers(1, 50))
def test_no_moment_is_lost_or_counted_twice(rows: list[Any], width_ns: int) -> None:
    capture = Capture()
    for (kind, name), start_ns, length_ns, stack, tid in rows:
        capture.add(kind, start_ns, start_ns + length_ns, stack, name=name, tid=tid)
    chart = capture.chart(width_ns=width_ns, slices_shown=1_000)
    for lane in chart.lanes:
        spans = [(start, start + length) for _, start, length, _, tid in rows if tid == lane.tid]
        per_slice = [sum(column) for column in zip(*(lane.shares.of(state) for state in STATES), strict=True)]
        assert sum(per_slice) == covered_ns(spans)
        assert max(per_slice) <= width_ns


@settings(max_examples=40)
@given(INTERVALS, st.integers(1, 50))
def test_the_cells_of_a_slice_are_one_stack(rows: list[Any], width_ns: int) -> None:
    capture = Capture()
    for (kind, name), start_ns, length_ns, stack, tid in rows:
        capture.add(kind, start_ns, start_ns + length_ns, stack, name=name, tid=tid)
    chart = capture.chart(width_ns=width_ns, slices_shown=1_000)
    for lane in chart.lanes:
        depths: dict[int, list[int]] = {}
        columns = lane.cells
        for depth, first, many in zip(columns.depth, columns.first_slice, columns.slices, strict=True):
            for number in range(first, first + many):
                depths.setdefault(number, []).append(depth)
        for number in range(chart.first_slice, chart.first_slice + chart.slices):
            has_time = lane.shares.foremost(number - chart.first_slice) is not None
            found = sorted(depths.get(number, []))
            assert found == list(range(len(found)))
            assert bool(found) == has_time
