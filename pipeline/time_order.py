"""Do the times of a source go forward? Tells what breaks the order: other CPUs, a second recording, or no clock at all.

0.000000 0.003690 0.000018 0.003979    perf script --deltatime: time since the event before; no point in time
0.000000 0.003690 0.003708 0.007687    perf script --reltime: a clock of this file alone
840.099  840.405  |  12.100  12.400    two recordings in one file: nothing says how their clocks relate
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import polars as pl

Kind = Literal["untimed", "ordered", "unordered", "sessions", "deltas"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)  # the worst for placing events last

# our choice: perf sorts what it prints within each of its rounds, and no later than that was seen in 60 files
_FAR_NS: Final = 1_000_000_000
_LOOK_AHEAD: Final = 8  # rows after a step back that must go on from there
_MOST_SESSIONS: Final = 100
# deltas are as often smaller than the one before as they are larger; perf's own order is broken once in a thousand
_DELTA_SHARE: Final = 10  # one step back in so many events, where the first time is 0
_CUT_DELTA_SHARE: Final = 4  # the same, where the beginning is cut off
_MANY_ROWS: Final = 20


@dataclass(frozen=True, slots=True)
class Session:
    """The rows of one recording, as they stand in the file."""

    first_row: int
    rows: int
    line: int | None = None  # where it begins, 1-based, where that is known


@dataclass(frozen=True, slots=True)
class TimeOrder:
    """How the times of a source follow each other."""

    kind: Kind
    is_relative: bool = False  # they count from 0 at the first event
    steps_back: int = 0  # events earlier than the one before them
    steps_back_on_a_cpu: int = 0  # events earlier than the one before on their own CPU
    sessions: tuple[Session, ...] = ()
    words: str = ""  # what it is, for people; '' where all is well


UNTIMED: Final = TimeOrder("untimed")


def judge(
    times: pl.Series,
    cpus: pl.Series | None = None,
    tids: pl.Series | None = None,
    *,
    starts: Sequence[int] = (),
    line_of: Mapping[int, int] | None = None,
) -> TimeOrder:
    """Judge the times (ns) of one source in the order of its file.

    cpus and tids: columns of the same rows; where no CPU is known, threads stand for CPUs. starts: rows before which
    the file itself says that another recording begins. line_of: the lines of rows that may begin one.
    """
    events = pl.DataFrame({"at": times}).with_row_index("row").cast({"row": pl.Int64})
    has_cpus = cpus is not None and cpus.null_count() < len(cpus)
    lanes = cpus if has_cpus else tids
    events = events.with_columns(lane=pl.lit(None, pl.Int64) if lanes is None else lanes.cast(pl.Int64))
    events = events.drop_nulls("at")
    if events.is_empty():
        return UNTIMED
    at = events["at"]
    steps_back = int((at.diff() < 0).sum())
    on_a_cpu = int((events.select(pl.col("at").diff().over("lane"))["at"] < 0).sum()) if steps_back else 0
    is_relative = at[0] == 0
    if _are_deltas(at, steps_back, on_a_cpu):
        words = "its times are differences between events, as perf script --deltatime prints them"
        return TimeOrder("deltas", is_relative, steps_back, on_a_cpu, words=words)
    rows = events["row"]
    begins = {int(rows.search_sorted(start)) for start in starts}
    if steps_back * _DELTA_SHARE <= max(len(at), _DELTA_SHARE):
        begins |= _returns(events, has_cpus=has_cpus)
    begins = {0} | {begin for begin in begins if 0 < begin < len(at)}
    if len(begins) > 1:
        sessions = _sessions([int(rows[begin]) for begin in sorted(begins)], len(times), line_of or {})
        words = f"it holds {len(sessions)} recordings one behind the other"
        return TimeOrder("sessions", is_relative, steps_back, on_a_cpu, sessions, words)
    if not steps_back:
        return TimeOrder("ordered", is_relative)
    words = f"{steps_back} of {len(at)} events are earlier than the one before them"
    return TimeOrder("unordered", is_relative, steps_back, on_a_cpu, words=words)


def _are_deltas(at: pl.Series, steps_back: int, steps_back_on_a_cpu: int) -> bool:
    """Return whether times are those between events."""
    if at[0] == 0:
        is_often = steps_back * _DELTA_SHARE >= len(at) - 1
        # in a few rows, back to 0 is rather a second recording of --reltime
        restarts = int(((at.diff() < 0) & (at == 0)).sum())
        return steps_back > 0 and is_often and (steps_back > restarts or len(at) > _MANY_ROWS)
    if len(at) < _MANY_ROWS or steps_back * _CUT_DELTA_SHARE < len(at):
        return False
    least, most = int(at.min() or 0), int(at.max() or 0)  # type: ignore[arg-type]
    steps = at.diff()
    ups_ns = int(steps.filter(steps > 0).sum())
    # they lead nowhere, also on one CPU, and come close to 0, which no clock of a host does
    return (
        (most - least) * _CUT_DELTA_SHARE < ups_ns
        and least * _DELTA_SHARE < most
        and steps_back_on_a_cpu * _CUT_DELTA_SHARE >= steps_back
    )


def _returns(events: pl.DataFrame, *, has_cpus: bool) -> set[int]:
    """Return the places at which time goes back far, or to the very beginning, and goes on from there."""
    found: set[int] = set()
    begin = 0
    while len(found) < _MOST_SESSIONS:
        part = events[begin:]
        at, highest = part["at"], part["at"].cum_max().shift(1)
        is_far = (highest - at >= _FAR_NS) | (at <= at[0])
        places = (is_far & (at.diff() < 0)).fill_null(value=False).arg_true()
        place = next((int(one) for one in places if _goes_on(part, int(one), has_cpus=has_cpus)), None)
        if place is None:
            return found
        begin += place
        found.add(begin)
    return found


def _goes_on(part: pl.DataFrame, place: int, *, has_cpus: bool) -> bool:
    """Return whether what follows a step back stays there: a late event alone does not."""
    at = part["at"]
    highest = int(at[:place].max())  # type: ignore[arg-type]
    ahead = at[place : place + _LOOK_AHEAD]
    back_ns = highest - int(at[place])
    if back_ns >= _FAR_NS:
        below = int((ahead < highest - back_ns // 2).sum())
        goes_on = len(ahead) > 1 and 2 * below >= len(ahead)
    else:
        goes_on = min(place, len(ahead)) >= _LOOK_AHEAD and bool((ahead <= highest).all())
    if not goes_on:
        return False
    lanes = part["lane"]
    if not has_cpus or not set(lanes[place : place + _LOOK_AHEAD]).isdisjoint(lanes[:place].unique()):
        return True
    return (
        int(at[place]) < int(at[0]) - _FAR_NS
    )  # else CPU after CPU: one recording, printed in another order


def _sessions(first_rows: list[int], rows: int, line_of: Mapping[int, int]) -> tuple[Session, ...]:
    ends = [*first_rows[1:], rows]
    first_rows[0] = 0  # rows without a time belong to what follows them
    return tuple(
        Session(first, end - first, line_of.get(first)) for first, end in zip(first_rows, ends, strict=True)
    )
