"""From an input to intervals: CPU time, waits and interrupts of a capture on its own clock, ready to cut or to draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from analyzers import flame_graph
from collectors import ftrace_clocks
from flameslice import aligned
from flameslice.commands.clock_options import NOTHING_SAID, ClockWords
from pipeline import cpu_time, intervals, schema, slices
from pipeline.errors import InputError
from pipeline.filters import SampleFilter
from pipeline.losses import Loss, LossLedger
from pipeline.table_filter import of_origin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analyzers.flame_graph import FlameGraph
    from flameslice.aligned import Part
    from flameslice.commands.options import Asked
    from pipeline.tables import Tables


# functions that only one architecture's kernel has
_ARCH_FUNCTIONS = {
    "x86_64": r"^(?:do_syscall_64|entry_SYSCALL_64|__x64_sys_)",
    "aarch64": r"^(?:el0_svc|__arm64_sys_)",
}


@dataclass(frozen=True, slots=True)
class Timeline:
    """Intervals of a capture after the filters; `captured` names the kinds that the capture can answer for."""

    intervals: pl.DataFrame  # one row per interval, INTERVALS schema
    frames: pl.DataFrame
    stacks: pl.DataFrame
    captured: frozenset[str]
    losses: tuple[Loss, ...]
    rows: int
    clock: str
    first_ns: int
    last_ns: int
    keep: SampleFilter
    filters: tuple[str, ...]
    cpu_event: str | None
    notes: tuple[str, ...]
    instants: pl.DataFrame  # the samples that CPU time comes from, PERF_EVENTS schema

    def subtitle(self) -> str:
        """Return in words what was read, filtered and lost."""
        told = [f"CPU time from {self.cpu_event}" if self.cpu_event else "no CPU samples"]
        told += [*self.filters, f"{self.clock} clock"]
        told += [loss.describe() for loss in self.losses if loss.severity != "info"]
        return " · ".join(told)

    def flame_graph(self, kind: str, *, title: str) -> FlameGraph:
        """Return the flame graph of one kind of time; raises InputError where the capture cannot answer for it."""
        if kind not in self.captured:
            raise InputError(f"{kind} was not captured", "record with: flameslice record --preset latency")
        return flame_graph.from_intervals(
            self.clipped(),
            self.frames,
            self.stacks,
            kind=kind,
            title=title,
            filters=self.filters,
            clock=self.clock,
            losses=self.losses,
            notes=self.notes,
        )

    def clipped(self) -> pl.DataFrame:
        """Return the intervals cut to the range that was asked for."""
        table = self.intervals
        if self.keep.from_ns is not None:
            table = table.filter(pl.col("raw_end") > self.keep.from_ns).with_columns(
                pl.col("raw_start").clip(lower_bound=self.keep.from_ns)
            )
        if self.keep.to_ns is not None:
            table = table.filter(pl.col("raw_start") < self.keep.to_ns).with_columns(
                pl.col("raw_end").clip(upper_bound=self.keep.to_ns)
            )
        return table

    def cut(self, width_ns: int) -> pl.DataFrame:
        """Return the slices of the intervals, with the stacks' folded text: the SLICES table."""
        table = slices.cut(
            self.intervals, width_ns=width_ns, from_ns=self.keep.from_ns, to_ns=self.keep.to_ns
        )
        texts = flame_graph.stack_texts(self.frames, self.stacks, table["stack_id"].unique())
        return (
            table.drop("stack", strict=False)
            .join(texts, on="stack_id", how="left")
            .select(schema.SLICES.names())
        )


def load(
    arguments: Sequence[str],
    asked: Asked,
    *,
    words: ClockWords = NOTHING_SAID,
    forced_format: str | None = None,
    kinds: frozenset[str] | None = None,
    event: str | None = None,
    width_ns: int = slices.DEFAULT_WIDTH_NS,
    data: str | None = None,
) -> Timeline:
    """Read inputs and return their intervals on one timeline; kinds None means every kind that they hold."""
    parts = aligned.parts_of(arguments, asked, words, forced_format=forced_format, data=data)
    ledger = LossLedger()
    for part in parts:
        ledger.merge(part.tables.losses)
        _refuse_what_has_no_place(part)
    all_tables, alignment = aligned.on_timeline(parts, words, width_ns=width_ns)
    timed = [tables.perf_events.filter(pl.col("raw_time").is_not_null()) for tables in all_tables]
    untimed = sum(tables.perf_events.height for tables in all_tables) - sum(events.height for events in timed)
    if untimed:
        ledger.add("no_time", untimed)
    bounds = pl.concat(timed).select(pl.min("raw_time").alias("a"), pl.max("raw_time").alias("b")).row(0)
    wall = alignment.wall() if asked.names_wall_time else None
    keep = asked.resolve(bounds[0], bounds[1], width_ns, wall)
    notes = [note for tables in all_tables for note in tables.notes]
    if len(parts) > 1 or words.is_given:
        of_clocks = {note for tables in all_tables for note in ftrace_clocks.notes_of(tables.meta)}
        notes = [note for note in notes if note not in of_clocks] + aligned.notes_of(alignment)
    built = _build(all_tables, timed, kinds, event, ledger, notes, [part.clocks.source for part in parts])
    frames = pl.concat([tables.frames for tables in all_tables])
    stacks = pl.concat([tables.stacks for tables in all_tables])
    return Timeline(
        intervals=of_origin(built.intervals.lazy(), keep).collect(),
        frames=frames.unique("frame_id", maintain_order=True) if len(parts) > 1 else frames,
        stacks=stacks.unique("stack_id", maintain_order=True) if len(parts) > 1 else stacks,
        captured=built.captured,
        losses=ledger.as_tuple(),
        rows=sum(tables.rows for tables in all_tables),
        clock=all_tables[0].clock,
        first_ns=bounds[0],
        last_ns=bounds[1],
        keep=keep,
        filters=asked.words(),
        cpu_event=built.cpu_event,
        notes=tuple(dict.fromkeys(notes)),
        instants=built.instants,
    )


