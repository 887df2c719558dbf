"""Which waits in a flame chart took longest, and what was the thread doing when it had to wait?"""

from __future__ import annotations

from dataclasses import dataclass

from analyzers.flame_chart import FlameChart, Lane

_CALLERS_TOLD = 2
_LEAST_SLICES = 2  # a wait inside one slice is no longer than much else there


@dataclass(frozen=True, slots=True)
class Wait:
    """Adjacent slices that a thread mostly spent in one wait; names are surrogate-escaped text."""

    lane: Lane
    first_slice: int
    slices: int
    name: str  # as the chart shows it: [blocked in futex]
    callers: tuple[str, ...]  # the innermost frames outside the kernel, the caller first


def longest(chart: FlameChart, count: int = 3) -> list[Wait]:
    """Return the longest waits shown, the longest first; of equal ones the earliest lane and slice."""
    waits = [wait for lane in chart.lanes for wait in _of_lane(chart, lane)]
    waits.sort(key=lambda wait: -wait.slices)
    return waits[:count]


def _of_lane(chart: FlameChart, lane: Lane) -> list[Wait]:
    cells = lane.cells
    waits = []
    for at, kind in enumerate(cells.kind):
        first = cells.first_slice[at]
        is_wait = kind == "state" and lane.shares.foremost(first - chart.first_slice) not in (
            "cpu",
            "syscall",
        )
        if is_wait and cells.slices[at] >= _LEAST_SLICES:
            name = chart.names[cells.name[at]]
            waits.append(Wait(lane, first, cells.slices[at], name, _callers(chart, lane, first)))
    return sorted(waits, key=lambda wait: wait.first_slice)


def _callers(chart: FlameChart, lane: Lane, slice_number: int) -> tuple[str, ...]:
    cells = lane.cells
    outside_kernel = [
        chart.names[name]
        for first, many, name, kind in zip(
            cells.first_slice, cells.slices, cells.name, cells.kind, strict=True
        )
        if first <= slice_number < first + many and kind not in ("kernel", "state")
    ]
    return tuple(outside_kernel[-_CALLERS_TOLD:])
