"""Opens an input, a path or standard input, as plain text: through compression, byte order marks and CRLF.

What was looked through is told by content, never by a suffix, and said in `Source.notes`. Everything streams:
memory does not grow with the input.
"""

from __future__ import annotations

import codecs
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from collectors.unpack import MAGIC_BYTES, packing_of, unpacked
from pipeline.errors import InputError, from_os_error
from pipeline.losses import LossLedger

STDIN_NAME = "<stdin>"
_RAW_BYTES = 1 << 20
_LOOK_BYTES = 1 << 16  # what encoding and line ends are judged by
_LONGEST_LINE_BYTES = 64 << 20

_MARKS = (
    (codecs.BOM_UTF8, ""),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16: its mark begins with that of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Source:
    """One input. A regular file can be read again and again; a pipe once."""

    def __init__(self, name: str, stream: BinaryIO, path: Path | None = None) -> None:
        self.name = name
        self.path = path
        self.losses = LossLedger()
        self.notes: list[str] = []
        self._carried_losses = LossLedger()
        self._carried_notes: list[str] = []
        self._stream = stream
        self._status = _status_of(stream)
        self._is_rewindable = (
            path is not None and self._status is not None and stat.S_ISREG(self._status.st_mode)
        )
        self._is_fresh = True
        self._is_spent = False
        self._head = b""
        self._text: Iterator[bytes] | None = None

    @classmethod
    def open_path(cls, path: str) -> Source:
        """Open a file, FIFO or device; raise WorkError or InputError where that fails."""
        try:
            return cls(path, Path(path).open("rb", buffering=0), Path(path))
        except OSError as error:
            raise from_os_error(error, path) from error
        except ValueError as error:  # a NUL in the name
            raise InputError("no such file", "check the path", path=path) from error

    @classmethod
    def stdin(cls) -> Source:
        """Open standard input; raise InputError where it is closed."""
        if sys.stdin is None or sys.stdin.closed:
            raise InputError("standard input is closed", "give a file", path=STDIN_NAME)
        return cls(STDIN_NAME, sys.stdin.buffer)

    @classmethod
    def open(cls, argument: str) -> Source:
        """Open what a command line names: a path, or `-` for standard input."""
        return cls.stdin() if argument == "-" else cls.open_path(argument)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if self._stream is not getattr(sys.stdin, "buffer", None):
            self._stream.close()

    def carry(self, notes: list[str], losses: LossLedger) -> None:
        """Take over what was noted and lost on the way to this source, which was made from another."""
        self._carried_notes, self._carried_losses = notes, losses

    @property
    def size_bytes(self) -> int | None:
        """Return the size of a regular file as it lies on the disk, compressed or not; else None."""
        status = self._status
        return status.st_size if status is not None and stat.S_ISREG(status.st_mode) else None

    def is_plain_file(self) -> bool:
        """Return whether the text is the file as it stands, so that processes can read ranges of it."""
        if self.path is None or not self._is_rewindable:
            return False
        if str(self.path.absolute()).startswith(("/dev/", "/proc/")):
            return False  # /dev/stdin of another process is another file
        self.head()
        return not self.notes

    def head(self, n: int = _LOOK_BYTES) -> bytes:
        """Return the first n bytes of the text, fewer only where it is shorter; nothing is consumed."""
        if len(self._head) < n and (not self._is_spent or self._is_rewindable):
            if self._text is None:
                self._head, self._text, self._is_spent = b"", self._open_text(), False
            parts, held = [self._head], len(self._head)
            while held < n and (piece := next(self._text, None)) is not None:
                parts.append(piece)
                held += len(piece)
            self._head = b"".join(parts)
        return self._head[:n]

    def chunks(self, size: int = 16 << 20) -> Iterator[bytes]:
        """Yield the whole text in pieces of size bytes, the last one shorter."""
        text = self._text
        parts, held = [self._head], len(self._head)
        if text is None:
            text = self._open_text()
            parts, held = [], 0
        self._text, self._is_spent = None, True
        for piece in text:
            parts.append(piece)
            held += len(piece)
            if held >= size:
                whole, end = b"".join(parts), held - held % size
                for start in range(0, end, size):
                    yield whole[start : start + size]
                parts, held = [whole[end:]], held - end
        whole = b"".join(parts)
        for start in range(0, held, size):
            yield whole[start : start + size]

    def line_chunks(self, size: int = 1 << 20) -> Iterator[bytes]:
        """Yield the whole text in pieces of about size bytes; all but the last end with a line's end."""
        parts: list[bytes] = []
        held = 0
        for chunk in self.chunks(size):
            end = chunk.rfind(b"\n") + 1
            if end:
                yield b"".join([*parts, chunk[:end]])
                parts, held = [], 0
            if end < len(chunk):
                parts.append(chunk[end:])
                held += len(chunk) - end
                if held > _LONGEST_LINE_BYTES:
                    raise InputError(
                        "a line longer than 64 MiB", "this is not a text of stacks", path=self.name
                    )
        if held:
            yield b"".join(parts)

    def _open_text(self) -> Iterator[bytes]:
        if not self._is_fresh:
            if not self._is_rewindable:
                raise InputError("a pipe can be read only once", "save it to a file first", path=self.name)
            self._stream.seek(0)
        self._is_fresh = False
        self.notes = list(self._carried_notes)
        self.losses = LossLedger()
        self.losses.merge(self._carried_losses.as_tuple())
        return self._as_text(self._unpacked())

    def _unpacked(self) -> Iterator[bytes]:
        """Yield bytes through at most two layers of compression (a .gz inside a .gz)."""
        stream = self._raw()
        for _ in range(2):
            head, stream = _peek(stream, MAGIC_BYTES)
            packing = packing_of(head)
            if not packing:
                break
            self.notes.append(packing)
            stream = unpacked(packing, stream, self.losses)
        return stream

    def _raw(self) -> Iterator[bytes]:
        # what a pipe holds now, not a full megabyte later
        read: Callable[[int], bytes | None] = getattr(self._stream, "read1", self._stream.read)
        try:
            while data := read(_RAW_BYTES):
                yield data
        except OSError as error:
            raise from_os_error(error, self.name) from error
        except ValueError as error:  # closed underneath us
            raise InputError("the input was closed", path=self.name) from error

    def _as_text(self, stream: Iterator[bytes]) -> Iterator[bytes]:
        head, stream = _peek(stream, _LOOK_BYTES)
        encoding, mark = encoding_of(head)
        if mark:
            stream = _skip(stream, mark)
        if encoding:
            self.notes.append(f"{encoding[:6].upper()}, decoded")
            stream = self._decoded(stream, encoding)
            head, stream = _peek(stream, _LOOK_BYTES)
        elif mark:
            self.notes.append("byte order mark, skipped")
        if b"\0" not in head and head.count(b"\r\n") * 2 > head.count(b"\n"):
            self.notes.append("CRLF line ends")
            stream = _without_cr(stream)
        yield from stream

    def _decoded(self, stream: Iterator[bytes], encoding: str) -> Iterator[bytes]:
        decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
        for data in stream:
            try:
                yield decoder.decode(data).encode("utf-8", "surrogatepass")
            except UnicodeDecodeError as error:
                self.losses.add("damaged_input", example=f"{encoding}: {error.reason}")
                return
        if decoder.getstate()[0]:
            self.losses.add("truncated_input", example=f"{encoding}: the last character is cut")


def encoding_of(head: bytes) -> tuple[str, int]:
    """Return the encoding of a text ('' for UTF-8 and ASCII), and the length of its byte order mark."""
    for mark, encoding in _MARKS:
        # a name may begin with the bytes ff fe: text in UTF-16 has a NUL in every line end at least
        if head.startswith(mark) and (not encoding or b"\0" in head[len(mark) :]):
            return encoding, len(mark)
    # text of the Latin scripts in UTF-16 without a mark: every second byte is NUL, and no other
    even, odd = head[: len(head) & ~1 : 2], head[1::2]
    if len(odd) >= 8:
        if not odd.strip(b"\0") and b"\0" not in even:
            return "utf-16-le", 0
        if not even.strip(b"\0") and b"\0" not in odd:
            return "utf-16-be", 0
    return "", 0


def _status_of(stream: BinaryIO) -> os.stat_result | None:
    try:
        return os.fstat(stream.fileno())
    except (OSError, ValueError):
        return None  # not a real file: bytes in memory


def _peek(stream: Iterator[bytes], n: int) -> tuple[bytes, Iterator[bytes]]:
    """Return the first n bytes (fewer at the end) and the whole stream again."""
    parts: list[bytes] = []
    size = 0
    while size < n and (piece := next(stream, None)) is not None:
        parts.append(piece)
        size += len(piece)
    start = b"".join(parts)

    def again() -> Iterator[bytes]:
        if start:
            yield start
        yield from stream

    return start[:n], again()


def _skip(stream: Iterator[bytes], n: int) -> Iterator[bytes]:
    for piece in stream:
        if len(piece) > n:
            yield piece[n:]
        n = max(0, n - len(piece))


def _without_cr(stream: Iterator[bytes]) -> Iterator[bytes]:
    """Make CRLF an LF, also where a piece ends between the two; a CR alone stays."""
    held = b""
    for piece in stream:
        piece = held + piece
        held = b"\r" if piece.endswith(b"\r") else b""
        yield (piece[:-1] if held else piece).replace(b"\r\n", b"\n")
    if held:
        yield held
