"""Turns what a user names (a file, `-`, a capture directory) into a fold or into tables, whatever its format."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import collectors
from collectors.source import STDIN_NAME, Source
from flameslice import outputs
from flameslice.commands.options import Asked
from pipeline.errors import InputError, UsageError
from pipeline.filters import SampleFilter
from pipeline.folds import Fold
from pipeline.losses import Loss, LossLedger

if TYPE_CHECKING:
    from flameslice.stored import StoredCaptureReader
    from pipeline.tables import Tables
    from pipeline.timespec import WallClock

STDIN = "-"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a capture says of its best source, and what recording cost the host."""

    host: str
    clock: str
    default_event: str
    arch: str
    losses: tuple[Loss, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Opened:
    """An input ready to read, and the reader that understands it."""

    source: Source
    format: str
    reader: Any
    recorded: Recorded | None = None  # what a capture directory says of this file


@contextlib.contextmanager
def opened(argument: str, forced_format: str | None = None) -> Iterator[Opened]:
    """Open an input; perf.data goes through perf script, a capture directory is its best source."""
    with contextlib.ExitStack() as stack:
        source, recorded = _source(argument, stack)
        stack.enter_context(source)
        name = collectors.detect(source, forced_format)
        if name == collectors.PERF_DATA:
            from collectors import perf_data

            source = stack.enter_context(perf_data.open_text(source))
            name = perf_data.TEXT_FORMAT
        yield Opened(source, name, importlib.import_module(collectors.READERS[name]), recorded)


def _source(argument: str, stack: contextlib.ExitStack) -> tuple[Source, Recorded | None]:
    if argument == STDIN:
        return Source.stdin(), None
    from pipeline import capture, capture_archive

    path = Path(argument)
    if not capture.is_capture(path):
        return Source.open_path(argument), None
    directory = stack.enter_context(capture_archive.opened(path))
    best = capture.sample_source(directory)
    manifest = capture.read_manifest(directory)
    source = Source.open_path(str(capture.source_path(directory, best)))
    source.name = argument
    return source, Recorded(
        manifest.host,
        best.clock,
        best.default_event,
        manifest.arch,
        manifest.losses,
        manifest.reader_notes(),
    )


@contextlib.contextmanager
def blamed(argument: str) -> Iterator[None]:
    """Name the input in errors about what it holds."""
    try:
        yield
    except InputError as error:
        error.path = error.path or (STDIN_NAME if argument == STDIN else argument)
        raise


@contextlib.contextmanager
def repeatable(argument: str) -> Iterator[str]:
    """Yield a path that can be read several times: standard input and pipes go to a temporary file first."""
    path = Path(argument)
    if argument != STDIN and (path.is_file() or path.is_dir() or not path.exists()):
        yield argument
        return
    with tempfile.NamedTemporaryFile(prefix="flameslice-") as spool:
        with os.fdopen(0, "rb", closefd=False) if argument == STDIN else path.open("rb") as stream:
            shutil.copyfileobj(stream, spool, 1 << 20)
        spool.flush()
        yield spool.name


def fold_input(
    argument: str, asked: Asked, *, forced_format: str | None, workers: int | None, data: str | None = None
) -> Fold:
    """Count the stacks of an input, a file or a stored capture, filtered."""
    kept = _stored(argument, data, asked.sources)
    if kept is not None:
        return kept.fold(asked)
    if not asked.has_range:
        return _fold(argument, asked.origins(), forced_format, workers)
    with repeatable(argument) as path:
        # times count from the first and last event, so these come first
        bounds = _fold(path, SampleFilter(from_ns=0), forced_format, workers)
        wall = _wall(argument, path, asked, bounds)
        keep = asked.resolve(bounds.first_ns, bounds.last_ns, wall=wall, clock=bounds.clock)
        return _fold(path, keep, forced_format, workers)


def _wall(argument: str, path: str, asked: Asked, bounds: Fold) -> WallClock | None:
    """Return what ties the times of a file to the wall clock, where a question needs it."""
    if not asked.names_wall_time:
        return None
    from flameslice import clock_sources
    from pipeline import align

    clocks = clock_sources.of_counted(path, bounds)
    return align.align([dataclasses.replace(clocks, source=argument)]).wall()


def _stored(argument: str, data: str | None, sources: tuple[str, ...]) -> StoredCaptureReader | None:
    """Return the stored capture that an argument names; None for files, without a look at the store."""
    if argument == STDIN or os.path.lexists(argument):
        if sources:
            raise UsageError("--source chooses among the files of a stored capture", "leave it out")
        return None
    from flameslice import stored  # it imports polars, which a file's fold does without

    return stored.find(argument, data, sources)


def _fold(argument: str, keep: SampleFilter, forced_format: str | None, workers: int | None) -> Fold:
    with opened(argument, forced_format) as found:
        if found.format in collectors.SAMPLED:
            with outputs.progress(found.source.size_bytes, "reading") as on_bytes:
                fold: Fold = found.reader.fold(found.source, keep, workers=workers, on_bytes=on_bytes)
            if found.recorded is not None:
                fold.clock = found.recorded.clock or fold.clock
                fold.notes = (*found.recorded.notes, *fold.notes)
                fold.losses.merge(found.recorded.losses)
                first = fold.events.pop(found.recorded.default_event, None)
                if first is not None:
                    fold.events = {found.recorded.default_event: first, **fold.events}
            return fold
        if not keep.is_trivial:
            raise UsageError(
                f"{found.format.replace('_', ' ')} files hold no single samples to filter",
                "leave out --from, --to, --pid, --tid, --cpu and --comm",
            )
        folded: Fold = found.reader.fold(found.source)
        return folded


def read_input(
    argument: str,
    *,
    forced_format: str | None = None,
    data: str | None = None,
    sources: tuple[str, ...] = (),
) -> Tables:
    """Read an input into tables; raises InputError where its format holds no single samples with times."""
    kept = _stored(argument, data, sources)
    if kept is not None:
        return kept.tables()
    with opened(argument, forced_format) as found:
        if found.format not in collectors.SAMPLED:
            raise InputError(
                f"{found.format.replace('_', ' ')} holds no samples with times",
                "give perf.data, or the output of perf script or ftrace; flameslice flamegraph draws this file",
                path=found.source.name,
            )
        host = found.recorded.host if found.recorded is not None else ""
        with outputs.progress(found.source.size_bytes, "reading") as on_bytes:
            tables: Tables = found.reader.read(found.source, host=host, on_bytes=on_bytes)
        if found.recorded is not None:
            ledger = LossLedger()
            ledger.merge(tables.losses)
            ledger.merge(found.recorded.losses)
            tables = dataclasses.replace(
                tables,
                clock=found.recorded.clock or tables.clock,
                meta=tables.meta | {"arch": found.recorded.arch or tables.meta.get("arch", "")},
                losses=ledger.as_tuple(),
                notes=(*found.recorded.notes, *tables.notes),
            )
        return tables
