"""Cuts `perf script` text where a sample surely begins, so that several processes can read it piece by piece."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from collectors import perf_header
from collectors.perf_header import Layout

FEED_BYTES = 1 << 18  # measured: larger parts leave the caches, and each costs fresh pages
PIECE_BYTES = 8 << 20
_BORDER_WINDOW = 1 << 18
_LARGEST_PIECE = 64 << 20  # without any sample line in it: then it goes on as it is

# a piece in a file (number, path, offset, length), or its text (number, text)
Task = tuple[int, str, int, int] | tuple[int, bytes]


def find_border(text: bytes, layout: Layout) -> int | None:
    """Return where in text a sample surely begins, whatever came before; None where no such place is."""
    at = text.find(b"\n\n")
    while at >= 0:
        start = at + 2
        end = text.find(b"\n", start)
        if end < 0:
            break
        if _is_sample_line(text[start:end], layout):
            return start
        at = text.find(b"\n\n", start)
    # no blank lines: tracepoints without stacks. Between two sample lines no process name is cut
    lines = text.split(b"\n")
    at = len(lines[0]) + 1
    was_sample = False
    for line in lines[1:-1][:5000]:
        is_sample = _is_sample_line(line, layout)
        if is_sample and was_sample:
            return at
        was_sample = is_sample
        at += len(line) + 1
    return None


def _is_sample_line(line: bytes, layout: Layout) -> bool:
    if line[:1] in (b"\t", b"#", b""):
        return False
    return any(
        perf_header.parse_prefix(line[: match.start()], layout) is not None
        and perf_header.parse_suffix(line[match.end() :]) is not None
        for match in perf_header.times_in(line)
    )


def file_pieces(path: Path, layout: Layout) -> Iterator[tuple[int, int]]:
    """Yield (offset, length) of the pieces of a plain file."""
    size = path.stat().st_size
    start = 0
    with path.open("rb") as file:
        while start < size:
            target = start + PIECE_BYTES
            end = size
            window = _BORDER_WINDOW
            while target < size:
                file.seek(target)
                border = find_border(file.read(window), layout)
                if border is not None:
                    end = target + border
                    break
                window *= 4
                if window > _LARGEST_PIECE:
                    target, window = target + window, _BORDER_WINDOW
            yield start, end - start
            start = end


def stream_pieces(chunks: Iterable[bytes], layout: Layout) -> Iterator[bytes]:
    """Yield a stream of text as pieces of whole samples."""
    held = b""
    for chunk in chunks:
        held += chunk
        while len(held) >= 2 * PIECE_BYTES:
            border = find_border(held[PIECE_BYTES : PIECE_BYTES + _BORDER_WINDOW], layout)
            if border is None:
                border = find_border(held[PIECE_BYTES:], layout)
            if border is None:
                if len(held) < _LARGEST_PIECE:
                    break
                border = held.rfind(b"\n", 0, PIECE_BYTES) + 1 - PIECE_BYTES or 0
            yield held[: PIECE_BYTES + border]
            held = held[PIECE_BYTES + border :]
    if held:
        yield held


def feeds(text: bytes) -> Iterator[bytes]:
    """Yield text in parts that end at line ends and suit the CPU's cache."""
    start = 0
    while start < len(text):
        end = text.rfind(b"\n\n", start, start + FEED_BYTES)
        end = text.rfind(b"\n", start, start + FEED_BYTES) + 1 if end < 0 else end + 2
        if end <= start or len(text) - start <= FEED_BYTES:
            end = len(text) if len(text) - start <= FEED_BYTES else text.find(b"\n", start) + 1 or len(text)
        yield text[start:end]
        start = end


def file_feeds(path: Path, offset: int, length: int) -> Iterator[bytes]:
    """Yield a piece of a file in parts as `feeds` does, without holding the piece."""
    end = offset + length
    with path.open("rb", buffering=0) as file:
        while offset < end:
            text = os.pread(file.fileno(), min(FEED_BYTES, end - offset), offset)
            if not text:
                return
            if offset + len(text) < end:
                cut = text.rfind(b"\n\n") + 2
                if cut < 2:
                    cut = text.rfind(b"\n") + 1
                if cut > 0:
                    text = text[:cut]
            offset += len(text)
            yield text


def task_bytes(task: Task) -> int:
    """Return how many bytes of text a task holds."""
    return len(task[1]) if len(task) == 2 else task[3]
