"""How much memory an Arrow IPC stream would take, told by its metadata alone: nothing is unpacked.

A stream of a few kilobytes can claim gigabytes (compressed buffers), so this is asked before anything reads it.
Layout: Arrow columnar format, 'Encapsulated message format' and 'Recordbatch body compression'; Message.fbs.
"""

from __future__ import annotations

import struct

_CONTINUATION = 0xFFFFFFFF
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3  # MessageHeader in Message.fbs
_MOST_BUFFERS = 10_000


def unpacked_bytes(stream: bytes) -> int | None:
    """Return what the buffers of all batches take once unpacked; None where this is not an Arrow stream."""
    try:
        return _walk(memoryview(stream))
    except (struct.error, IndexError, ValueError):
        return None


def _walk(stream: memoryview) -> int:
    at = total = 0
    has_schema = False
    while at < len(stream):
        size, at = _int32(stream, at), at + 4
        if size & 0xFFFFFFFF == _CONTINUATION:
            size, at = _int32(stream, at), at + 4
        if size == 0:
            break
        if size < 0 or at + size > len(stream):
            raise ValueError("a message that ends beyond the stream")
        table = _Table(stream[at : at + size], None)
        body_at = at + size
        body_bytes = table.int64(3)
        if body_bytes < 0 or body_at + body_bytes > len(stream):
            raise ValueError("a body that ends beyond the stream")
        kind = table.byte(1)
        if kind == _SCHEMA:
            has_schema = True
        elif kind in (_DICTIONARY, _BATCH):
            batch = table.table(2)
            if kind == _DICTIONARY:
                batch = batch.table(1)
            total += _batch_bytes(batch, stream[body_at : body_at + body_bytes])
        at = body_at + body_bytes
    if not has_schema:
        raise ValueError("no schema")
    return total


def _batch_bytes(batch: _Table, body: memoryview) -> int:
    start, count = batch.vector(2)
    if count > _MOST_BUFFERS:
        raise ValueError("too many buffers")
    is_packed = batch.has(3)
    total = 0
    for number in range(count):
        offset, length = struct.unpack_from("<qq", batch.data, start + 16 * number)
        if offset < 0 or length < 0 or offset + length > len(body):
            raise ValueError("a buffer outside the body")
        if is_packed and length >= 8:
            (claimed,) = struct.unpack_from("<q", body, offset)
            total += length if claimed == -1 else claimed
            if claimed < -1:
                raise ValueError("a buffer of negative size")
        else:
            total += length
    rows = batch.int64(0)
    if rows < 0:
        raise ValueError("a negative number of rows")
    return total


class _Table:
    """A flatbuffers table: fields by their number in the schema."""

    def __init__(self, data: memoryview, at: int | None) -> None:
        self.data = data
        self._at: int = struct.unpack_from("<I", data, 0)[0] if at is None else at
        self._vtable = self._at - _int32(data, self._at)
        if self._vtable < 0:
            raise ValueError("a table outside the message")
        (self._vtable_bytes,) = struct.unpack_from("<H", data, self._vtable)

    def _field(self, number: int) -> int:
        slot = 4 + 2 * number
        if slot + 2 > self._vtable_bytes:
            return 0
        offset: int = struct.unpack_from("<H", self.data, self._vtable + slot)[0]
        return self._at + offset if offset else 0

    def has(self, number: int) -> bool:
        return self._field(number) != 0

    def byte(self, number: int) -> int:
        at = self._field(number)
        return self.data[at] if at else 0

    def int64(self, number: int) -> int:
        at = self._field(number)
        return int(struct.unpack_from("<q", self.data, at)[0]) if at else 0

    def _target(self, number: int) -> int:
        at = self._field(number)
        if not at:
            raise ValueError("a field is missing")
        return at + int(struct.unpack_from("<I", self.data, at)[0])

    def table(self, number: int) -> _Table:
        return _Table(self.data, self._target(number))

    def vector(self, number: int) -> tuple[int, int]:
        """Return where a vector's elements begin, and how many there are."""
        at = self._target(number)
        return at + 4, int(struct.unpack_from("<I", self.data, at)[0])


def _int32(data: memoryview, at: int) -> int:
    return int(struct.unpack_from("<i", data, at)[0])
