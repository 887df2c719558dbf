"""What did each thread do, slice by slice? Stacks over time, and how each slice's time was shared out.

A lane is a thread. In each slice it shows one stack, that of the state which took most of the slice; of
equal ones the first of DMA wait, blocked, waiting for a CPU, system call, CPU. Adjacent slices with the
same frame under the same callers are one cell. Which slices are shown, where none were asked for:
`chart_window`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from analyzers import chart_cells, chart_shares, chart_window
from analyzers.chart_cells import Cells, StackPaths
from analyzers.chart_shares import Shares
from analyzers.chart_window import Window
from pipeline import slices
from pipeline.errors import InputError, UsageError
from pipeline.losses import Loss
from pipeline.text import unescape

MAX_LANES = 4  # our choice: what fits one or two screens
MAX_LANES_ASKED = 16
MAX_SLICES = 20_000
MAX_CELLS = 50_000
OVERVIEW_BUCKETS = 400
_THREAD_KINDS = ("cpu", "running", "off_cpu", "syscall", "dma_wait")
IDLE_TID = 0  # the kernel's idle task: one number for the idle loop of every CPU


@dataclass(frozen=True, slots=True)
class Lane:
    """One thread in the range shown: its cells, and its shares, one entry per slice."""

    tid: int
    pid: int | None
    comm: str  # surrogate-escaped text
    cells: Cells
    shares: Shares


@dataclass(frozen=True, slots=True)
class Overview:
    """The first lane over the whole capture, in buckets: the first begins at first_bucket * width_ns."""

    width_ns: int
    first_bucket: int
    shares: Shares


@dataclass(frozen=True, slots=True)
class FlameChart:
    """Lanes over a range of slices; times are ns on the source's clock, a slice is time_ns // width_ns."""

    width_ns: int
    first_slice: int
    slices: int
    origin_ns: int  # the capture's first event, from which times are told
    end_ns: int  # where the capture ends
    lanes: tuple[Lane, ...]  # the busiest of the capture, then the busiest in the range
    names: tuple[str, ...]  # what the cells' name numbers mean: surrogate-escaped text
    overview: Overview
    captured: frozenset[str]
    chosen: str  # in words: why this range
    lanes_left_out: int  # threads with time in the range that are not shown
    notes: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()


def build(
    intervals: pl.DataFrame,
    frames: pl.DataFrame,
    stacks: pl.DataFrame,
    captured: frozenset[str],
    *,
    width_ns: int,
    from_ns: int | None = None,
    to_ns: int | None = None,
    tids: Iterable[int] | None = None,
    cpus: Iterable[int] | None = None,
    slices_shown: int = 200,
    origin_ns: int | None = None,
    losses: tuple[Loss, ...] = (),
    notes: tuple[str, ...] = (),
) -> FlameChart:
    """Return the flame chart of INTERVALS in the range asked, or else in the most interesting one.

    With only one of from_ns and to_ns, slices_shown slices begin or end there; slices are shown whole.
    Raises InputError where no thread has time to show, and UsageError where the range holds more than
    MAX_SLICES slices or MAX_CELLS cells of one thread.
    """
    asked = frozenset(tids or ())
    mine = _of_threads(intervals, asked, frozenset(cpus or ()))
    if mine.is_empty():
        raise InputError("no thread has time to show", _nothing_left(intervals, asked))
    busiest = _ranked(mine)[0]
    first_ns, end_ns = int(mine["raw_start"].min()), int(mine["raw_end"].max())  # type: ignore[arg-type]
    bounds = first_ns // width_ns, (end_ns - 1) // width_ns
    window = _asked_window(from_ns, to_ns, width_ns, slices_shown) or chart_window.choose(
        mine,
        tid=busiest,
        thread=_words(mine, busiest),
        first_slice=bounds[0],
        last_slice=bounds[1],
        width_ns=width_ns,
        shown=slices_shown,
    )
    paths = StackPaths(frames, stacks)
    most = MAX_LANES_ASKED if asked else MAX_LANES
    threads, lanes = _lanes(mine, window, width_ns, most, paths, first=busiest)
    if not lanes:
        raise InputError("no thread has time in this range", _reaches(first_ns, end_ns))
    return FlameChart(
        width_ns=width_ns,
        first_slice=window.first_slice,
        slices=window.slices,
        origin_ns=first_ns if origin_ns is None else origin_ns,
        end_ns=end_ns,
        lanes=lanes,
        names=paths.names,
        overview=_overview(mine, lanes[0], bounds, width_ns),
        captured=captured,
        chosen=window.chosen,
        lanes_left_out=threads - len(lanes),
        notes=notes,
        losses=losses,
    )


def _of_threads(intervals: pl.DataFrame, tids: frozenset[int], cpus: frozenset[int]) -> pl.DataFrame:
    """Return the intervals that are a thread's own time, without the idle task unless it was asked for."""
    kept = pl.col("kind").is_in(_THREAD_KINDS) & (pl.col("raw_end") > pl.col("raw_start"))
    kept &= pl.col("tid").is_in(list(tids)) if tids else pl.col("tid") > IDLE_TID
    if cpus:
        kept &= pl.col("cpu").is_in(list(cpus))
    return intervals.filter(kept)


def _nothing_left(intervals: pl.DataFrame, tids: frozenset[int]) -> str:
    if intervals.is_empty():
        return "nothing is left after the filters"
    if intervals["tid"].null_count() == intervals.height:
        return "the file does not say which thread a sample is of: print it with perf script -F +tid"
    if (intervals["raw_end"] <= intervals["raw_start"]).all():
        return "its samples do not tell how long they stand for"
    if not tids:
        return "the capture holds only the idle task"
    known = intervals.filter(pl.col("tid") > IDLE_TID)["tid"].unique().sort().to_list()
    return "its threads are " + ", ".join(map(str, known[:20])) + (", ..." if len(known) > 20 else "")


