"""A message's value: one Arrow IPC stream of rows of one table, compressed with zstd inside, at most 900 KiB.

    headers  capture=c20261201T054200Z-3f9a0c1d2e source=<sha-256> table=perf_events schema_version=1.0 sequence=17
             first_row=140233 sha256=<of the value> last=1 (only on a table's last message of a source)

Rows are split by their uncompressed size, so the same rows make the same messages whatever the compressor's version;
(capture, source, table, sequence) identifies a message. Columns have Arrow's oldest types, which every reader knows.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from pipeline import schema
from pipeline.log.arrow_size import unpacked_bytes
from pipeline.log.protocol import MAX_MESSAGE_BYTES, PREFIX, Message

# what a message's rows may take before they are compressed: the rest is for the stream's own words
ROW_BYTES = MAX_MESSAGE_BYTES - (24 << 10)
LONGEST_CELL_BYTES = 64 << 10  # longer texts are cut, so that every row fits
MAX_UNPACKED_BYTES = 16 << 20  # what a message of another writer may unpack to
_MAJOR = schema.SCHEMA_VERSION.partition(".")[0]
_CAPTURE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_LONGEST_SOURCE = 200


class PoisonError(Exception):
    """A message that no worker can take in; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Which message of which table of which source of which capture."""

    capture: str
    source: str
    table: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one message."""

    identity: Identity
    table: pl.DataFrame  # the table's own columns
    first_row: int  # where the first of them stands in its source's table
    is_last: bool
    size_bytes: int = 0  # what they take in memory


def is_capture_id(text: str) -> bool:
    """Return whether text can be the id of a capture, which is also the name of a folder."""
    return _CAPTURE_ID.fullmatch(text) is not None


def encode(identity: Identity, table: pl.DataFrame, first_row: int, is_last: bool) -> Message:
    """Return the message of these rows."""
    buffer = io.BytesIO()
    table.write_ipc_stream(buffer, compression="zstd", compat_level=pl.CompatLevel.oldest())
    value = buffer.getvalue()
    assert len(value) <= MAX_MESSAGE_BYTES, len(value)
    headers = {
        "capture": identity.capture,
        "source": identity.source,
        "table": identity.table,
        "schema_version": schema.SCHEMA_VERSION,
        "sequence": str(identity.sequence),
        "first_row": str(first_row),
        "sha256": hashlib.sha256(value).hexdigest(),
    }
    if is_last:
        headers["last"] = "1"
    key = f"{identity.capture}/{identity.source}".encode()
    encoded = tuple((name, text.encode()) for name, text in headers.items())
    return Message(PREFIX + identity.table, key, value, encoded)


def decode(message: Message) -> Rows:
    """Return the rows of a message; raises PoisonError with the reason."""
    headers = text_headers(message)
    identity = identity_of(headers)
    major = headers.get("schema_version", "").partition(".")[0]
    if major != _MAJOR:
        raise PoisonError(f"schema version {headers.get('schema_version', '')[:40]!r} is not known")
    if hashlib.sha256(message.value).hexdigest() != headers.get("sha256"):
        raise PoisonError("the checksum does not fit the value")
    first_row = _number(headers, "first_row")
    if message.topic != PREFIX + identity.table:
        raise PoisonError(f"a message of table {identity.table} in topic {message.topic}")
    size = _unpacked_bytes(message.value)
    table = _table(message.value, schema.TABLES[identity.table])
    return Rows(identity, table, first_row, "last" in headers, size)


def text_headers(message: Message) -> dict[str, str]:
    """Return the headers as text; of a name that stands there twice the last."""
    return {name: text.decode("utf-8", "replace") for name, text in message.headers}


def identity_of(headers: dict[str, str]) -> Identity:
    """Return the identity that headers claim; raises PoisonError where they claim none."""
    capture, source, table = (headers.get(name, "") for name in ("capture", "source", "table"))
    if not is_capture_id(capture):
        raise PoisonError(f"no usable capture id: {capture[:40]!r}")
    if not source or len(source) > _LONGEST_SOURCE or not source.isprintable():
        raise PoisonError(f"no usable source: {source[:40]!r}")
    if table not in schema.STORED:
        raise PoisonError(f"unknown table {table[:40]!r}")
    return Identity(capture, source, table, _number(headers, "sequence"))


def _number(headers: dict[str, str], name: str) -> int:
    text = headers.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise PoisonError(f"no usable {name}: {text[:40]!r}")
    return int(text)


def _unpacked_bytes(value: bytes) -> int:
    """Return what a value takes once it is unpacked; raises PoisonError where that is too much, or cannot be told."""
    size = unpacked_bytes(value)
    if size is None:
        raise PoisonError("not an Arrow stream")
    if size > MAX_UNPACKED_BYTES:
        raise PoisonError(f"unpacks to {size} bytes, more than {MAX_UNPACKED_BYTES}")
    return size


