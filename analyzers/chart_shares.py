"""How a thread's time was shared out over states, per slice: exact, and never more than the slice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict

import polars as pl

from pipeline import slices

if TYPE_CHECKING:
    from collections.abc import Sequence

State = Literal["dma_wait", "blocked", "runnable", "syscall", "cpu"]

# where time could belong to two of them, it belongs to the one that stands first
STATES: tuple[State, ...] = ("dma_wait", "blocked", "runnable", "syscall", "cpu")
KIND_OF_STATE: dict[State, str] = {
    "dma_wait": "dma_wait",
    "blocked": "off_cpu",
    "runnable": "off_cpu",
    "syscall": "syscall",
    "cpu": "cpu",
}


class _Range(TypedDict):
    width_ns: int
    from_ns: int | None
    to_ns: int | None


@dataclass(frozen=True, slots=True)
class Shares:
    """Time in ns in each state, per slice; what is missing from a slice's width was not captured."""

    dma_wait_ns: Sequence[int]
    blocked_ns: Sequence[int]
    runnable_ns: Sequence[int]
    syscall_ns: Sequence[int]
    cpu_ns: Sequence[int]

    def __len__(self) -> int:
        return len(self.cpu_ns)

    def of(self, state: State) -> Sequence[int]:
        """Return the time in one state, per slice."""
        columns = (self.dma_wait_ns, self.blocked_ns, self.runnable_ns, self.syscall_ns, self.cpu_ns)
        return columns[STATES.index(state)]

    def foremost(self, at: int) -> State | None:
        """Return the state that took most of a slice, of equal ones the first of STATES; None: no time."""
        taken_ns, _, state = max((self.of(state)[at], -rank, state) for rank, state in enumerate(STATES))
        return state if taken_ns else None


def table(intervals: pl.DataFrame, *, width_ns: int, from_ns: int | None, to_ns: int | None) -> pl.DataFrame:
    """Return one row per slice and thread with time in it: slice, tid, and for each state its `_ns`.

    Time that the scheduler saw a thread run is CPU time too, whether or not a sample fell into it.
    """
    kind = pl.col("kind")
    intervals = intervals.with_columns(kind=pl.when(kind == "running").then(pl.lit("cpu")).otherwise(kind))
    asked: _Range = {"width_ns": width_ns, "from_ns": from_ns, "to_ns": to_ns}
    not_blocked = (kind == "dma_wait") | ((kind == "off_cpu") & (pl.col("name") == "runnable"))
    runnable = slices.shares(intervals.filter(not_blocked), **asked)
    return (
        slices.shares(intervals, **asked)
        .join(runnable.select("slice", "tid", runnable_ns="off_cpu_ns"), on=["slice", "tid"], how="left")
        .with_columns(pl.col("runnable_ns").fill_null(0))
        .with_columns(blocked_ns=pl.col("off_cpu_ns") - pl.col("runnable_ns"))
        .select("slice", "tid", *(f"{state}_ns" for state in STATES))
        .sort("tid", "slice")
    )


def of_thread(shares: pl.DataFrame, tid: int, *, first_slice: int, count: int) -> Shares:
    """Return one thread's shares from such a table in count slices from first_slice on; gaps are 0."""
    mine = shares.filter(pl.col("tid") == tid)
    at = [number - first_slice for number in mine["slice"].to_list()]
    columns = []
    for state in STATES:
        column = [0] * count
        for place, taken_ns in zip(at, mine[f"{state}_ns"].to_list(), strict=True):
            if 0 <= place < count:
                column[place] = taken_ns
        columns.append(column)
    return Shares(*columns)
