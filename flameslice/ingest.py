"""From files to messages: every source of a capture is read, cut into messages and appended to the log.

The capture's id follows from what it holds, and a source's messages from its bytes, so a run that was killed is run
again and adds only what is missing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from flameslice import logs
from flameslice.gathering import Inputs, free_id, gathered, keep_raw
from flameslice.local_worker import LocalWorker
from flameslice.source_ingest import OnBytes, SourceIngest
from flameslice.stored import data_url
from pipeline import control
from pipeline.capture import Manifest
from pipeline.control import CaptureFact, Fact, SourceBegin, SourceFact
from pipeline.errors import UsageError
from pipeline.log.protocol import Log, Message
from pipeline.losses import Loss, LossLedger
from pipeline.store.catalog import Catalog
from pipeline.store.place import open_place
from pipeline.store.states import StoredCapture


@dataclass(frozen=True, slots=True)
class Ingested:
    """What came of it."""

    capture: str
    name: str
    facts: tuple[SourceFact, ...]
    losses: tuple[Loss, ...]
    rows: int
    notes: tuple[str, ...] = ()  # that it was there before, and what of its description was kept


def run(
    inputs: Inputs,
    log: Log,
    *,
    now_realtime_ns: int,
    on_bytes: OnBytes | None = None,
    before_end: Callable[[], object] = lambda: None,
) -> Ingested:
    """Append everything of a capture to the log; durable when it returns.

    before_end: called before a source is said to have ended.
    """
    log.append([_begin(inputs)])
    log.flush()
    facts, ledger, rows = [], LossLedger(), 0
    for one in inputs.files:
        ended, losses = SourceIngest(inputs.manifest, one, log, on_bytes, before_end).run(now_realtime_ns)
        facts.append(ended)
        ledger.merge(losses)
        rows += ended.rows
    log.flush()
    return Ingested(inputs.manifest.id, inputs.manifest.name, tuple(facts), ledger.as_tuple(), rows)


def _begin(inputs: Inputs) -> Message:
    """Return the message that a capture begins; raises InputError where its description does not fit."""
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
    return control.to_message(fact)


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
                known = logs.pending_facts(log)
                return [_ingest_one(one, log, catalog, now_realtime_ns, progress, known) for one in found]
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
                    _ingest_one(one, log, catalog, now_realtime_ns, progress, {}, keeps_raw=True)
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
    known: Mapping[str, list[Fact]],
    keeps_raw: bool = False,
) -> Ingested:
    deleted = frozenset(one for one, facts in known.items() if any(fact.kind == "delete" for fact in facts))
    capture = free_id(inputs.manifest.id, catalog, deleted)
    manifest, notes = as_known(
        replace(inputs.manifest, id=capture), catalog.get(capture, known.get(capture, ()))
    )
    inputs = replace(inputs, manifest=manifest)
    _begin(inputs)  # what is wrong with it is told before anything is written
    total = sum(one.size_bytes for one in inputs.files)
    with (
        progress(total, "ingesting") if progress is not None else contextlib.nullcontext() as on_bytes,
        ThreadPoolExecutor(1, "raw") as beside,
    ):
        # copying what came in takes as long as a quarter of reading it, and needs another CPU
        copied = beside.submit(keep_raw, inputs, catalog) if keeps_raw else None
        done = run(
            inputs,
            log,
            now_realtime_ns=now_realtime_ns,
            on_bytes=on_bytes,
            before_end=copied.result if copied is not None else lambda: None,
        )
    return replace(done, notes=notes)


def as_known(manifest: Manifest, known: StoredCapture | None) -> tuple[Manifest, tuple[str, ...]]:
    """Return the description of a capture that may be there already, and what to say of it.

    What it was called and labelled first holds; labels that it lacks are added.
    """
    if known is None:
        return replace(manifest, labels=dict(sorted(manifest.labels.items()))), ()
    notes = [f"{known.id} is already there ({known.status}): only what is missing is added"]
    if manifest.name != known.name:
        notes.append(f"it keeps its name {known.name!r}, not {manifest.name!r}")
    added = {key: value for key, value in manifest.labels.items() if key not in known.labels}
    for key, value in sorted(manifest.labels.items()):
        if known.labels.get(key, value) != value:
            notes.append(f"it keeps its label {key}={known.labels[key]}, not {value}")
    if added:
        notes.append(f"labels added: {', '.join(f'{key}={value}' for key, value in sorted(added.items()))}")
    return replace(manifest, name=known.name, labels=dict(sorted({**known.labels, **added}.items()))), tuple(
        notes
    )
