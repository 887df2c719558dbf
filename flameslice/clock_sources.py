"""What the inputs of a question say of their clocks: files, capture directories, stored captures."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from collectors import clock_snapshots, detection, perf_data_clocks, source_clocks
from collectors.source import STDIN_NAME, Source
from flameslice.inputs import STDIN
from pipeline import capture as captures
from pipeline import capture_archive
from pipeline.capture import CaptureSource, Manifest
from pipeline.clock_domains import RELATIVE, Domain, Reading, Snapshot, SourceClocks
from pipeline.clock_snapshot_table import snapshots_of
from pipeline.errors import FlamesliceError
from pipeline.losses import LossLedger
from pipeline.text import shown

if TYPE_CHECKING:
    from flameslice.stored import StoredCaptureReader
    from pipeline.folds import Fold
    from pipeline.tables import Tables

CLOCKS_FORMAT = "clock_snapshots"
_EVENTS = ("perf_script", "ftrace", detection.PERF_DATA)  # formats whose events are read, one by one


def of_inputs(
    arguments: Sequence[str], *, forced_format: str | None = None, data: str | None = None
) -> list[SourceClocks]:
    """Return what each source of the inputs says of its clock; a text is read whole for its first and last time."""
    from flameslice import stored

    found: list[SourceClocks] = []
    for argument in arguments:
        is_path = argument == STDIN or os.path.lexists(argument)
        kept = None if is_path else stored.find(argument, data)
        if kept is not None:
            found += of_stored(kept)
        else:
            found += [of_path(argument, forced_format=forced_format), *beside_samples(argument)]
    return found


def holds_events(argument: str, forced_format: str | None = None) -> bool:
    """Return whether a file's events are read, and not its clock alone."""
    path = Path(argument)
    if argument != STDIN and captures.is_capture(path):
        with capture_archive.opened(path) as directory:
            return captures.sample_source(directory).format in _EVENTS
    with Source.open(argument) as source:
        return detection.detect_clocks(source, forced_format) in _EVENTS


def of_path(
    argument: str, *, tables: Tables | None = None, forced_format: str | None = None, name: str = ""
) -> SourceClocks:
    """Return what a file or capture directory says; tables: what was read of it already."""
    path = Path(argument)
    if argument == STDIN or not captures.is_capture(path):
        return source_clocks.of(
            argument, tables=tables, forced_format=forced_format, name=name or _shown(argument)
        )
    with capture_archive.opened(path) as directory:
        manifest = captures.read_manifest(directory)
        clocks = of_directory(directory, manifest, name or argument)
        if tables is not None:
            return spanned(clocks, tables.perf_events["raw_time"])
        best = captures.source_path(directory, captures.sample_source(directory))
        span = source_clocks.of(best)
    return dataclasses.replace(
        clocks,
        clock=clocks.clock or span.clock,
        first=span.first,
        last=span.last,
        notes=clocks.notes + span.notes,
    )


def beside_samples(argument: str) -> list[SourceClocks]:
    """Return what the other files of a capture directory say that have a clock: of py-spy, of GPU tools."""
    path = Path(argument)
    if argument == STDIN or not os.path.lexists(path) or not captures.is_capture(path):
        return []
    found: list[SourceClocks] = []
    with capture_archive.opened(path) as directory:
        manifest, best = captures.read_manifest(directory), captures.sample_source(directory)
        for source in manifest.sources:
            if source == best or source.format in _EVENTS or source.format not in source_clocks.READERS:
                continue
            name = f"{argument}/{shown(source.file)}"
            place = (manifest.host, manifest.boot_id)
            try:
                own = source_clocks.of(
                    captures.source_path(directory, source),
                    forced_format=source.format,
                    name=name,
                    host=place[0],
                    boot_id=place[1],
                )
            except FlamesliceError as error:
                own = SourceClocks(name, "", *place, notes=(str(error),))
            found.append(dataclasses.replace(own, snapshots=own.snapshots + _start_of(source, name, *place)))
    return found


