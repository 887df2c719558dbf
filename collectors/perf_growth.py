"""Counts what a perf.data holds while perf writes it, by the headers of its records alone.

Layout (the kernel tree's perf.data-file-format.txt): magic `PERFILE2`; at byte 40 the u64 offset of the data;
then records, each beginning with u32 type, u16 misc, u16 size.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

_HEADER = struct.Struct("=IHH")
_DATA_OFFSET_AT = 40
_CHUNK_BYTES = 1 << 20

# PERF_RECORD_* of the kernel's perf_event.h
_LOST, _COMM, _THROTTLE, _FORK, _SAMPLE, _MMAP2 = 2, 3, 5, 7, 9, 10
_LOST_SAMPLES, _SWITCH, _SWITCH_CPU_WIDE = 13, 14, 15


@dataclass(slots=True)
class Growth:
    """What was counted so far; `read` goes on where it ended."""

    path: Path
    events: int = 0  # samples, tracepoints and switch records
    lost: int = 0
    throttled: int = 0
    pids: set[int] = field(default_factory=set)  # processes that mapped a file, forked or were named
    offset: int = 0

    def read(self, most_events: int = 1 << 62) -> None:
        """Count the records that were completed since, but stop soon after most_events more."""
        stop_at = self.events + most_events
        try:
            with self.path.open("rb", buffering=0) as data:
                if not self.offset and not self._read_offset(data.fileno()):
                    return
                while self.events < stop_at:
                    chunk = os.pread(data.fileno(), _CHUNK_BYTES, self.offset)
                    used = self._count(chunk)
                    self.offset += used
                    if not used:
                        return
        except FileNotFoundError:
            return  # perf has not made it yet

    def _read_offset(self, fd: int) -> bool:
        head = os.pread(fd, _DATA_OFFSET_AT + 8, 0)
        if len(head) < _DATA_OFFSET_AT + 8 or not head.startswith(b"PERFILE2"):
            return False
        (self.offset,) = struct.unpack_from("=Q", head, _DATA_OFFSET_AT)
        return self.offset > 0

    def _count(self, chunk: bytes) -> int:
        """Count the whole records in chunk; return how many bytes they take."""
        at, end, events = 0, len(chunk), 0
        unpack = _HEADER.unpack_from
        while at + 8 <= end:
            kind, _, size = unpack(chunk, at)
            if size < 8 or at + size > end:
                break
            if kind in (_SAMPLE, _SWITCH, _SWITCH_CPU_WIDE):
                events += 1
            elif kind in (_COMM, _FORK, _MMAP2):
                self.pids.add(int.from_bytes(chunk[at + 8 : at + 12], "little"))
            elif kind == _LOST:  # u64 id, u64 lost
                self.lost += int.from_bytes(chunk[at + 16 : at + 24], "little")
            elif kind == _LOST_SAMPLES:  # u64 lost
                self.lost += int.from_bytes(chunk[at + 8 : at + 16], "little")
            elif kind == _THROTTLE:
                self.throttled += 1
            at += size
        self.events += events
        return at
