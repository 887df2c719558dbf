"""The container of `perf.data`: its header, the events' attributes, feature sections and records, in bounded memory.

    50 45 52 46 49 4c 45 32  68 00 00 00 00 00 00 00    PERFILE2, 104 bytes of header: a file
    50 45 52 46 49 4c 45 32  10 00 00 00 00 00 00 00    PERFILE2, 16 bytes of header: what a pipe carried
    4f 00 00 00 00 00 38 00                             record 79 (TIME_CONV), misc 0, 56 bytes

Layout: tools/perf/Documentation/perf.data-file-format.txt and tools/perf/util/header.c of the kernel. A big-endian host
begins with `2ELIFREP`, and its C compiler also lays bit fields from the other end of each byte.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Final

from pipeline.errors import InputError, from_os_error

LITTLE_MAGIC: Final = b"PERFILE2"
BIG_MAGIC: Final = b"2ELIFREP"

# features (header.h) and records (event.h) of perf that say something of clocks
HOSTNAME, ARCH, SAMPLE_TIME, CLOCKID, CLOCK_DATA = 3, 6, 21, 23, 29
HEADER_ATTR, HEADER_TRACING_DATA, AUXTRACE, TIME_CONV, HEADER_FEATURE, FINISHED_INIT = 64, 66, 71, 79, 80, 82

_PIPE_HEADER_BYTES, _OLD_HEADER_BYTES, _HEADER_BYTES = 16, 72, 104
_LEAST_ATTR_BYTES = 64 + 16  # the first version of perf_event_attr, and where its ids stand
_MOST_ATTR_BYTES = 4096
_MOST_ATTRS = 4096  # our choice: perf's recording of 361 events is the largest seen
_FEATURES = 256
_FEATURE_BYTES = 4096  # those above need at most 264
# our choice: perf before 5.19 writes no FINISHED_INIT, but it too describes the host before the first samples
_MOST_RECORDS = 200_000
_WINDOW_BYTES = 1 << 12  # samples with a copy of the stack are larger, and only their headers are needed
_RECORD_HEADER_BYTES = 8

_SAMPLE_TYPE_AT, _FLAGS_AT, _CLOCKID_AT = 24, 40, 92  # in perf_event_attr
_SAMPLE_TYPE_TIME = 1 << 2
_USE_CLOCKID_BIT = 25


@dataclass(frozen=True, slots=True)
class Attr:
    """What an event's perf_event_attr says of time."""

    has_time: bool
    clock_id: int | None  # None: perf's own clock