def _reaches(first_ns: int, end_ns: int) -> str:
    first, end = (f"{ns // 1_000_000_000}.{ns % 1_000_000_000:09d}" for ns in (first_ns, end_ns))
    return f"on its own clock the capture reaches from {first} to {end} s"


def _ranked(intervals: pl.DataFrame, from_ns: int | None = None, to_ns: int | None = None) -> list[int]:
    """Return the threads with time in a range, those with most CPU time first, then by waiting and number."""
    start, end = pl.col("raw_start"), pl.col("raw_end")
    taken = (end if to_ns is None else end.clip(upper_bound=to_ns)) - (
        start if from_ns is None else start.clip(lower_bound=from_ns)
    )
    taken = taken.clip(lower_bound=0)
    ran = taken.filter(pl.col("kind") == "cpu").sum()
    scheduled = taken.filter(pl.col("kind") == "running").sum()
    return (
        intervals.group_by("tid")
        .agg(pl.max_horizontal(ran, scheduled).alias("ran_ns"), taken.sum().alias("taken_ns"))
        .filter(pl.col("taken_ns") > 0)
        .sort("ran_ns", "taken_ns", "tid", descending=[True, True, False])["tid"]
        .to_list()
    )


def _asked_window(from_ns: int | None, to_ns: int | None, width_ns: int, shown: int) -> Window | None:
    if from_ns is None and to_ns is None:
        return None
    first = None if from_ns is None else from_ns // width_ns
    after = None if to_ns is None else -(-to_ns // width_ns)
    if first is None:
        assert after is not None
        first, chosen = after - shown, f"the {shown} slices before --to"
    elif after is None:
        after, chosen = first + shown, f"the {shown} slices from --from on"
    else:
        chosen = "the range asked for"
    assert after is not None
    count = after - first
    if count <= 0:
        raise UsageError("the range is empty: --to is not after --from", "ranges are half open")
    if count > MAX_SLICES:
        raise UsageError(
            f"the range holds {count} slices, and a chart shows at most {MAX_SLICES}",
            "narrow --from and --to, or make the slices wider with --width",
        )
    return Window(first, count, chosen)


def _lanes(
    intervals: pl.DataFrame, window: Window, width_ns: int, most: int, paths: StackPaths, *, first: int
) -> tuple[int, tuple[Lane, ...]]:
    """Return how many threads have time in the window, and lanes within MAX_CELLS, first before all."""
    from_ns = window.first_slice * width_ns
    to_ns = from_ns + window.slices * width_ns
    inside = intervals.filter(pl.col("raw_end") > from_ns, pl.col("raw_start") < to_ns)
    ranked = sorted(_ranked(inside, from_ns, to_ns), key=lambda tid: tid != first)
    inside = inside.filter(pl.col("tid").is_in(ranked[:most]))
    cut = slices.cut(inside, width_ns=width_ns, from_ns=from_ns, to_ns=to_ns)
    shares = chart_shares.table(inside, width_ns=width_ns, from_ns=from_ns, to_ns=to_ns)
    lanes: list[Lane] = []
    cells_so_far = 0
    for tid in ranked[:most]:
        comm, pid = _name(inside, tid)
        mine = chart_shares.of_thread(shares, tid, first_slice=window.first_slice, count=window.slices)
        rows = cut.filter(pl.col("lane") == f"tid:{tid}")
        cells = chart_cells.of_lane(rows, mine, first_slice=window.first_slice, comm=comm, paths=paths)
        cells_so_far += len(cells)
        if cells_so_far > MAX_CELLS:
            if lanes:
                break
            raise UsageError(
                f"the range holds {len(cells)} cells, and a chart shows at most {MAX_CELLS}",
                "narrow --from and --to, or make the slices wider with --width",
            )
        lanes.append(Lane(tid, pid, comm, cells, mine))
    return len(ranked), tuple(lanes)


def _name(intervals: pl.DataFrame, tid: int) -> tuple[str, int | None]:
    """Return the process name that a thread bore longest, and its process."""
    named = (
        intervals.filter(pl.col("tid") == tid, pl.col("comm").is_not_null())
        .group_by("comm", "pid")
        .agg((pl.col("raw_end") - pl.col("raw_start")).sum().alias("taken_ns"))
        .sort("taken_ns", "comm", "pid", descending=[True, False, False])
    )
    return (unescape(named["comm"][0]), named["pid"][0]) if named.height else ("[unknown]", None)


def _words(intervals: pl.DataFrame, tid: int) -> str:
    return f"{_name(intervals, tid)[0]} (tid {tid})"


def _overview(intervals: pl.DataFrame, lane: Lane, bounds: tuple[int, int], width_ns: int) -> Overview:
    first_slice, last_slice = bounds
    bucket_ns = -(-(last_slice - first_slice + 1) // OVERVIEW_BUCKETS) * width_ns
    first = first_slice * width_ns // bucket_ns
    count = last_slice * width_ns // bucket_ns - first + 1
    mine = intervals.filter(pl.col("tid") == lane.tid)
    shares = chart_shares.table(mine, width_ns=bucket_ns, from_ns=None, to_ns=None)
    return Overview(
        bucket_ns, first, chart_shares.of_thread(shares, lane.tid, first_slice=first, count=count)
    )
