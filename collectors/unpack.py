"""Looks through gzip, zstd, xz and bzip2, told by magic bytes: several members or frames, in bounded memory.

A stream that ends early or is damaged gives what was readable before, and a counted loss.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

from pipeline.losses import LossLedger

_OUT_BYTES = 1 << 20
# an input of 4 KiB can hold 1,024 zstd run-length blocks of 128 KiB: this bounds what one step may produce
_ZSTD_STEP_BYTES = 4 << 10
# xz -9e needs 65 MiB to unpack; a header may ask for 1.5 GiB
_XZ_MEMORY_BYTES = 256 << 20

MAGIC_BYTES = 6


class _Member(Protocol):
    """One member of a compressed stream."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Unpack data, piece by piece."""
        ...

    @property
    def is_done(self) -> bool:
        """Return whether the member's end was read."""
        ...

    @property
    def rest(self) -> bytes:
        """Return what was fed beyond the member's end."""
        ...


class _Gzip:
    def __init__(self) -> None:
        self._unpacker = zlib.decompressobj(wbits=31)

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data and not self._unpacker.eof:
            yield self._unpacker.decompress(data, _OUT_BYTES)
            data = self._unpacker.unconsumed_tail

    @property
    def is_done(self) -> bool:
        return self._unpacker.eof

    @property
    def rest(self) -> bytes:
        return self._unpacker.unused_data


class _Bounded:
    """xz and bzip2, whose standard library objects work alike."""

    def __init__(self, unpacker: lzma.LZMADecompressor | bz2.BZ2Decompressor) -> None:
        self._unpacker = unpacker

    def feed(self, data: bytes) -> Iterator[bytes]:
        yield self._unpacker.decompress(data, _OUT_BYTES)
        while not self._unpacker.eof and not self._unpacker.needs_input:
            yield self._unpacker.decompress(b"", _OUT_BYTES)

    @property
    def is_done(self) -> bool:
        return self._unpacker.eof

    @property
    def rest(self) -> bytes:
        return self._unpacker.unused_data


class _Zstd:
    def __init__(self) -> None:
        import zstandard

        self._unpacker = zstandard.ZstdDecompressor().decompressobj()
        self._after = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _ZSTD_STEP_BYTES):
            yield self._unpacker.decompress(data[start : start + _ZSTD_STEP_BYTES])
            if self._unpacker.eof:
                self._after = self._unpacker.unused_data + data[start + _ZSTD_STEP_BYTES :]
                return

    @property
    def is_done(self) -> bool:
        return self._unpacker.eof

    @property
    def rest(self) -> bytes:
        return self._after


_FORMATS: dict[str, Callable[[], _Member]] = {
    "gzip": _Gzip,
    "zstd": _Zstd,
    "xz": lambda: _Bounded(lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)),
    "bzip2": lambda: _Bounded(bz2.BZ2Decompressor()),
}


def packing_of(head: bytes) -> str:
    """Return 'gzip', 'zstd', 'xz' or 'bzip2' by the first MAGIC_BYTES of a stream, '' for anything else."""
    if head.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    # a zstd frame, or a skippable frame before one (pzstd writes those)
    if head.startswith(b"\x28\xb5\x2f\xfd") or (head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F):
        return "zstd"
    if head.startswith(b"\xfd7zXZ\x00"):
        return "xz"
    if head[:3] == b"BZh" and head[3:4].isdigit() and head[4:6] in (b"\x31\x41", b"\x17\x72"):
        return "bzip2"
    return ""


def unpacked(packing: str, stream: Iterator[bytes], losses: LossLedger) -> Iterator[bytes]:
    """Unpack a stream of packed bytes; what cannot be unpacked ends it and is counted in losses."""
    damaged: tuple[type[Exception], ...] = (zlib.error, lzma.LZMAError, OSError, EOFError)
    if packing == "zstd":
        import zstandard

        damaged = (zstandard.ZstdError,)
    try:
        yield from _members(packing, stream, losses)
    except damaged as error:
        losses.add("damaged_input", example=f"{packing}: {error}")


def _members(packing: str, stream: Iterator[bytes], losses: LossLedger) -> Iterator[bytes]:
    make = _FORMATS[packing]
    member: _Member | None = None
    pending = b""
    for data in stream:
        pending += data
        while pending:
            if member is None:
                pending = pending.lstrip(b"\0")  # padding between members and at the end: tar, tape, xz
                if len(pending) < MAGIC_BYTES:
                    break
                if packing_of(pending) != packing:
                    losses.add("damaged_input", example=f"{packing}: other bytes follow its end")
                    return
                member = make()
            data, pending = pending, b""
            for piece in member.feed(data):
                if piece:
                    yield piece
            if member.is_done:
                pending, member = member.rest, None
    if member is not None or pending:
        losses.add("truncated_input", example=f"{packing}: the stream ends early")
