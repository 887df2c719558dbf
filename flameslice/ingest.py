"""From files to messages: every source of a capture is read, cut into messages and appended to the log.

The capture's id follows from what it holds, and a source's messages from its bytes, so a run that was killed is run
again and adds only what is missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

import collectors
from collectors import clock_snapshots, perf_data
from collectors.source import Source
from flameslice import logs
from flameslice.inputs import repeatable
from flameslice.local_worker import LocalWorker
from flameslice.stored import data_url
from pipeline import capture as captures
from pipeline import capture_archive, control, schema
from pipeline.capture import CaptureSource, Manifest
from pipeline.control import CaptureFact, SourceBegin, SourceFact
from pipeline.errors import FlamesliceError, InputError, UsageError, WorkError, from_os_error
from pipeline.log import wire
from pipeline.log.protocol import Log, Message
from pipeline.log.wire import Splitter
from pipeline.loss_table import losses_table
from pipeline.losses import Loss, LossLedger
from pipeline.store.catalog import Catalog
from pipeline.store.place import open_place
from pipeline.tables import TrieTables
from pipeline.text import escape

if TYPE_CHECKING:
    from pipeline.folds import Fold

OnBytes = Callable[[int], None]
_META_BYTES = 1024  # of one header field of a source
_LONGEST_NAME = 60  # of a file that is renamed: no disk refuses it, in any letters
_TEXT_FORMAT = "perf_script"
_CLOCKS_FORMAT = "clock_snapshots"


@dataclass(frozen=True, slots=True)
class Input:
    """One file of a capture that is to be ingested."""

    path: Path
    file: str  # its name in the capture
    format: str  # '' for what only lies in raw/
    sha256: str
    size_bytes: int
    clock: str = ""
    default_event: str = ""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything of one capture: what to read, and what else came with it."""

    manifest: Manifest
    files: tuple[Input, ...]
    extra: tuple[Input, ...] = ()  # kept in raw/, and read by nothing yet


@dataclass(frozen=True, slots=True)
class Ingested:
    """What came of it."""

    capture: str
    name: str
    facts: tuple[SourceFact, ...]
    losses: tuple[Loss, ...]
    rows: int


@contextlib.contextmanager
def gathered(
    paths: Sequence[str], *, name: str | None, labels: Mapping[str, str], forced_format: str | None = None
) -> Iterator[list[Inputs]]:
    """Look at what was named: each recorded capture is one, all loose files together are one.

    Nothing is written yet; raises InputError where one of them is nothing that a reader takes.
    """
    with contextlib.ExitStack() as stack:
        recorded: list[Inputs] = []
        loose: list[tuple[Path, str]] = []
        for argument in paths:
            path = Path(stack.enter_context(repeatable(argument)))
            if captures.is_capture(path):
                directory = stack.enter_context(capture_archive.opened(path))
                recorded.append(_recorded(directory, name, labels))
            elif path.is_dir():
                raise InputError("a directory without capture.json", "give its files", path=argument)
            else:
                loose.append((path, "stdin" if argument == "-" else Path(argument).name))
        found = list(recorded)
        if loose:
            found.append(_loose(loose, name, labels, forced_format))
        for one in (file for inputs in found for file in inputs.files if file.format == "perf_data"):
            perf_data.perf_path(one.file)
        yield found


def _recorded(directory: Path, name: str | None, labels: Mapping[str, str]) -> Inputs:
    """Return what a capture directory holds: the best of its files with samples, and its clock readings."""
    manifest = captures.read_manifest(directory)
    if not wire.is_capture_id(manifest.id):
        raise InputError(f"no usable id: {manifest.id[:40]!r}", "record it again", path=str(directory))
    read: list[Input] = []
    extra: list[Input] = []
    best = _samples_of(directory, manifest)
    for source in manifest.sources or tuple(best):
        path = captures.source_path(directory, source)
        is_read = source.format == _CLOCKS_FORMAT or source in best
        one = _hashed(path, source.file, source.format if is_read else "", source)
        (read if is_read else extra).append(one)
    if not read:
        raise InputError("this capture holds nothing to read", "record it again", path=str(directory))
    manifest = replace(manifest, name=name or manifest.name, labels={**manifest.labels, **labels})
    return Inputs(manifest, tuple(read), tuple(extra))


