"""One source of a capture into the log: its tables, cut into messages, and at the end the fact that it ended."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

import collectors
from collectors import clock_snapshots, perf_data
from collectors.source import Source
from flameslice.gathering import CLOCKS_FORMAT, Input
from pipeline import control, schema
from pipeline.capture import Manifest
from pipeline.control import SourceFact
from pipeline.errors import FlamesliceError, WorkError
from pipeline.log.protocol import Log, Message
from pipeline.log.wire import Splitter
from pipeline.loss_table import losses_table
from pipeline.losses import Loss, LossLedger
from pipeline.tables import TrieTables
from pipeline.text import escape

if TYPE_CHECKING:
    from pipeline.folds import Fold
    from pipeline.whole_source import Stream

OnBytes = Callable[[int], None]
_META_BYTES = 1024  # of one header field of a source


class SourceIngest:
    """Reads one source into the log."""

    def __init__(
        self,
        manifest: Manifest,
        source: Input,
        log: Log,
        on_bytes: OnBytes | None,
        before_end: Callable[[], object],
    ) -> None:
        self._manifest, self._source, self._log, self._on_bytes = manifest, source, log, on_bytes
        self._before_end = before_end
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
        self._before_end()
        fact = SourceFact(
            capture=self._manifest.id,
            source=self._source.sha256,
            status=status,
            problem=problem,
            ended_realtime_ns=now_realtime_ns,
            rows=self._rows,
            lost_rows=self._ledger.lost_rows,
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
        if self._source.format == CLOCKS_FORMAT:
            manifest = self._manifest
            table = clock_snapshots.read(self._source.path, manifest.host, manifest.boot_id, self._ledger)
            self._add("clock_snapshots", table)
            self._rows = table.height + self._ledger.lost_rows
            return
        with contextlib.ExitStack() as stack:
            source = stack.enter_context(Source.open_path(str(self._source.path)))
            source.name = self._source.file
            kind = self._source.format
            if kind == collectors.PERF_DATA:
                source = stack.enter_context(perf_data.open_text(source))
                kind = perf_data.TEXT_FORMAT
            reader = importlib.import_module(collectors.READERS[kind])
            if kind in collectors.SAMPLED:
                self._read_samples(reader.Stream(source, host=self._manifest.host, on_bytes=self._on_bytes))
            else:
                self._read_fold(reader.fold(source))

    def _read_samples(self, stream: Stream) -> None:
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
            "notes": (*self._manifest.reader_notes(), *stream.notes, *_joined_notes(stream.starts)),
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


def _joined_notes(starts: Mapping[int, int]) -> list[str]:
    return [f"a further recording begins at line {line} of its file" for line in starts.values()]


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
