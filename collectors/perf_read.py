"""Makes tables of `perf script` or ftrace text: one row per sample or tracepoint, in batches of bounded size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import polars as pl

from collectors.perf_fold import TokenSource
from collectors.perf_row_lines import RowLines
from collectors.perf_rows import Key, Rows
from pipeline import schema
from pipeline.filters import SampleFilter
from pipeline.losses import LossLedger
from pipeline.table_filter import of_origin
from pipeline.tables import Batch, TrieTables
from pipeline.text import decode, escape

_INT32, _INT64 = 1 << 31, 1 << 63
_BATCH_ROWS = 1 << 17
_KEY_COLUMNS = ("pid", "tid", "cpu", "period", "comm", "event", "stack_id")


class TableReader:
    """Reads texts into batches; afterwards `losses`, `rows` and `meta` tell about the whole source."""

    def __init__(self, tokens: TokenSource, keep: SampleFilter, host: str = "") -> None:
        self.tokens = tokens
        self.losses = LossLedger()
        self.rows = 0
        self._keep = keep
        self._host = host
        self._tables = TrieTables(self.tokens.trie)
        self._comms: dict[str | None, str | None] = {}  # name as the file has it -> as tables have it
        self._events: dict[str, str] = {}
        self._last_ns: int | None = None
        self._lines = RowLines()
        self.first_ns: int | None = None  # of the first row, whatever is kept

    @property
    def meta(self) -> dict[str, str]:
        """Return the source's own header fields."""
        return self.tokens.header.meta

    @property
    def starts(self) -> dict[int, int]:
        """Return the rows before which the file says that another recording begins, and the lines of that."""
        return dict(self.tokens.header.blocks)

    @property
    def line_of(self) -> dict[int, int]:
        """Return the lines of rows that may begin another recording."""
        return self._lines.line_of | self.starts

    def read(self, texts: Iterable[bytes]) -> Iterator[Batch]:
        """Yield the batches of a source."""
        held = Rows()
        times: list[int | None] = []
        for text, rows in self._row_parts(texts):
            held.args.update((len(held) + at, args) for at, args in rows.args.items())
            held.keys += rows.keys
            times += self._part_times(text, rows.times)
            held.times += rows.times
            if len(held) >= _BATCH_ROWS:
                yield self._batch(held, times)
                held, times = Rows(), []
        self.losses.merge(self.tokens.losses.as_tuple())
        yield self._batch(held, times)

    def _row_parts(self, texts: Iterable[bytes]) -> Iterator[tuple[bytes, Rows]]:
        for text in texts:
            self.tokens.feed(text)
            yield text, self.tokens.take()
        self.tokens.finish()
        yield b"", self.tokens.take(is_last=True)

    def _part_times(self, text: bytes, printed: list[bytes]) -> list[int] | list[None]:
        """Return the times of a text's rows in ns, None where it has none."""
        if printed and not printed[0]:
            return [None] * len(printed)
        times = self.tokens.to_raw(printed) if printed else []
        if self.first_ns is None and times:
            self.first_ns = times[0]
        self._lines.add(text, printed, times, self.tokens.lines_fed)
        return times

    def _batch(self, rows: Rows, times: list[int | None]) -> Batch:
        events = self._table(rows, times)
        frames, stacks = self._tables.new_rows()
        ids = pl.Series(self._tables.node_ids, dtype=pl.UInt64)
        events = events.with_columns(stack_id=ids.gather(events["stack_id"].cast(pl.Int64)))
        return Batch(self._kept(events), frames, stacks)

    def _table(self, rows: Rows, times: list[int | None]) -> pl.DataFrame:
        """Return rows as perf_events; stack_id holds this process's node."""
        # samples repeat: what two rows have in common is looked at once
        distinct: dict[Key, int] = {}
        numbers = [distinct.setdefault(key, len(distinct)) for key in rows.keys]
        table = self._distinct(distinct, numbers)[numbers]
        args: list[str | None] = [None] * len(rows)
        for at, text in rows.args.items():
            args[at] = escape(decode(text))
        table = table.with_columns(
            pl.Series("raw_time", self._checked(times), pl.Int64),
            pl.Series("args", args, pl.String),
            host=pl.lit(self._host, pl.String),
            clock=pl.lit(None, pl.String),
        ).select(schema.PERF_EVENTS.names())
        self.rows += int((~table["event"].str.starts_with("PERF_RECORD_")).sum())
        return table

    def _distinct(self, keys: Iterable[Key], numbers: list[int]) -> pl.DataFrame:
        """Return a row for each of the keys, without time and arguments."""
        columns: dict[str, list[object]] = {name: [] for name in _KEY_COLUMNS}
        too_large: list[tuple[int, str]] = []
        comms, events = self._comms, self._events
        push = self.tokens.trie.push
        for at, (head, tail, node, frames) in enumerate(keys):
            for frame in frames:
                node = push(node, frame)
            fitting = []
            for value, limit in (
                (head.pid, _INT32),
                (head.tid, _INT32),
                (head.cpu, _INT32),
                (tail.period, _INT64),
            ):
                if value is not None and not -limit <= value < limit:
                    too_large.append((at, str(value)[:40]))
                    value = None
                fitting.append(value)
            comm = comms.get(head.comm)
            if comm is None and head.comm is not None:
                comm = comms[head.comm] = escape(head.comm)
            event = events.get(tail.event)
            if event is None:
                event = events[tail.event] = escape(tail.event) or "[unknown]"
            for name, cell in zip(_KEY_COLUMNS, (*fitting, comm, event, node), strict=True):
                columns[name].append(cell)
        if too_large:
            counts = Counter(numbers)
            for at, text in too_large:
                self.losses.add("bad_number", counts[at], example=text)
        return pl.DataFrame(columns, schema={name: schema.PERF_EVENTS[name] for name in _KEY_COLUMNS})

    def _checked(self, times: list[int | None]) -> list[int | None]:
        """Return times, null where no column can hold one; note where they go back."""
        for at, time in enumerate(times) if max(filter(None, times), default=0) >= _INT64 else ():
            if time is not None and time >= _INT64:
                self.losses.add("no_time", example=str(time)[:40])
                times[at] = None
        known = pl.Series([self._last_ns, *times], dtype=pl.Int64).drop_nulls()
        went_back = int((known.diff() < 0).sum())
        if went_back:
            self.losses.add("time_went_back", went_back)
        self._last_ns = known[-1] if len(known) else None
        return times

    def _kept(self, table: pl.DataFrame) -> pl.DataFrame:
        keep = self._keep
        if keep.is_trivial:
            return table
        table = of_origin(table.lazy(), keep).collect()
        if keep.from_ns is not None:
            table = table.filter(pl.col("raw_time") >= keep.from_ns)
        if keep.to_ns is not None:
            table = table.filter(pl.col("raw_time") < keep.to_ns)
        return table
