"""Several inputs, or a capture of several clocks, on one timeline: their tables, with times in its ns."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from collectors.source import STDIN_NAME
from flameslice import clock_sources
from flameslice.commands.clock_options import ClockWords
from flameslice.commands.options import Asked
from flameslice.inputs import STDIN, read_input, repeatable
from pipeline import align, event_anchors
from pipeline.clock_domains import OWN_CLOCKS, Snapshot, SourceClocks
from pipeline.errors import FlamesliceError, InputError, UsageError

if TYPE_CHECKING:
    from flameslice.stored import StoredCaptureReader
    from pipeline.align import Alignment
    from pipeline.event_anchors import Switches
    from pipeline.tables import Tables


@dataclass(frozen=True, slots=True)
class Part:
    """One source: its tables, and what it says of its clock."""

    tables: Tables
    clocks: SourceClocks


def parts_of(
    arguments: Sequence[str], asked: Asked, words: ClockWords, *, forced_format: str | None, data: str | None
) -> list[Part]:
    """Return the sources of the inputs, each with what it says of its clock where that matters."""
    if asked.sources and len(arguments) > 1:
        raise UsageError("--source chooses among the files of one stored capture", "give that capture alone")
    if len(arguments) == 1 and not words.is_given and not asked.names_wall_time:
        argument = arguments[0]
        kept = _stored(argument, data, asked.sources)
        if kept is None:  # its clock is the timeline, whatever else it says
            tables = read_input(argument, forced_format=forced_format, data=data, sources=asked.sources)
            if tables.clock != "tsc":
                return [Part(tables, SourceClocks(_name(argument), tables.clock or "perf"))]
    return [part for argument in arguments for part in _parts_of(argument, asked, forced_format, data)]


def _parts_of(argument: str, asked: Asked, forced_format: str | None, data: str | None) -> list[Part]:
    """Return one part of a file, and of a stored capture one per clock."""
    kept = _stored(argument, data, asked.sources)
    if kept is not None:
        clocks = clock_sources.of_stored(kept)
        if not kept.needs_alignment():
            tables = kept.tables()
            return [
                Part(
                    tables,
                    dataclasses.replace(
                        clock_sources.spanned(clocks[0], tables.perf_events["raw_time"]), source=argument
                    ),
                )
            ]
        parts = [kept.of_sources([name]).tables() for name in kept.timed_sources()]
        return [Part(*pair) for pair in zip(parts, clocks, strict=True)]
    with repeatable(argument) as path:
        tables = read_input(path, forced_format=forced_format)
        return [Part(tables, clock_sources.of_path(path, tables=tables, name=_name(argument)))]


def _stored(argument: str, data: str | None, sources: tuple[str, ...]) -> StoredCaptureReader | None:
    if argument == STDIN or os.path.lexists(argument):
        return None
    from flameslice import stored

    return stored.find(argument, data, sources)


def _name(argument: str) -> str:
    return STDIN_NAME if argument == STDIN else argument


def on_timeline(parts: Sequence[Part], words: ClockWords, *, width_ns: int) -> tuple[list[Tables], Alignment]:
    """Return the tables with times on one timeline; raises InputError where a source has no place on it.

    An event whose time would leave 64 bits there has no time, and is counted as such by who cuts.
    """
    clocks = [part.clocks for part in parts]
    alignment = related(clocks, [part.tables.perf_events for part in parts], words, width_ns=width_ns)
    if len(parts) > 1 and any(not part.clocks.clock for part in parts):
        untimed = next(part for part in parts if not part.clocks.clock)
        raise InputError("it holds no times to place", "leave it out", path=untimed.clocks.source)
    alignment.check(width_ns, is_accepted=words.accept_uncertainty)
    if len(parts) == 1 and alignment.sources[0].path == () and not alignment.sources[0].shift_ns:
        return [parts[0].tables], alignment
    return [
        _moved(part, placed, alignment) for part, placed in zip(parts, alignment.sources, strict=True)
    ], alignment


def seen_by(
    arguments: Sequence[str], *, forced_format: str | None, data: str | None
) -> tuple[list[SourceClocks], list[pl.DataFrame | None]]:
    """Return what the sources of the inputs say of clocks, and the events of each, None where they are not read."""
    clocks: list[SourceClocks] = []
    events: list[pl.DataFrame | None] = []
    for argument in arguments:
        parts: list[Part] = []
        if _stored(argument, data, ()) is not None or clock_sources.holds_events(argument, forced_format):
            # a perf.data that the installed perf cannot read still says what it says of clocks
            with contextlib.suppress(FlamesliceError):
                parts = _parts_of(argument, Asked(), forced_format, data)
        clocks += [part.clocks for part in parts]
        events += [part.tables.perf_events for part in parts]
        if not parts:
            clocks.append(clock_sources.of_path(argument, forced_format=forced_format))
            events.append(None)
        others = clock_sources.beside_samples(argument)
        clocks += others
        events += [None] * len(others)
    return clocks, events


def related(
    sources: Sequence[SourceClocks],
    events: Sequence[pl.DataFrame | None],
    words: ClockWords,
    *,
    width_ns: int,
) -> Alignment:
    """Return how sources lie; where what they say of clocks does not do, with anchors found in their events."""
    told = words.told([source.source for source in sources])
    alignment = align.align(sources, told)
    is_certain = all(one.is_placed for one in alignment.sources) and alignment.uncertainty_ns <= width_ns
    if is_certain and not any(one.source.is_assumed for one in alignment.sources):
        return alignment
    seen = [
        event_anchors.Switches(placed.source.source, placed.domain, own)
        for own, placed in zip(events, alignment.sources, strict=True)
        if own is not None and placed.source.clock not in ("", *OWN_CLOCKS)
    ]
    found: list[Snapshot] = []
    for one, other in itertools.combinations(seen, 2):
        if one.domain == other.domain:
            _refuse_two_clocks(one, other)
        elif one.domain.host == other.domain.host and not is_certain:
            found += event_anchors.same_switches(one, other)
    return align.align(sources, told, extra=found) if found else alignment


def _refuse_two_clocks(one: Switches, other: Switches) -> None:
    """Raise InputError where two sources that were taken to be on one clock show that they are not."""
    apart_ns = event_anchors.apart(one, other)
    if apart_ns is not None and abs(apart_ns) > 2 * event_anchors.SAME_EVENT_NS:
        raise InputError(
            f"it saw the same context switches as {one.source}, but {abs(apart_ns)} ns "
            f"{'later' if apart_ns > 0 else 'earlier'}: they are not on one clock",
            f"say which stamped each: --clock {other.source}=monotonic",
            path=other.source,
        )


def _moved(part: Part, placed: align.Placed, alignment: Alignment) -> Tables:
    events = part.tables.perf_events
    times = placed.to_timeline(events["raw_time"]).values
    host = placed.domain.host if placed.domain.clock not in OWN_CLOCKS else ""
    events = events.with_columns(
        raw_time=times,
        clock=pl.lit(alignment.timeline.clock),
        host=pl.when(pl.col("host").fill_null("") == "").then(pl.lit(host)).otherwise("host"),
    )
    return dataclasses.replace(part.tables, perf_events=events, clock=alignment.timeline.clock)


def notes_of(alignment: Alignment) -> list[str]:
    """Return what a reader of the result must know: which clock, what was assumed, how sure it is."""
    told = [f"on {alignment.timeline}, clock graph {alignment.digest}"]
    if alignment.uncertainty_ns:
        told[0] += f", +-{alignment.uncertainty_ns} ns between sources"
    return [*told, *(f"assumed: {words}" for words in alignment.assumptions), *alignment.warnings]