def _start_of(source: CaptureSource, name: str, host: str, boot_id: str) -> tuple[Snapshot, ...]:
    """Return what ties the times of a file that count from its own start to its host, where the recorder wrote that."""
    if source.start_monotonic_ns <= 0:
        return ()
    start = Reading(
        Domain("monotonic", host, boot_id), source.start_monotonic_ns, max(source.start_uncertainty_ns, 0)
    )
    return (
        Snapshot((Reading(Domain(RELATIVE, name), 0), start), f"{captures.MANIFEST_FILE}: {source.file}"),
    )


def _shown(argument: str) -> str:
    return STDIN_NAME if argument == STDIN else argument


def spanned(clocks: SourceClocks, times: pl.Series) -> SourceClocks:
    """Return clocks with the first and last of the times that were read."""
    first, last = times.min(), times.max()
    if not isinstance(first, int) or not isinstance(last, int):
        return clocks
    return dataclasses.replace(clocks, first=first, last=last)


def of_counted(argument: str, fold: Fold) -> SourceClocks:
    """Return what a file or capture directory says whose samples are counted already."""
    path = Path(argument)
    if captures.is_capture(path):
        with capture_archive.opened(path) as directory:
            clocks = of_directory(directory, captures.read_manifest(directory), argument)
    elif (kind := _format_of(path)) == detection.PERF_DATA:
        clocks = perf_data_clocks.read(path, argument)
    else:
        clocks = source_clocks.of_meta(kind, fold.meta, argument, fold.clock)
    return dataclasses.replace(clocks, first=fold.first_ns, last=fold.last_ns)


def _format_of(path: Path) -> str:
    with Source.open_path(str(path)) as source:
        return detection.detect(source, None)


def of_directory(directory: Path, manifest: Manifest, name: str) -> SourceClocks:
    """Return what the files of an unpacked capture say of clocks; the first and last time are not looked for."""
    best = captures.sample_source(directory)
    snapshots = list(_start_of(best, name, manifest.host, manifest.boot_id))
    notes: list[str] = []
    conversion = None
    for source in manifest.sources:
        path = captures.source_path(directory, source)
        if source.format == CLOCKS_FORMAT and path.exists():
            ledger = LossLedger()
            table = clock_snapshots.read(path, manifest.host, manifest.boot_id, ledger)
            snapshots += snapshots_of(table, source.file)
            notes += [f"{source.file}: {loss.describe()}" for loss in ledger.as_tuple()]
        elif source.format == "perf_data" and path.exists():
            try:
                own = perf_data_clocks.read(path, source.file, manifest.host, manifest.boot_id)
            except FlamesliceError as error:
                notes.append(str(error))
                continue
            snapshots += own.snapshots
            conversion = conversion or own.conversion
    return SourceClocks(
        name,
        best.clock,
        manifest.host,
        manifest.boot_id,
        tuple(snapshots),
        conversion,
        notes=tuple(notes),
    )


def of_stored(kept: StoredCaptureReader) -> list[SourceClocks]:
    """Return what the sources with times of a stored capture say, and its clock readings with the first of them."""
    import polars as pl

    events = (
        kept.scan("perf_events")
        .group_by("source")
        .agg(first=pl.col("raw_time").min(), last=pl.col("raw_time").max())
    )
    spans = {source: (first, last) for source, first, last in kept.collect(events).iter_rows()}
    readings = kept.table(CLOCKS_FORMAT)
    snapshots = snapshots_of(readings, "clocks")
    hosts = readings.select("host", "boot_id").unique().rows()
    host, boot_id = hosts[0] if len(hosts) == 1 else (kept.capture.host, "")
    found: list[SourceClocks] = []
    for state in kept.capture.sources:
        end = state.end
        if end is None or not end.table_rows.get("perf_events"):
            continue
        name = f"{shown(kept.capture.name)}/{shown(state.begin.file)}"
        clocks = source_clocks.of_meta(
            state.begin.format, dict(end.meta), name, end.clock, host or "", boot_id or ""
        )
        first, last = spans.get(state.begin.source, (None, None))
        own = clocks.snapshots if found else (*snapshots, *clocks.snapshots)
        found.append(dataclasses.replace(clocks, first=first, last=last, snapshots=own))
    return found
