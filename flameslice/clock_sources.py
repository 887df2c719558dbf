"""What the inputs of a question say of their clocks: files, capture directories, stored captures."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from collectors import clock_snapshots, perf_data_clocks, perf_header_clocks
from flameslice.commands.options import Asked
from flameslice.inputs import STDIN, fold_input, opened, repeatable
from pipeline import capture as captures
from pipeline import capture_archive
from pipeline.capture import Manifest
from pipeline.clock_domains import Snapshot, SourceClocks
from pipeline.clock_snapshot_table import snapshots_of
from pipeline.errors import FlamesliceError
from pipeline.losses import LossLedger
from pipeline.text import shown

if TYPE_CHECKING:
    from flameslice.stored import StoredCaptureReader
    from pipeline.folds import Fold
    from pipeline.tables import Tables

CLOCKS_FORMAT = "clock_snapshots"
_TEXT_FORMAT = "perf_script"
_PRINTED_NS = 1_000  # perf script prints microseconds unless told otherwise; --ns shows in the digits


def of_inputs(
    arguments: Sequence[str], *, forced_format: str | None = None, data: str | None = None
) -> list[SourceClocks]:
    """Return what each source of the inputs says of its clock; a file is read once for its first and last time."""
    from flameslice import stored

    found: list[SourceClocks] = []
    for argument in arguments:
        kept = None
        if argument != STDIN and not Path(argument).exists():
            kept = stored.find(argument, data)
        if kept is not None:
            found += of_stored(kept)
        else:
            with repeatable(argument) as path:
                one = _of_file(path, forced_format)
            found.append(dataclasses.replace(one, source="<stdin>" if argument == STDIN else argument))
    return found


def _of_file(path: str, forced_format: str | None) -> SourceClocks:
    """Return what a file or capture directory says, its first and last time included."""
    if captures.is_capture(Path(path)):
        return _of_capture(path)
    if forced_format is None and _is_perf_data(path):
        return _of_perf_data(path)
    with opened(path, forced_format) as found:
        kind, source = found.format, found.source.name
    if kind != _TEXT_FORMAT:
        return SourceClocks(source, "")
    fold = fold_input(path, Asked(time_from="0ns"), forced_format=forced_format, workers=None)
    return _spanned(of_text(fold.meta, source, fold.clock), fold)


def of_read(path: str, tables: Tables) -> SourceClocks:
    """Return what a file or capture directory says whose tables are read already."""
    times = tables.perf_events["raw_time"]
    first, last = times.min(), times.max()
    return dataclasses.replace(
        _known(path, tables.meta, tables.clock),
        first=first if isinstance(first, int) else None,
        last=last if isinstance(last, int) else None,
    )


def of_counted(path: str, fold: Fold) -> SourceClocks:
    """Return what a file or capture directory says whose samples are counted already."""
    return _spanned(_known(path, fold.meta, fold.clock), fold)


def _known(path: str, meta: dict[str, str], clock: str) -> SourceClocks:
    if captures.is_capture(Path(path)):
        with capture_archive.opened(Path(path)) as directory:
            return of_directory(directory, captures.read_manifest(directory))
    if _is_perf_data(path):
        return perf_data_clocks.read(path, path)
    return of_text(meta, path, clock)


def _of_perf_data(path: str) -> SourceClocks:
    """Return what a perf.data says; its clocks are read here, its first and last time where its header lacks them."""
    own = perf_data_clocks.read(path, path)
    if own.first is not None:
        return own
    try:
        fold = fold_input(path, Asked(time_from="0ns"), forced_format=None, workers=None)
    except FlamesliceError as error:
        note = f"its first and last time are not known: {error.problem}"
        return dataclasses.replace(own, notes=(*own.notes, note))
    return _spanned(own, fold)


def _spanned(clocks: SourceClocks, fold: Fold) -> SourceClocks:
    return dataclasses.replace(clocks, first=fold.first_ns, last=fold.last_ns)


def _is_perf_data(path: str) -> bool:
    from collectors.perf_data import sniff
    from collectors.source import Source

    with Source.open_path(path) as source:
        return bool(sniff(source.head(16)))


def of_text(meta: dict[str, str], name: str, clock: str, host: str = "", boot_id: str = "") -> SourceClocks:
    """Return what the header lines of perf's text say; clock is what its reader found."""
    return perf_header_clocks.clocks_of(meta, name, clock, _PRINTED_NS, host, boot_id)


def _of_capture(path: str) -> SourceClocks:
    """Return what a capture directory says: its best source's clock, and every reading of clocks beside it."""
    with capture_archive.opened(Path(path)) as directory:
        manifest = captures.read_manifest(directory)
        clocks = of_directory(directory, manifest)
    fold = fold_input(path, Asked(time_from="0ns"), forced_format=None, workers=None)
    return _spanned(clocks, fold)


def of_directory(directory: Path, manifest: Manifest) -> SourceClocks:
    """Return what the files of an unpacked capture say of clocks; the first and last time are not looked for."""
    best = captures.sample_source(directory)
    snapshots: list[Snapshot] = []
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
        manifest.name or str(directory),
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
        clocks = of_text(dict(end.meta), name, end.clock, host or "", boot_id or "")
        first, last = spans.get(state.begin.source, (None, None))
        own = clocks.snapshots if found else (*snapshots, *clocks.snapshots)
        found.append(dataclasses.replace(clocks, first=first, last=last, snapshots=own))
    return found