@dataclass(frozen=True, slots=True)
class _Built:
    """The intervals of all sources, and where CPU time comes from."""

    intervals: pl.DataFrame
    captured: frozenset[str]
    cpu_event: str | None
    instants: pl.DataFrame


def _build(
    all_tables: Sequence[Tables],
    timed: Sequence[pl.DataFrame],
    kinds: frozenset[str] | None,
    event: str | None,
    ledger: LossLedger,
    notes: list[str],
    names: Sequence[str],
) -> _Built:
    """Build the intervals source by source; what two sources of a host both saw counts once, by the first of them."""
    found: list[pl.DataFrame] = []
    instants: list[pl.DataFrame] = []
    captured: frozenset[str] = frozenset()
    cpu_events: list[str] = []
    for tables, events, name in zip(all_tables, timed, names, strict=True):
        paired, losses, seen = intervals.build(events, kinds=kinds, arch=_arch(tables))
        ledger.merge(losses)
        captured |= seen
        has_asked = event is None or len(timed) == 1 or (events["event"] == event).any()
        if (kinds is None or "cpu" in kinds) and has_asked:
            cpu_event, note = _choose_cpu_event(events, event)
            notes += [note] if note else []
            if cpu_event is not None:
                paired = pl.concat([paired, cpu_time.intervals(events, cpu_event)])
                captured |= {"cpu"}
                cpu_events.append(cpu_event)
                instants.append(events.filter(pl.col("event") == cpu_event))
        fresh = _not_seen_before(paired, found)
        twice = paired.height - fresh.height
        if twice:
            notes.append(
                f"{twice} intervals of {name} are left out: sources before it show the same threads' time"
            )
        found.append(fresh)
    return _Built(
        pl.concat(found),
        captured,
        ", ".join(dict.fromkeys(cpu_events)) or None,
        pl.concat(instants) if instants else timed[0].clear(),
    )


# kinds that belong to a CPU or a device, whichever thread was there
_SHARED_KINDS = ("irq", "softirq", "block_io")


def _not_seen_before(table: pl.DataFrame, earlier: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return the intervals of threads (for devices: of hosts) that no earlier source shows in that kind."""
    if not earlier:
        return table
    thread = pl.when(pl.col("kind").is_in(_SHARED_KINDS)).then(None).otherwise("tid")
    keys = ["host", "kind", "thread"]
    shown = pl.concat(earlier).select(pl.col("host").fill_null(""), "kind", thread=thread).unique()
    own = table.with_columns(pl.col("host").fill_null(""), thread=thread)
    return own.join(shown, on=keys, how="anti", nulls_equal=True).select(table.columns)


def _refuse_what_has_no_place(part: Part) -> None:
    """Raise InputError where a source has no times, or they are not those of one clock."""
    events, path, order = part.tables.perf_events, part.clocks.source, part.tables.order
    if events["raw_time"].null_count() == events.height:
        problem = "the samples have no times" if events.height else "no samples to place"
        remedy = "print them with perf script -F +time; flameslice flamegraph needs none"
        if ftrace_clocks.META in part.tables.meta:
            remedy = "record with a trace_clock that counts time; flameslice flamegraph draws it as it is"
        raise InputError(problem, remedy if events.height else "", path=path)
    match order.kind:
        case "deltas":
            remedy = "print it again without --deltatime; flameslice flamegraph draws it as it is"
            raise InputError(order.words, remedy, path=path)
        case "sessions":
            second = order.sessions[1]
            line = second.line
            where = "here" if line else f"after {second.first_row} events"
            how = f" (head -n {line - 1}, tail -n +{line})" if line else ""
            raise InputError(
                f"a second recording begins {where}, and nothing relates its times to those of the first",
                f"split the file{how} and give the parts one by one; flameslice flamegraph draws it as it is",
                path=path,
                line=line,
            )


def _arch(tables: Tables) -> str:
    """Return the architecture that system call numbers belong to: by the header, or by a kernel function seen."""
    named = tables.meta.get("arch", "")
    if named:
        return named
    symbols = tables.frames["symbol"]
    for arch, pattern in _ARCH_FUNCTIONS.items():
        if symbols.str.contains(pattern).any():
            return arch
    return ""


def _choose_cpu_event(events: pl.DataFrame, asked: str | None) -> tuple[str | None, str]:
    """Return the event that CPU time comes from, and a note where it was not asked for and others exist."""
    counts = {
        name: count
        for name, count in events.group_by("event", maintain_order=True).len().iter_rows()
        if not name.startswith("PERF_RECORD_")
    }
    default = next(iter(counts), None)
    chosen = cpu_time.choose(counts, default, asked)
    if chosen is None or asked is not None or len(counts) == 1:
        return chosen, ""
    return chosen, f"CPU time comes from {chosen} ({counts[chosen]} samples): choose with --event NAME"