def _samples_of(directory: Path, manifest: Manifest) -> list[CaptureSource]:
    """Return the sources with samples to read: of a recording the best one, of loose files each."""
    if manifest.is_recording:
        return [captures.sample_source(directory)]
    return [source for source in manifest.sources if source.format in captures.SAMPLE_FORMATS]


def _loose(
    files: Sequence[tuple[Path, str]],
    name: str | None,
    labels: Mapping[str, str],
    forced_format: str | None,
) -> Inputs:
    read: dict[str, Input] = {}
    taken: set[str] = set()
    for path, file in files:
        with Source.open_path(str(path)) as source:
            kind = collectors.detect(source, forced_format)
        one = _hashed(path, file, kind)
        if one.sha256 in read:
            continue  # the same file twice is one source
        if one.file in taken or one.file == captures.MANIFEST_FILE:
            one = replace(one, file=f"{one.sha256[:8]}-{one.file}"[:_LONGEST_NAME])
        taken.add(one.file)
        read[one.sha256] = one
    name = name or files[0][1]
    started_ns = min(path.stat().st_mtime_ns for path, _ in files)
    manifest = Manifest(
        id=_content_id(name, sorted(read)),
        name=name,
        status="complete",
        start_realtime_ns=started_ns,
        labels=dict(labels),
        sources=tuple(
            CaptureSource(one.file, one.format, sha256=one.sha256, size_bytes=one.size_bytes)
            for one in read.values()
        ),
    )
    return Inputs(manifest, tuple(read.values()))


def _content_id(name: str, digests: Sequence[str]) -> str:
    text = json.dumps([name, *digests])
    return f"f{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:20]}"


def _hashed(path: Path, file: str, kind: str, source: CaptureSource | None = None) -> Input:
    try:
        with path.open("rb") as data:
            digest = hashlib.file_digest(data, "sha256").hexdigest()
        size = path.stat().st_size
    except OSError as error:
        raise from_os_error(error, str(path)) from error
    if source is not None and source.sha256 and source.sha256 != digest:
        problem = "this file is not the one that was recorded: its SHA-256 differs"
        raise InputError(problem, "copy the capture again", path=str(path))
    clock, event = (source.clock, source.default_event) if source is not None else ("", "")
    return Input(path, file, kind, digest, size, clock, event)


def free_id(capture: str, catalog: Catalog, deleted: frozenset[str] = frozenset()) -> str:
    """Return an id for a capture: its own, or with a number behind it where it was deleted before."""
    candidate, number = capture, 1
    while candidate in deleted or catalog.is_deleted(candidate):
        number += 1
        candidate = f"{capture}-{number}"
    return candidate


def keep_raw(inputs: Inputs, catalog: Catalog) -> None:
    """Copy what came in to the store's raw/, as a capture directory that can be ingested again."""
    place, folder = catalog.place, f"captures/capture={inputs.manifest.id}/raw"
    have = set(place.names(folder))
    for one in (*inputs.files, *inputs.extra):
        if one.file not in have:
            place.put_file(f"{folder}/{one.file}", one.path)
    place.replace(f"{folder}/{captures.MANIFEST_FILE}", captures.to_json(inputs.manifest).encode())


def run(inputs: Inputs, log: Log, *, now_realtime_ns: int, on_bytes: OnBytes | None = None) -> Ingested:
    """Append everything of a capture to the log; durable when it returns."""
    manifest = inputs.manifest
    fact = CaptureFact(
        capture=manifest.id,
        name=manifest.name,
        labels=dict(manifest.labels),
        started_realtime_ns=manifest.start_realtime_ns,
        host=manifest.host,
        recorded_status="complete" if manifest.status == "complete" else "partial",
        sources=tuple(SourceBegin(one.sha256, one.file, one.format, one.size_bytes) for one in inputs.files),
    )
    log.append([control.to_message(fact)])
    log.flush()
    facts, ledger, rows = [], LossLedger(), 0
    for one in inputs.files:
        ended, losses = _SourceIngest(inputs.manifest, one, log, on_bytes).run(now_realtime_ns)
        facts.append(ended)
        ledger.merge(losses)
        rows += ended.rows
    log.flush()
    return Ingested(manifest.id, manifest.name, tuple(facts), ledger.as_tuple(), rows)


