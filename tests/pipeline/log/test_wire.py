"""Messages: the same rows make the same ones, none is too large, every reader of Arrow reads them, poison is told."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import itertools

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import schema
from pipeline.log import wire
from pipeline.log.arrow_size import unpacked_bytes
from pipeline.log.protocol import MAX_MESSAGE_BYTES, Message
from pipeline.log.wire import PoisonError, Splitter

CAPTURE, SOURCE = "c1", "ab" * 32


def events(count: int, args: str | None = None) -> pl.DataFrame:
    numbers = range(count)
    return pl.DataFrame(
        {
            "host": ["box"] * count,
            "cpu": [number % 8 for number in numbers],
            "pid": [100] * count,
            "tid": list(numbers),
            "comm": [f"worker-{number % 10}" for number in numbers],
            "event": ["cpu-clock"] * count,
            "period": [1_000_000] * count,
            "clock": ["monotonic"] * count,
            "raw_time": [10**15 + 997 * number for number in numbers],
            "stack_id": [hash_of(number) for number in numbers],
            "args": [args] * count,
        },
        schema=schema.PERF_EVENTS,
    )


def hash_of(number: int) -> int:
    return int.from_bytes(hashlib.blake2b(str(number).encode(), digest_size=8).digest(), "little")


def split(tables: list[pl.DataFrame], **limits: int) -> list[Message]:
    splitter = Splitter(CAPTURE, SOURCE, "perf_events", **limits)
    messages = [message for table in tables for message in splitter.add(table)]
    return messages + list(splitter.finish())


@given(
    st.lists(st.integers(0, 90), max_size=12),
    st.integers(200, 9_000),
    st.sampled_from([None, "", "x", "é" * 50]),
)
def test_the_same_rows_make_the_same_messages_however_they_arrive(
    cuts: list[int], row_bytes: int, args: str | None
) -> None:
    whole = events(90, args)
    edges = [0, *sorted(cuts), 90]
    pieces = [whole[start:end] for start, end in itertools.pairwise(edges)]
    messages = split(pieces, row_bytes=row_bytes)
    assert messages == split([whole], row_bytes=row_bytes)
    rows = [wire.decode(message) for message in messages]
    assert pl.concat([one.table for one in rows]).equals(whole)
    assert [one.identity.sequence for one in rows] == list(range(len(rows)))
    assert [one.first_row for one in rows] == [
        sum(earlier.table.height for earlier in rows[:number]) for number in range(len(rows))
    ]
    assert [one.is_last for one in rows] == [False] * (len(rows) - 1) + [True]


def test_no_rows_make_no_message() -> None:
    assert split([]) == split([events(0)]) == []


def test_no_message_is_larger_than_900_kib_even_if_nothing_can_be_compressed() -> None:
    noise = [hashlib.sha512(str(number).encode()).hexdigest() * 4 for number in range(9_000)]
    table = events(9_000).with_columns(args=pl.Series(noise))
    messages = split([table])
    assert len(messages) >= 5
    assert max(len(message.value) for message in messages) <= MAX_MESSAGE_BYTES
    assert pl.concat([wire.decode(message).table for message in messages]).equals(table)


def test_messages_are_filled_and_not_cut_early() -> None:
    messages = split([events(40_000)])
    unpacked = [unpacked_bytes(message.value) or 0 for message in messages[:-1]]
    assert min(unpacked) > 0.9 * wire.ROW_BYTES
    assert max(unpacked) <= MAX_MESSAGE_BYTES


def test_a_text_longer_than_a_cell_is_cut_at_a_character_and_counted() -> None:
    splitter = Splitter(CAPTURE, SOURCE, "perf_events")
    table = events(3).with_columns(args=pl.Series(["short", "é" * 900_000, "x" * 64 * 1024]))
    messages = [*splitter.add(table), *splitter.finish()]
    args = wire.decode(messages[0]).table["args"].to_list()
    assert args == ["short", "é" * (32 * 1024), "x" * 64 * 1024]
    assert splitter.cut_cells == 1


def test_pyarrow_reads_a_message_with_types_that_old_readers_know() -> None:
    (message,) = split([events(10)])
    table = pa.ipc.open_stream(message.value).read_all()
    assert table.num_rows == 10
    assert table.column("raw_time").to_pylist() == events(10)["raw_time"].to_list()
    assert {str(kind) for kind in table.schema.types} == {"large_string", "int32", "int64", "uint64"}


def test_headers_say_what_a_message_is() -> None:
    (message,) = split([events(10)])
    assert message.topic == "flameslice.perf_events"
    assert message.key == f"{CAPTURE}/{SOURCE}".encode()
    assert wire.text_headers(message) == {
        "capture": CAPTURE,
        "source": SOURCE,
        "table": "perf_events",
        "schema_version": schema.SCHEMA_VERSION,
        "sequence": "0",
        "first_row": "0",
        "sha256": hashlib.sha256(message.value).hexdigest(),
        "last": "1",
    }


@pytest.mark.parametrize("table", schema.STORED)
def test_every_stored_table_can_be_a_message(table: str) -> None:
    columns = schema.TABLES[table]
    rows = pl.DataFrame({name: [None, None] for name in columns}, schema=columns)
    splitter = Splitter(CAPTURE, SOURCE, table)
    (message,) = [*splitter.add(rows), *splitter.finish()]
    assert wire.decode(message).table.equals(rows)


def with_headers(message: Message, **headers: str) -> Message:
    kept = [(name, text) for name, text in message.headers if name not in headers]
    return dataclasses.replace(
        message, headers=(*kept, *((name, text.encode()) for name, text in headers.items()))
    )


def with_value(message: Message, value: bytes) -> Message:
    return with_headers(dataclasses.replace(message, value=value), sha256=hashlib.sha256(value).hexdigest())


def stream(table: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.write_ipc_stream(buffer, compression="zstd")
    return buffer.getvalue()


GOOD = split([events(10)])[0]
POISON = {
    "wrong checksum": (dataclasses.replace(GOOD, value=GOOD.value + b"x"), "checksum"),
    "no headers": (dataclasses.replace(GOOD, headers=()), "capture"),
    "unknown major version": (with_headers(GOOD, schema_version="7.0"), "schema version '7.0'"),
    "path as a capture": (with_headers(GOOD, capture="../../etc"), "capture id"),
    "hidden capture": (with_headers(GOOD, capture=".x"), "capture id"),
    "no source": (with_headers(GOOD, source=""), "source"),
    "unknown table": (with_headers(GOOD, table="nonsense"), "table"),
    "a table that is never stored": (with_headers(GOOD, table="slices"), "table"),
    "table of another topic": (with_headers(GOOD, table="frames"), "topic"),
    "negative sequence": (with_headers(GOOD, sequence="-1"), "sequence"),
    "Arabic digits": (with_headers(GOOD, sequence="٣"), "sequence"),
    "no first row": (with_headers(GOOD, first_row=""), "first_row"),
    "not Arrow": (with_value(GOOD, b"hello"), "Arrow"),
    "empty": (with_value(GOOD, b""), "Arrow"),
    "cut off": (with_value(GOOD, GOOD.value[: len(GOOD.value) // 2]), "Arrow"),
    "other type": (with_value(GOOD, stream(events(3).cast({"raw_time": pl.String}))), "raw_time"),
}


@pytest.mark.parametrize("name", POISON)
def test_poison_is_told_with_its_reason(name: str) -> None:
    message, reason = POISON[name]
    with pytest.raises(PoisonError, match=reason):
        wire.decode(message)


@given(st.integers(0, len(GOOD.value) - 1), st.binary(min_size=1, max_size=40))
def test_damage_anywhere_is_poison_or_harmless_and_never_a_crash(at: int, noise: bytes) -> None:
    value = GOOD.value[:at] + noise + GOOD.value[at + len(noise) :]
    try:
        rows = wire.decode(with_value(GOOD, value))
    except PoisonError:
        return
    assert rows.table.schema == schema.PERF_EVENTS


def test_a_small_message_that_unpacks_to_a_huge_one_is_refused_before_it_is_unpacked() -> None:
    bomb = stream(
        events(1_200_000)
        .with_columns(args=pl.lit("0" * 30), comm=pl.lit("x"))
        .select(schema.PERF_EVENTS.names())
        .with_columns(raw_time=pl.lit(0, pl.Int64), tid=pl.lit(0, pl.Int32), stack_id=pl.lit(0, pl.UInt64))
    )
    assert len(bomb) < 2 << 20
    with pytest.raises(PoisonError, match="unpacks to"):
        wire.decode(with_value(GOOD, bomb))


def test_columns_of_a_newer_minor_version_are_left_out_and_missing_ones_are_null() -> None:
    table = events(4)
    newer = table.with_columns(extra=pl.lit(7)).drop("args")
    rows = wire.decode(with_headers(with_value(GOOD, stream(newer)), schema_version="1.9"))
    assert rows.table.equals(table.with_columns(args=pl.lit(None, pl.String)))


@given(st.integers(0, 300), st.sampled_from(["zstd", "uncompressed", "lz4"]))
def test_the_size_told_from_metadata_is_what_reading_takes(count: int, compression: str) -> None:
    buffer = io.BytesIO()
    table = events(count, "some text")
    table.write_ipc_stream(buffer, compression=compression, compat_level=pl.CompatLevel.oldest())
    size = unpacked_bytes(buffer.getvalue())
    read = pa.ipc.open_stream(buffer.getvalue()).read_all()
    assert size is not None
    assert read.nbytes <= size <= read.nbytes + 64 * 40
