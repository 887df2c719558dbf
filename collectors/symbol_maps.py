"""Copies the JIT symbol maps of the processes that were seen (/tmp/perf-PID.map) into a capture.

    7f3b2c0010a0 5c py::forward:/srv/model.py

Anybody may write to /tmp, so only plain files are taken: no symbolic or hard link, one's own unless root
asks, and not over a size.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

MAP_FOLDER = Path("/tmp")
# our choice: the maps of large Java services are some 10 MiB
MAX_FILE_BYTES, MAX_ALL_BYTES = 64 << 20, 256 << 20
_CHUNK_BYTES = 1 << 20


def copy_maps(pids: Iterable[int], into: Path, folder: Path = MAP_FOLDER) -> tuple[list[str], list[str]]:
    """Copy what is there for pids; return (names of the copies below into, notes on what was left out)."""
    names: list[str] = []
    notes: list[str] = []
    left_bytes = MAX_ALL_BYTES
    for pid in sorted(set(pids)):
        name = f"perf-{pid}.map"
        try:
            fd = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue  # no map, or a link: perf-PID.map is a promise of the runtime, not of every process
        try:
            why_not = _why_not(os.fstat(fd), left_bytes)
            if why_not:
                notes.append(f"{name} was left out: {why_not}")
                continue
            into.mkdir(exist_ok=True)
            left_bytes -= _copy(fd, into / name)
            names.append(name)
        finally:
            os.close(fd)
    return names, notes


def _why_not(status: os.stat_result, left_bytes: int) -> str:
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        return "it is not a plain file"
    if os.geteuid() not in (0, status.st_uid):
        return "it belongs to another user"
    if status.st_size > min(MAX_FILE_BYTES, left_bytes):
        return f"it has {status.st_size} bytes"
    return ""


def _copy(fd: int, target: Path) -> int:
    """Copy at most MAX_FILE_BYTES, even if the file grows meanwhile; return how many."""
    copied = 0
    with target.open("xb") as out:
        while copied < MAX_FILE_BYTES and (chunk := os.read(fd, _CHUNK_BYTES)):
            out.write(chunk)
            copied += len(chunk)
    return copied