class _SourceIngest:
    """Reads one source into the log."""

    def __init__(self, manifest: Manifest, source: Input, log: Log, on_bytes: OnBytes | None) -> None:
        self._manifest, self._source, self._log, self._on_bytes = manifest, source, log, on_bytes
        self._splitters: dict[str, Splitter] = {}
        self._ledger = LossLedger()
        self._rows = 0
        self._end: dict[str, Any] = {}
        self._log_error: WorkError | None = None

    def run(self, now_realtime_ns: int) -> tuple[SourceFact, tuple[Loss, ...]]:
        """Append the source, then say that it ended; one that cannot be read ends as failed."""
        status, problem = "complete", ""
        try:
            self._read()
        except FlamesliceError as error:
            if error is self._log_error:
                raise  # the source may be well: run it again
            status, problem = "failed", str(error)
        cut = sum(splitter.cut_cells for splitter in self._splitters.values())
        if cut:
            self._ledger.add("cut_text", cut)
        self._add("losses", losses_table(self._ledger.as_tuple()))
        for splitter in self._splitters.values():
            self._append(splitter.finish())
        fact = SourceFact(
            capture=self._manifest.id,
            source=self._source.sha256,
            status=status,
            problem=problem,
            ended_realtime_ns=now_realtime_ns,
            rows=self._rows,
            messages={name: splitter.messages for name, splitter in self._splitters.items()},
            table_rows={name: splitter.rows for name, splitter in self._splitters.items()},
            **self._end,
        )
        self._append([control.to_message(fact)])
        return fact, self._ledger.as_tuple()

    def _add(self, table: str, rows: pl.DataFrame) -> None:
        splitter = self._splitters.get(table)
        if splitter is None:
            splitter = self._splitters[table] = Splitter(self._manifest.id, self._source.sha256, table)
        self._append(splitter.add(rows))

    def _append(self, messages: Iterable[Message]) -> None:
        try:
            self._log.append(messages)
        except WorkError as error:
            self._log_error = error
            raise

    def _read(self) -> None:
        if self._source.format == _CLOCKS_FORMAT:
            manifest = self._manifest
            table = clock_snapshots.read(self._source.path, manifest.host, manifest.boot_id, self._ledger)
            self._add("clock_snapshots", table)
            self._rows = table.height + self._ledger.lost_rows
            return
        with contextlib.ExitStack() as stack:
            source = stack.enter_context(Source.open_path(str(self._source.path)))
            source.name = self._source.file
            kind = self._source.format
            if kind == "perf_data":
                source = stack.enter_context(perf_data.open_text(source))
                kind = _TEXT_FORMAT
            if kind == _TEXT_FORMAT:
                self._read_samples(source)
            else:
                reader = importlib.import_module(collectors.READERS[kind])
                self._read_fold(reader.fold(source))

    def _read_samples(self, source: Source) -> None:
        from collectors import perf_script

        stream = perf_script.Stream(source, host=self._manifest.host, on_bytes=self._on_bytes)
        for batch in stream.batches():
            # what rows refer to comes before them
            self._add("frames", batch.frames)
            self._add("stacks", batch.stacks)
            clock = self._source.clock or stream.clock
            self._add("perf_events", batch.perf_events.with_columns(clock=pl.lit(clock, pl.String)))
        names = [(tid, escape(comm)) for tid, comm in stream.renamed_threads().items()]
        self._add("threads", pl.DataFrame(names, schema=schema.THREADS, orient="row"))
        self._ledger.merge(stream.losses())
        if self._manifest.is_recording:
            self._ledger.merge(self._manifest.losses)
        self._rows = stream.rows
        self._end = {
            "clock": self._source.clock or stream.clock,
            "default_event": self._source.default_event,
            "arch": self._manifest.arch,
            "meta": {key: value[:_META_BYTES] for key, value in stream.meta.items()},
            "notes": self._manifest.reader_notes(),
        }

    def _read_fold(self, fold: Fold) -> None:
        tables = TrieTables(fold.trie)
        frames, stacks = tables.new_rows()
        self._add("frames", frames)
        self._add("stacks", stacks)
        self._add("stack_weights", weights_table(fold, tables.node_ids, self._ledger))
        self._ledger.merge(fold.losses.as_tuple())
        self._rows = fold.rows
        self._end = {
            "clock": fold.clock,
            "unit": fold.unit,
            "is_folded": fold.is_folded,
            "notes": tuple(fold.notes),
        }