@dataclass(slots=True)
class PerfData:
    """An open perf.data; `notes` gathers what is damaged or was passed over."""

    descriptor: int
    name: str
    order: str  # of its bytes, as struct spells it
    file_bytes: int
    is_pipe: bool
    attr_bytes: int = 0
    attrs_at: tuple[int, int] = (0, 0)  # (offset, bytes)
    data_at: tuple[int, int] = (0, 0)
    feature_numbers: tuple[int, ...] = ()
    notes: list[str] = field(default_factory=list)

    def attrs(self) -> Iterator[Attr]:
        """Yield the attributes of a file's events; those of a pipe come as records."""
        offset, size = self.attrs_at
        count = size // self.attr_bytes if self.attr_bytes else 0
        if count > _MOST_ATTRS:
            self.notes.append(f"it claims {count} events: only the first {_MOST_ATTRS} are looked at")
        for number in range(min(count, _MOST_ATTRS)):
            data = self.bytes_at(offset + number * self.attr_bytes, self.attr_bytes - 16)
            attr = self.attr(data)
            if attr is None or len(data) < self.attr_bytes - 16:
                self.notes.append("it is cut in the description of its events")
                return
            yield attr

    def attr(self, data: bytes) -> Attr | None:
        """Return what a perf_event_attr says; None where it is too short to be one."""
        if len(data) < _LEAST_ATTR_BYTES - 16:
            return None
        (sample_type,) = struct.unpack_from(self.order + "Q", data, _SAMPLE_TYPE_AT)
        byte, bit = divmod(_USE_CLOCKID_BIT, 8)
        mask = 1 << bit if self.order == "<" else 0x80 >> bit
        clock_id = None
        if data[_FLAGS_AT + byte] & mask and len(data) >= _CLOCKID_AT + 4:
            (clock_id,) = struct.unpack_from(self.order + "i", data, _CLOCKID_AT)
        return Attr(bool(sample_type & _SAMPLE_TYPE_TIME), clock_id)

    def features(self, wanted: Container[int]) -> Iterator[tuple[int, bytes]]:
        """Yield the feature sections of a file; those of a pipe come as records."""
        offset, size = self.data_at
        if not size:
            if not self.is_pipe:
                self.notes.append("its recording did not end properly: its header was never finished")
            return
        for place, number in enumerate(self.feature_numbers):
            if number not in wanted:
                continue
            section = self.bytes_at(offset + size + 16 * place, 16)
            if len(section) < 16:
                self.notes.append("it is cut before its feature sections")
                return
            start, length = struct.unpack(self.order + "QQ", section)
            yield number, self.bytes_at(start, min(length, _FEATURE_BYTES))

    def records(self, wanted: Container[int]) -> Iterator[tuple[int, bytes]]:
        """Yield (type, what follows its header) of records up to FINISHED_INIT; b'' of those not wanted."""
        offset, size = self.data_at
        end = offset + size if size else self.file_bytes
        if end > self.file_bytes:
            self.notes.append("it is cut: its samples go on beyond the end of the file")
            end = self.file_bytes
        window_at, window = offset, b""
        for _ in range(_MOST_RECORDS):
            if offset + _RECORD_HEADER_BYTES > end:
                return
            if offset < window_at or offset + _RECORD_HEADER_BYTES > window_at + len(window):
                window_at, window = offset, self.bytes_at(offset, _WINDOW_BYTES)
                if len(window) < _RECORD_HEADER_BYTES:
                    return
            kind, _, length = struct.unpack_from(self.order + "IHH", window, offset - window_at)
            if length < _RECORD_HEADER_BYTES:
                self.notes.append("it is damaged: a record is shorter than its own header")
                return
            if offset + length > end:
                self.notes.append("it is cut within a record")
                return
            is_read = kind in wanted or kind in (AUXTRACE, HEADER_TRACING_DATA)
            head = _RECORD_HEADER_BYTES
            body = self.bytes_at(offset + head, length - head) if is_read else b""
            yield kind, body
            if kind == FINISHED_INIT:
                return
            offset += length + self._uncounted_bytes(kind, body)

    def _uncounted_bytes(self, kind: int, body: bytes) -> int:
        """Return how much follows a record that its size does not count."""
        if kind == AUXTRACE and len(body) >= 8:
            return int(struct.unpack_from(self.order + "Q", body)[0])
        if kind == HEADER_TRACING_DATA and len(body) >= 4:
            return (int(struct.unpack_from(self.order + "I", body)[0]) + 7) & ~7
        return 0

    def bytes_at(self, offset: int, count: int) -> bytes:
        """Return bytes of the file, fewer where it ends."""
        if count <= 0 or offset >= self.file_bytes:
            return b""
        try:
            return os.pread(self.descriptor, count, offset)
        except OSError as error:
            raise from_os_error(error, self.name) from error


def open_layout(descriptor: int, name: str) -> PerfData:
    """Read the header of an open file; raises InputError where it is none of perf.data."""
    file_bytes = os.fstat(descriptor).st_size
    head = os.pread(descriptor, _HEADER_BYTES, 0)
    if not head.startswith((LITTLE_MAGIC, BIG_MAGIC)) or len(head) < _PIPE_HEADER_BYTES:
        raise InputError("this is not perf.data", "record it with perf record", path=name)
    order = "<" if head.startswith(LITTLE_MAGIC) else ">"
    (header_bytes,) = struct.unpack_from(order + "Q", head, 8)
    if header_bytes == _PIPE_HEADER_BYTES:
        rest = (_PIPE_HEADER_BYTES, 0)
        return PerfData(descriptor, name, order, file_bytes, is_pipe=True, data_at=rest)
    if header_bytes not in (_OLD_HEADER_BYTES, _HEADER_BYTES):
        problem = f"the header of this perf.data claims {header_bytes} bytes"
        raise InputError(problem, "it is damaged: record again", path=name)
    if len(head) < header_bytes:
        raise InputError("this perf.data is cut within its header", "copy it again", path=name)
    attr_bytes, attrs_at, attrs_bytes, data_at, data_bytes = struct.unpack_from(order + "5Q", head, 16)
    if not _LEAST_ATTR_BYTES <= attr_bytes <= _MOST_ATTR_BYTES:
        problem = f"this perf.data claims {attr_bytes} bytes for the description of an event"
        raise InputError(problem, "it is damaged: record again", path=name)
    return PerfData(
        descriptor,
        name,
        order,
        file_bytes,
        is_pipe=False,
        attr_bytes=attr_bytes,
        attrs_at=(attrs_at, attrs_bytes),
        data_at=(data_at, data_bytes),
        feature_numbers=_features(order, head) if header_bytes == _HEADER_BYTES else (),
    )


def _features(order: str, head: bytes) -> tuple[int, ...]:
    """Return the numbers of the feature sections: a bitmap of longs, of 64 bits, or 32 on a 32-bit host."""
    for word, bits in (("4Q", 64), ("8I", 32)):
        words = struct.unpack_from(order + word, head, _OLD_HEADER_BYTES)
        found = tuple(number for number in range(_FEATURES) if words[number // bits] >> (number % bits) & 1)
        if HOSTNAME in found:  # perf itself tells by this which of the two it is
            return found
    return found
