"""Writes results: a file appears whole or not at all; standard output gets bytes as they are."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pipeline.errors import WorkError, from_os_error, one_line
from pipeline.text import encode

_LONG_WORK_BYTES = 32 << 20


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[Path]:
    """Yield a temporary path beside path that takes its place on success and is gone on failure."""
    target = Path(path)
    if target.exists() and not target.is_file():  # a device or a pipe: write through
        yield target
        return
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", dir=target.parent)
        os.close(handle)
    except OSError as error:
        raise from_os_error(error, path) from None
    part = Path(name)
    try:
        yield part
        part.chmod(0o666 & ~_umask())
        part.replace(target)
    except OSError as error:
        raise from_os_error(error, path) from None
    finally:
        part.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows, the first of them the names, as lines of a terminal with cells one below the other."""
    cells = [[one_line(cell, 200) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def write(content: str | bytes, path: str | None) -> None:
    """Write content to path, or to standard output where it is None."""
    raw = encode(content) if isinstance(content, str) else content
    if path is None or path == "-":
        if sys.stdout is None:
            raise WorkError("standard output is closed", "write to a file with -o")
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()
        return
    with whole_file(path) as part:
        part.write_bytes(raw)


@contextlib.contextmanager
def progress(total_bytes: int | None, what: str) -> Iterator[Callable[[int], None] | None]:
    """Yield what to tell bytes read to: a progress bar on a terminal for long work, None elsewhere."""
    if total_bytes is None or total_bytes < _LONG_WORK_BYTES or not sys.stderr.isatty():
        yield None
        return
    import click

    with click.progressbar(length=total_bytes, label=what, file=sys.stderr) as bar:
        yield bar.update


def note(line: str) -> None:
    """Say something on standard error."""
    print(line, file=sys.stderr)