def _table(value: bytes, columns: pl.Schema) -> pl.DataFrame:
    """Return the rows of a value with these columns: a newer minor version's are left out, missing ones are null."""
    import pyarrow as pa

    try:
        with pa.ipc.open_stream(pa.py_buffer(value)) as stream:
            arrow = stream.read_all()
        arrow = arrow.select([name for name in dict.fromkeys(arrow.schema.names) if name in columns])
        arrow.validate(full=True)
        table = pl.from_arrow(arrow)
    except (
        pa.ArrowException,
        OSError,
        MemoryError,
        ValueError,
        KeyError,
        pl.exceptions.PolarsError,
    ) as error:
        raise PoisonError(f"not a readable Arrow stream: {str(error).splitlines()[0][:200]}") from None
    assert isinstance(table, pl.DataFrame)
    for name, kind in columns.items():
        if name not in table.columns:
            table = table.with_columns(pl.lit(None, kind).alias(name))
        elif table.schema[name] != kind:
            raise PoisonError(f"column {name} is {table.schema[name]}, not {kind}")
    return table.select(columns.names())


class Splitter:
    """Cuts the rows of one table of one source into messages, the same ones however the rows arrive."""

    def __init__(self, capture: str, source: str, table: str, row_bytes: int = ROW_BYTES) -> None:
        self.rows = 0  # that went into messages
        self.messages = 0
        self.cut_cells = 0  # texts that were cut, because they were too long
        self._capture, self._source, self._table_name = capture, source, table
        self._limit_bytes = row_bytes
        self._columns = schema.TABLES[table]
        self._held: list[pl.DataFrame] = []
        self._held_bytes = 0
        self._next: pl.DataFrame | None = None  # the message that is the last one, unless more rows come

    def add(self, table: pl.DataFrame) -> Iterator[Message]:
        """Take rows in; yield the messages that are full."""
        if table.is_empty():
            return
        table = self._bounded(table.select(self._columns.names()))
        self._held.append(table)
        self._held_bytes += int(_row_bytes(table).sum())
        if self._held_bytes > self._limit_bytes:
            yield from self._cut()

    def finish(self) -> Iterator[Message]:
        """Yield the last messages of the source."""
        if self._held:
            yield from self._full(pl.concat(self._held))
            self._held, self._held_bytes = [], 0
        if self._next is not None:
            yield self._message(self._next, is_last=True)
            self._next = None

    def _cut(self) -> Iterator[Message]:
        table = pl.concat(self._held)
        ends = _row_bytes(table).cum_sum()
        start, base = 0, 0
        while start < table.height:
            end = int(ends.search_sorted(base + self._limit_bytes, side="right"))
            if end >= table.height:
                break
            end = max(end, start + 1)
            yield from self._full(table[start:end])
            start, base = end, int(ends[end - 1])
        rest = table[start:]
        self._held = [rest.rechunk()] if rest.height else []
        self._held_bytes = int(ends[-1]) - base

    def _full(self, table: pl.DataFrame) -> Iterator[Message]:
        if self._next is not None:
            yield self._message(self._next, is_last=False)
        self._next = table

    def _message(self, table: pl.DataFrame, is_last: bool) -> Message:
        identity = Identity(self._capture, self._source, self._table_name, self.messages)
        message = encode(identity, table.rechunk(), self.rows, is_last)
        self.messages += 1
        self.rows += table.height
        return message

    def _bounded(self, table: pl.DataFrame) -> pl.DataFrame:
        """Return the table with texts no longer than a cell may be; bytes are cut where a character ends."""
        texts = [name for name, kind in self._columns.items() if kind == pl.String]
        if not texts:
            return table
        too_long = table.select(
            (pl.col(name).str.len_bytes() > LONGEST_CELL_BYTES).sum() for name in texts
        ).row(0)
        for name, count in zip(texts, too_long, strict=True):
            if count:
                self.cut_cells += count
                cells = [
                    cell.encode()[:LONGEST_CELL_BYTES].decode("utf-8", "ignore") if cell is not None else None
                    for cell in table[name]
                ]
                table = table.with_columns(pl.Series(name, cells, pl.String))
        return table


def _row_bytes(table: pl.DataFrame) -> pl.Series:
    """Return what each row takes in an Arrow stream that is not compressed."""
    fixed = 1 + len(table.columns) // 8  # validity bits
    texts = []
    for name, kind in table.schema.items():
        if kind == pl.String:
            fixed += 8  # an offset
            texts.append(pl.col(name).str.len_bytes().fill_null(0).cast(pl.Int64))
        else:
            fixed += _WIDTHS_BYTES[kind.base_type()]
    total = pl.sum_horizontal(texts) if texts else pl.lit(0, pl.Int64)
    return table.select((total + fixed).alias("bytes"))["bytes"] if texts else _constant(fixed, table.height)


def _constant(value: int, count: int) -> pl.Series:
    return pl.Series("bytes", [value], pl.Int64).new_from_index(0, count)


_WIDTHS_BYTES: dict[object, int] = {
    pl.Int64: 8,
    pl.UInt64: 8,
    pl.Int32: 4,
    pl.Boolean: 1,
    pl.Float64: 8,
}
