"""Makes tables of `perf script` text: one row per sample or tracepoint, in batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import polars as pl

from collectors.perf_fold import times_to_ns
from collectors.perf_header import Head, Layout, Tail
from collectors.perf_rows import Rows
from collectors.perf_tokens import Tokens
from pipeline import schema
from pipeline.filters import SampleFilter
from pipeline.losses import LossLedger
from pipeline.table_filter import of_origin
from pipeline.tables import Batch, TrieTables
from pipeline.text import decode, escape

_INT32, _INT64 = 1 << 31, 1 << 63
_BATCH_ROWS = 1 << 17

T = TypeVar("T")


class TableReader:
    """Reads texts into batches; afterwards `losses`, `rows` and `meta` tell about the whole source.

    What the batches hold follows from the text alone, not from how it comes in parts.
    """

    def __init__(self, layout: Layout, keep: SampleFilter, host: str = "") -> None:
        self.tokens = Tokens(layout)
        self.losses = LossLedger()
        self.rows = 0
        self._keep = keep
        self._host = host
        self._tables = TrieTables(self.tokens.trie)
        self._last_ns: int | None = None

    @property
    def meta(self) -> dict[str, str]:
        """Return the source's own header fields."""
        return self.tokens.meta

    def read(self, texts: Iterable[bytes]) -> Iterator[Batch]:
        """Yield the batches of a source."""
        tokens = self.tokens
        for text in texts:
            tokens.feed(text)
            while tokens.ready >= _BATCH_ROWS:
                yield self._batch(tokens.take(_BATCH_ROWS))
        tokens.finish()
        self.losses.merge(tokens.losses.as_tuple())
        yield self._batch(tokens.take(tokens.ready))

    def _batch(self, rows: Rows) -> Batch:
        frames, stacks = self._tables.rows_of(dict.fromkeys(rows.nodes))
        return Batch(self._kept(self._table(rows)), frames, stacks)

    def _table(self, rows: Rows) -> pl.DataFrame:
        """Return rows as perf_events."""
        # samples repeat: what rows have in common is looked at once
        heads, head_of = _numbered(rows.heads)
        tails, tail_of = _numbered(rows.tails)
        self._count_too_large(rows, heads, tails)
        self.rows += len(rows) - sum(map(rows.tails.count, [tail for tail in tails if tail.is_record]))
        node_ids = self._tables.node_ids
        columns = {
            **_of_heads(heads)[head_of].to_dict(),
            **_of_tails(tails)[tail_of].to_dict(),
            "raw_time": self._times(rows.times),
            "stack_id": [node_ids[node] for node in rows.nodes],
            "args": _args(rows),
        }
        table = pl.DataFrame(columns, schema_overrides=schema.PERF_EVENTS)
        return table.with_columns(host=pl.lit(self._host, pl.String), clock=pl.lit(None, pl.String)).select(
            schema.PERF_EVENTS.names()
        )

    def _count_too_large(self, rows: Rows, heads: list[Head], tails: list[Tail]) -> None:
        """Count the numbers that no column holds, if there are any."""
        odd_heads = {head: numbers for head in heads if (numbers := _too_large(head))}
        odd_tails = {tail: numbers for tail in tails if (numbers := _too_large(tail))}
        if odd_heads or odd_tails:
            for head, tail in zip(rows.heads, rows.tails, strict=True):
                for number in (*odd_heads.get(head, ()), *odd_tails.get(tail, ())):
                    self.losses.add("bad_number", example=str(number)[:40])

    def _times(self, printed: list[bytes]) -> pl.Series:
        """Return times in ns, null where there is none or no column can hold it; note where they go back."""
        if not printed or not printed[0]:
            return pl.Series([None] * len(printed), dtype=pl.Int64)
        times = _times_alike(printed)
        if times is None:
            exact = times_to_ns(printed)
            for time in exact:
                if time >= _INT64:
                    self.losses.add("no_time", example=str(time)[:40])
            times = pl.Series([time if time < _INT64 else None for time in exact], dtype=pl.Int64)
        known = pl.concat([pl.Series([self._last_ns], dtype=pl.Int64), times]).drop_nulls()
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


def _numbered(items: list[T]) -> tuple[list[T], pl.Series]:
    """Return the different items in order, and for each item which of them it is."""
    numbers = {item: number for number, item in enumerate(dict.fromkeys(items))}
    return list(numbers), pl.Series([numbers[item] for item in items], dtype=pl.UInt32)


def _too_large(one: Head | Tail) -> list[int]:
    if isinstance(one, Tail):
        numbers, limit = (one.period,), _INT64
    else:
        numbers, limit = (one.pid, one.tid, one.cpu), _INT32
    return [number for number in numbers if number is not None and not -limit <= number < limit]


def _of_heads(heads: list[Head]) -> pl.DataFrame:
    """Return a row for each of the heads, null where a number is too large."""
    return pl.DataFrame(
        {
            "pid": [_fitting(head.pid, _INT32) for head in heads],
            "tid": [_fitting(head.tid, _INT32) for head in heads],
            "cpu": [_fitting(head.cpu, _INT32) for head in heads],
            "comm": [None if head.comm is None else escape(head.comm) for head in heads],
        },
        schema_overrides=schema.PERF_EVENTS,
    )


def _of_tails(tails: list[Tail]) -> pl.DataFrame:
    """Return a row for each of the tails, null where a number is too large."""
    return pl.DataFrame(
        {
            "event": [escape(tail.event) or "[unknown]" for tail in tails],
            "period": [_fitting(tail.period, _INT64) for tail in tails],
        },
        schema_overrides=schema.PERF_EVENTS,
    )


def _fitting(number: int | None, limit: int) -> int | None:
    return number if number is not None and -limit <= number < limit else None


def _args(rows: Rows) -> pl.Series:
    """Return the arguments of each row, null where there are none."""
    texts = list(rows.args.values())
    joined = b"\n\n".join(texts)  # what no argument holds: a blank line ends it
    if joined.isascii() and b"\\" not in joined:
        known = joined.decode("ascii").split("\n\n")
    else:
        known = [escape(decode(text)) for text in texts]
    if len(texts) == len(rows):
        return pl.Series(known, dtype=pl.String)
    args: list[str | None] = [None] * len(rows)
    for at, text in zip(rows.args, known, strict=False):
        args[at] = text
    return pl.Series(args, dtype=pl.String)


def _times_alike(printed: list[bytes]) -> pl.Series | None:
    """Return printed times in ns where all have as many decimals and a column holds them; else None."""
    text = pl.Series(printed, dtype=pl.Binary).cast(pl.String)
    decimals = text.str.len_bytes() - text.str.find(".", literal=True) - 1
    fewest, most = decimals.min(), decimals.max()
    if not isinstance(most, int) or fewest != most:
        return None
    numbers = text.str.replace(".", "", literal=True).cast(pl.Int64, strict=False)
    scale = 10 ** (9 - most)
    largest = numbers.max()
    if numbers.null_count() or not isinstance(largest, int) or largest >= _INT64 // scale:
        return None
    return numbers * scale
