"""Where did the weight go? A call tree with totals, from a fold or from intervals, and what to know of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from analyzers import spelling
from pipeline.errors import InputError, UsageError
from pipeline.event_names import TIME_EVENTS, base_event
from pipeline.filters import spelled_comm
from pipeline.folds import Fold
from pipeline.losses import Loss
from pipeline.stacks import Frame, FrameKind
from pipeline.text import folded_name, unescape

if TYPE_CHECKING:
    import polars as pl

NodeKind = FrameKind | Literal["process"]
Weight = Literal["period", "samples", "time"]
Path = tuple[tuple[str, NodeKind], ...]

NO_PROCESS = "[unknown]"


@dataclass(frozen=True, slots=True)
class CallTree:
    """A call tree as columns; node 0 is the root ('all'), parents stand before children, siblings sorted by name.

    names are surrogate-escaped text, spelled as folded output spells them; weights are integers in the graph's unit.
    """

    names: list[str]
    kinds: list[NodeKind]
    parents: list[int]
    self_weights: list[int]
    totals: list[int]


@dataclass(frozen=True, slots=True)
class FlameGraph:
    """A call tree, and what was asked, counted and lost to get it."""

    tree: CallTree
    title: str
    event: str  # the event, or the kind of interval (off_cpu, dma_wait, block_io)
    weight: Weight
    unit: str  # 'ns' for times, 'samples', or the event's own ('cycles', 'page-faults')
    samples: int
    filters: tuple[str, ...] = ()  # in words: 'pid 12', 'from 1.5s to 2s'
    clock: str = ""  # in words: 'perf clock, not aligned'; '' where the source has no times
    losses: tuple[Loss, ...] = field(default=())
    unknown_share: float = 0.0  # share of the weight whose leaf has no symbol, 0 to 1
    notes: tuple[str, ...] = ()  # anything else that a reader of the picture must know


def choose_events(fold: Fold, asked: str | None) -> list[str]:
    """Return the events to draw: the one asked for, all of them, or the event of the first sample in the file.

    Raises UsageError where the file has no such event, InputError where it has no samples at all.
    """
    if not fold.events:
        raise InputError("no samples to draw", _lost_words(fold.losses.as_tuple()))
    if asked == "all":
        return list(fold.events)
    if asked is None:
        return [next(iter(fold.events))]
    if asked not in fold.events:
        known = ", ".join(f"{name} ({totals.samples})" for name, totals in fold.events.items())
        raise UsageError(f"no event {asked!r} in this capture", f"it has {known}")
    return [asked]


def _lost_words(losses: tuple[Loss, ...]) -> str:
    told = "; ".join(loss.describe() for loss in losses if loss.severity != "info")
    return f"the file has only {told}" if told else "the file holds no samples"


def from_fold(
    fold: Fold,
    *,
    event: str | None = None,
    weight: Literal["period", "samples"] = "period",
    title: str = "",
    filters: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
) -> FlameGraph:
    """Return the flame graph of a fold's events; weights are periods where the file has them and samples elsewhere.

    Raises InputError where nothing is left to draw.
    """
    from analyzers import fold_tree

    events = choose_events(fold, event)
    totals = [fold.events[name] for name in events]
    by_period = weight == "period" and any(total.has_period for total in totals)
    chosen = frozenset(events)
    weights: list[tuple[str | None, int, int]] = []
    unknown = total_weight = 0
    is_unknown = [False, *(fold.trie.frames[frame].symbol == "[unknown]" for frame in fold.trie.frame_of[1:])]
    for (name, comm, node), (samples, period) in fold.weights.items():
        if name not in chosen:
            continue
        amount = period if by_period else samples
        weights.append((comm, node, amount))
        total_weight += amount
        if is_unknown[node]:
            unknown += amount
    if total_weight <= 0:
        what = (
            "the periods of all samples are 0: try --weight samples"
            if weights and by_period
            else "no samples are left"
        )
        raise InputError("nothing to draw", what)
    return FlameGraph(
        tree=fold_tree.build(fold, weights),
        title=title,
        event=events[0] if len(events) == 1 else "all events",
        weight="period" if by_period else "samples",
        unit=_unit(fold, events, by_period),
        samples=sum(total.samples for total in totals),
        filters=filters,
        clock=f"{fold.clock} clock" if fold.clock else "",
        losses=fold.losses.as_tuple(),
        unknown_share=unknown / total_weight,
        notes=(*fold.notes, *notes),
    )


def _unit(fold: Fold, events: list[str], by_period: bool) -> str:
    if not by_period:
        return "samples"
    if fold.unit:
        return fold.unit
    names = {base_event(event) for event in events}
    if names <= set(TIME_EVENTS):
        return "ns"
    return names.pop() if len(names) == 1 else "mixed units"


def _path(comm: str | None, frames: list[Frame]) -> Path:
    process = NO_PROCESS if comm is None else spelled_comm(comm)
    spell = spelling.speller(comm)
    return ((process, "process"), *((spell(frame), frame.kind) for frame in frames))


def from_intervals(
    intervals: pl.DataFrame,
    frames: pl.DataFrame,
    stacks: pl.DataFrame,
    *,
    kind: str,
    title: str = "",
    filters: tuple[str, ...] = (),
    clock: str = "",
    losses: tuple[Loss, ...] = (),
    notes: tuple[str, ...] = (),
) -> FlameGraph:
    """Return the flame graph of the time that intervals of one kind took, by the stack that they began in.

    Where an interval has a name (the device, blocked or runnable), it stands innermost. Raises InputError where no
    interval of that kind is left.
    """
    import polars as pl

    from analyzers import call_tree

    chosen = intervals.filter(pl.col("kind") == kind)
    summed = (
        chosen.with_columns(time_ns=pl.col("raw_end") - pl.col("raw_start"))
        .group_by("comm", "stack_id", "name", maintain_order=True)
        .agg(pl.col("time_ns").sum())
    )
    chains = _Chains(frames, stacks)
    paths: list[tuple[Path, int]] = []
    unknown = total = 0
    for comm, stack, name, time_ns in summed.iter_rows():
        path = _path(None if comm is None else unescape(comm), chains.of(stack))
        innermost: Path = () if name is None else ((folded_name(f"[{unescape(name)}]"), "kernel"),)
        paths.append((path + innermost, time_ns))
        total += time_ns
        if len(path) == 1 or path[-1][0] == "[unknown]":
            unknown += time_ns
    if total <= 0:
        raise InputError(f"no {kind} time to draw", "nothing of it is left after the filters")
    return FlameGraph(
        tree=call_tree.build(paths),
        title=title,
        event=kind,
        weight="time",
        unit="ns",
        samples=chosen.height,
        filters=filters,
        clock=f"{clock} clock" if clock else "",
        losses=losses,
        unknown_share=unknown / total,
        notes=notes,
    )


class _Chains:
    """Looks up the frames of a stack in the tables."""

    def __init__(self, frames: pl.DataFrame, stacks: pl.DataFrame) -> None:
        self._frames = {
            row["frame_id"]: Frame(unescape(row["symbol"]), unescape(row["dso"]), row["kind"])
            for row in frames.iter_rows(named=True)
        }
        self._stacks = {row[0]: (row[1], row[2]) for row in stacks.iter_rows()}

    def of(self, stack_id: int | None) -> list[Frame]:
        return list(self._inner_to_outer(stack_id or 0))[::-1]

    def _inner_to_outer(self, stack_id: int) -> Iterator[Frame]:
        while stack_id in self._stacks:
            stack_id, frame_id = self._stacks[stack_id]
            yield self._frames[frame_id]


def stack_texts(frames: pl.DataFrame, stacks: pl.DataFrame, wanted: pl.Series) -> pl.DataFrame:
    """Return one row per stack of wanted: stack_id and its folded text, the outermost first, without the process."""
    import polars as pl

    from pipeline.text import escape

    chains = _Chains(frames, stacks)
    ids = [stack for stack in wanted.to_list() if stack]
    texts = [escape(";".join(spelling.spell(frame) for frame in chains.of(stack))) for stack in ids]
    return pl.DataFrame({"stack_id": ids, "stack": texts}, schema={"stack_id": pl.UInt64, "stack": pl.String})
