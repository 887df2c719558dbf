"""Which slices to look at first? The stretch in which the busiest thread waited most while it had work.

A window's score is the busiest thread's DMA wait, plus its wait for a CPU, plus a quarter of its blocked
time, of which no more counts than the time that it ran in that window: a thread that only sleeps has
nothing to wait for, and sleep may be what its program wants (the quarter is our choice). Where no window
has a score (no waiting was captured, or there was none) it is the one in which the CPU time of all threads
changes most from block to block, else the one with the most CPU time. Windows begin at multiples of a
quarter of their length; of equal ones the earliest is taken.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import polars as pl

from analyzers import chart_shares

_STEPS = 4  # windows overlap: each begins a quarter of its length after the one before


@dataclass(frozen=True, slots=True)
class Window:
    """A range of slices, and in words why it was chosen."""

    first_slice: int
    slices: int
    chosen: str


def choose(
    intervals: pl.DataFrame,
    *,
    tid: int,
    thread: str,
    first_slice: int,
    last_slice: int,
    width_ns: int,
    shown: int,
) -> Window:
    """Return the most interesting window of shown slices between the first and last slice of the capture.

    intervals holds the threads that may be shown, tid is the busiest of them and thread its name in words.
    """
    if last_slice - first_slice + 1 <= shown:
        return Window(first_slice, last_slice - first_slice + 1, "the whole capture")
    step = max(1, shown // _STEPS)
    blocks_shown = max(1, shown // step)
    block_ns = step * width_ns
    mine = intervals.filter(pl.col("tid") == tid)
    block, chosen = _most_waiting(_blocks(mine, block_ns), blocks_shown, thread)
    if block is None:
        block, chosen = _most_change(_blocks(intervals, block_ns), blocks_shown)
    start = min(max(block * step, first_slice), last_slice - shown + 1)
    return Window(start, shown, chosen)


def _blocks(intervals: pl.DataFrame, block_ns: int) -> pl.DataFrame:
    return chart_shares.table(intervals, width_ns=block_ns, from_ns=None, to_ns=None)


def _most_waiting(mine: pl.DataFrame, blocks_shown: int, thread: str) -> tuple[int | None, str]:
    by_block = {row["slice"]: row for row in mine.iter_rows(named=True)}
    best, best_score, best_words = None, 0, ""
    for first in _candidates(list(by_block), blocks_shown):
        rows = [by_block[block] for block in range(first, first + blocks_shown) if block in by_block]
        dma_ns, runnable_ns, blocked_ns, ran_ns = (
            sum(row[column] for row in rows)
            for column in ("dma_wait_ns", "runnable_ns", "blocked_ns", "cpu_ns")
        )
        ran_ns += sum(row["syscall_ns"] for row in rows)
        score = 4 * (dma_ns + runnable_ns) + min(blocked_ns, ran_ns)
        if score > best_score:
            best, best_score = first, score
            best_words = _waits(thread, dma_ns, blocked_ns, runnable_ns, ran_ns)
    return best, best_words


def _waits(thread: str, dma_ns: int, blocked_ns: int, runnable_ns: int, ran_ns: int) -> str:
    parts = {"DMA wait": dma_ns, "blocked": blocked_ns, "waiting for a CPU": runnable_ns, "on a CPU": ran_ns}
    told = ", ".join(f"{taken_ns / 1e6:.1f} ms {words}" for words, taken_ns in parts.items() if taken_ns)
    return f"where {thread} waited most while it had work ({told})"


def _most_change(blocks: pl.DataFrame, blocks_shown: int) -> tuple[int, str]:
    totals = blocks.group_by("slice").agg((pl.col("cpu_ns") + pl.col("syscall_ns")).sum().alias("ran_ns"))
    ran_ns = dict(totals.select("slice", "ran_ns").iter_rows())
    best, best_score = min(ran_ns), (0, 0)
    for first in _candidates(list(ran_ns), blocks_shown):
        inside = [ran_ns.get(block, 0) for block in range(first, first + blocks_shown)]
        change_ns = sum(abs(later - earlier) for earlier, later in itertools.pairwise(inside))
        if (change_ns, sum(inside)) > best_score:
            best, best_score = first, (change_ns, sum(inside))
    why = "CPU time changed most" if best_score[0] else "most CPU time was spent"
    return best, f"where {why} (no waiting of the busiest thread was captured)"


def _candidates(blocks: list[int], blocks_shown: int) -> list[int]:
    """Return, in order, the windows between the first and last block that touch one with time in it."""
    last = max(max(blocks, default=0) - blocks_shown + 1, min(blocks, default=0))
    starts = {block - back for block in blocks for back in range(blocks_shown)}
    return sorted(start for start in starts if min(blocks) <= start <= last)
