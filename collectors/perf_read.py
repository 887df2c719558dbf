"""Makes tables of `perf script` text: one row per sample or tracepoint, in batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import polars as pl

from collectors.perf_fold import times_to_ns
from collectors.perf_header import Head, Layout, Tail
from collectors.perf_rows import Rows
from collectors.perf_tokens import Tokens
from pipeline import schema
from pipeline.filters import SampleFilter
from pipeline.losses import LossLedger
from pipeline.tables import Batch, TrieTables
from pipeline.text import decode, escape

_INT32, _INT64 = 1 << 31, 1 << 63
_BATCH_ROWS = 1 << 17


class TableReader:
    """Reads texts into batches; afterwards `losses`, `rows` and `meta` tell about the whole source."""

    def __init__(self, layout: Layout, keep: SampleFilter, host: str = "") -> None:
        self.tokens = Tokens(layout)
        self.losses = LossLedger()
        self.rows = 0
        self._keep = keep
        self._host = host
        self._tables = TrieTables(self.tokens.trie)
        self._heads: dict[Head, int] = {}
        self._tails: dict[Tail, int] = {}
        self._last_ns: int | None = None

    @property
    def meta(self) -> dict[str, str]:
        """Return the source's own header fields."""
        return self.tokens.meta

    def read(self, texts: Iterable[bytes]) -> Iterator[Batch]:
        """Yield the batches of a source."""
        parts: list[pl.DataFrame] = []
        held = 0
        for rows in self._row_parts(texts):
            table = self._table(rows)
            parts.append(table)
            held += table.height
            if held >= _BATCH_ROWS:
                yield self._batch(parts)
                parts, held = [], 0
        self.losses.merge(self.tokens.losses.as_tuple())
        yield self._batch(parts)

    def _row_parts(self, texts: Iterable[bytes]) -> Iterator[Rows]:
        for text in texts:
            self.tokens.feed(text)
            yield self.tokens.take()
        self.tokens.finish()
        yield self.tokens.take(is_last=True)

    def _batch(self, parts: list[pl.DataFrame]) -> Batch:
        frames, stacks = self._tables.new_rows()
        events = pl.concat(parts) if parts else pl.DataFrame(schema=schema.PERF_EVENTS)
        ids = pl.Series(self._tables.node_ids, dtype=pl.UInt64)
        events = events.with_columns(stack_id=ids.gather(events["stack_id"].cast(pl.Int64)))
        return Batch(events.select(schema.PERF_EVENTS.names()), frames, stacks)

    def _table(self, rows: Rows) -> pl.DataFrame:
        """Return rows as perf_events; stack_id holds this process's node until the batch ends."""
        push = self.tokens.trie.push
        head_numbers, tail_numbers, nodes = [], [], []
        for head, tail, node, frames in rows.keys:
            for frame in frames:
                node = push(node, frame)
            head_numbers.append(self._heads.setdefault(head, len(self._heads)))
            tail_numbers.append(self._tails.setdefault(tail, len(self._tails)))
            nodes.append(node)
        args: list[str | None] = [None] * len(rows)
        for at, text in rows.args.items():
            args[at] = escape(decode(text))
        printed = times_to_ns(rows.times) if rows.times and rows.times[0] else [None] * len(rows)
        times = [self._fitting(time, _INT64, "no_time") for time in printed]
        self._watch_order(times)
        heads = pl.DataFrame(
            {
                "comm": [None if head.comm is None else escape(head.comm) for head in self._heads],
                "pid": [self._fitting(head.pid, _INT32, "bad_number") for head in self._heads],
                "tid": [self._fitting(head.tid, _INT32, "bad_number") for head in self._heads],
                "cpu": [self._fitting(head.cpu, _INT32, "bad_number") for head in self._heads],
            },
            schema={name: schema.PERF_EVENTS[name] for name in ("comm", "pid", "tid", "cpu")},
        )
        tails = pl.DataFrame(
            {
                "event": [escape(tail.event) or "[unknown]" for tail in self._tails],
                "period": [self._fitting(tail.period, _INT64, "bad_number") for tail in self._tails],
            },
            schema={name: schema.PERF_EVENTS[name] for name in ("event", "period")},
        )
        table = pl.DataFrame(
            {"raw_time": times, "stack_id": nodes, "args": args},
            schema={"raw_time": pl.Int64, "stack_id": pl.UInt64, "args": pl.String},
        )
        table = pl.concat([table, heads[head_numbers], tails[tail_numbers]], how="horizontal")
        table = table.with_columns(host=pl.lit(self._host, pl.String), clock=pl.lit(None, pl.String))
        self.rows += int((~table["event"].str.starts_with("PERF_RECORD_")).sum())
        return self._kept(table.select(schema.PERF_EVENTS.names()))

    def _fitting(self, value: int | None, limit: int, reason: str) -> int | None:
        """Return a number that its column can hold; one that no machine counts to is null, and counted."""
        if value is None or -limit <= value < limit:
            return value
        self.losses.add(reason, example=str(value)[:40])
        return None

    def _watch_order(self, times: list[int | None]) -> None:
        last, went_back = self._last_ns, 0
        for time in times:
            if time is not None:
                if last is not None and time < last:
                    went_back += 1
                last = time
        self._last_ns = last
        if went_back:
            self.losses.add("time_went_back", went_back)

    def _kept(self, table: pl.DataFrame) -> pl.DataFrame:
        keep = self._keep
        if keep.is_trivial:
            return table
        origins = table.select("pid", "tid", "cpu", "comm").unique()
        kept = [keep.keeps_origin(*row) for row in origins.iter_rows()]
        table = table.join(
            origins.filter(pl.Series(kept, dtype=pl.Boolean)),
            on=origins.columns,
            how="semi",
            nulls_equal=True,
        )
        if keep.from_ns is not None:
            table = table.filter(pl.col("raw_time") >= keep.from_ns)
        if keep.to_ns is not None:
            table = table.filter(pl.col("raw_time") < keep.to_ns)
        return table
