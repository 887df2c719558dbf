"""From an input to intervals: CPU time, waits and interrupts of a capture on its own clock, ready to cut or to draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from analyzers import flame_graph
from collectors.source import STDIN_NAME
from flameslice.inputs import STDIN, read_input
from pipeline import cpu_time, intervals, schema, slices
from pipeline.errors import InputError
from pipeline.filters import SampleFilter
from pipeline.losses import Loss, LossLedger
from pipeline.table_filter import of_origin

if TYPE_CHECKING:
    from analyzers.flame_graph import FlameGraph
    from flameslice.commands.options import Asked
    from pipeline.tables import Tables
    from pipeline.time_order import TimeOrder


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
    argument: str,
    asked: Asked,
    *,
    forced_format: str | None = None,
    kinds: frozenset[str] | None = None,
    event: str | None = None,
    width_ns: int = slices.DEFAULT_WIDTH_NS,
    data: str | None = None,
) -> Timeline:
    """Read an input and return its intervals; kinds None means every kind that the capture holds."""
    tables = read_input(argument, forced_format=forced_format, data=data, sources=asked.sources)
    events = tables.perf_events
    timed = events.filter(pl.col("raw_time").is_not_null())
    ledger = LossLedger()
    ledger.merge(tables.losses)
    if timed.height < events.height:
        ledger.add("no_time", events.height - timed.height)
    if timed.is_empty():
        problem = "the samples have no times" if events.height else "no samples to place"
        remedy = (
            "print them with perf script -F +time; flameslice flamegraph needs none" if events.height else ""
        )
        raise InputError(problem, remedy, path=argument)
    bounds = timed.select(
        pl.col("raw_time").min().alias("first"), pl.col("raw_time").max().alias("last")
    ).row(0)
    _refuse_what_has_no_place(tables.order, STDIN_NAME if argument == STDIN else argument)
    keep = asked.resolve(bounds[0], bounds[1], width_ns)
    paired, losses, captured = intervals.build(timed, kinds=kinds, arch=_arch(tables))
    ledger.merge(losses)
    notes = list(tables.notes)
    parts = [paired]
    cpu_event = None
    if kinds is None or "cpu" in kinds:
        cpu_event, note = _choose_cpu_event(timed, event)
        if note:
            notes.append(note)
        if cpu_event is not None:
            parts.append(cpu_time.intervals(timed, cpu_event))
            captured |= {"cpu"}
    return Timeline(
        intervals=of_origin(pl.concat(parts).lazy(), keep).collect(),
        frames=tables.frames,
        stacks=tables.stacks,
        captured=captured,
        losses=ledger.as_tuple(),
        rows=tables.rows,
        clock=tables.clock,
        first_ns=bounds[0],
        last_ns=bounds[1],
        keep=keep,
        filters=asked.words(),
        cpu_event=cpu_event,
        notes=tuple(notes),
        instants=timed.filter(pl.col("event") == cpu_event) if cpu_event else timed.clear(),
    )


def _refuse_what_has_no_place(order: TimeOrder, path: str) -> None:
    """Raise InputError where the times of a source are not those of one clock."""
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