def weights_table(fold: Fold, node_ids: Sequence[int], ledger: LossLedger) -> pl.DataFrame:
    """Return a fold as `stack_weights`, in its order; a weight that no machine counts to is a loss."""
    rows = []
    for (event, comm, node), (samples, period) in fold.weights.items():
        if not (-(1 << 63) <= period < 1 << 63 and samples < 1 << 63):
            ledger.add("bad_number", example=str(period)[:40])
            continue
        has_period = fold.events[event].has_period
        name = None if comm is None else escape(comm)
        rows.append((escape(event), name, node_ids[node], samples, period if has_period else None))
    return pl.DataFrame(rows, schema=schema.STACK_WEIGHTS, orient="row")


def ingest(
    paths: Sequence[str],
    *,
    data: str | None = None,
    log_url: str | None = None,
    log_config: str | None = None,
    name: str | None = None,
    labels: Mapping[str, str] | None = None,
    forced_format: str | None = None,
    now_realtime_ns: int,
    progress: Callable[[int | None, str], Any] | None = None,
) -> list[Ingested]:
    """Ingest files and captures; with an embedded log they are in the store when this returns.

    Raises InputError before anything is written where an input is nothing that a reader takes.
    """
    catalog = Catalog(open_place(data_url(data)))
    with gathered(paths, name=name, labels=labels or {}, forced_format=forced_format) as found:
        path = logs.embedded_path(log_url, catalog.place.url)
        if path is None:
            log = logs.open_log(log_url, log_config, catalog)
            try:
                deleted = frozenset(
                    fact.capture
                    for facts in logs.pending_facts(log).values()
                    for fact in facts
                    if fact.kind == "delete"
                )
                return [_ingest_one(one, log, catalog, now_realtime_ns, progress, deleted) for one in found]
            finally:
                log.close()
        if log_config:
            raise UsageError("--log-config is for Kafka", "leave it out")
        catalog.place.sweep(".")
        log = logs.open_embedded(path, catalog, backlog_bytes=logs.BACKLOG_BYTES)
        try:
            with LocalWorker(path, catalog) as worker:
                log.on_wait = worker.check
                return [
                    _ingest_one(one, log, catalog, now_realtime_ns, progress, frozenset(), keeps_raw=True)
                    for one in found
                ]
        finally:
            log.close()


def _ingest_one(
    inputs: Inputs,
    log: Log,
    catalog: Catalog,
    now_realtime_ns: int,
    progress: Callable[[int | None, str], Any] | None,
    deleted: frozenset[str],
    keeps_raw: bool = False,
) -> Ingested:
    inputs = replace(
        inputs, manifest=replace(inputs.manifest, id=free_id(inputs.manifest.id, catalog, deleted))
    )
    if keeps_raw:
        keep_raw(inputs, catalog)
    total = sum(one.size_bytes for one in inputs.files)
    with progress(total, "ingesting") if progress is not None else contextlib.nullcontext() as on_bytes:
        return run(inputs, log, now_realtime_ns=now_realtime_ns, on_bytes=on_bytes)
