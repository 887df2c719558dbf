"""What a recording is watched with: the rate of events, processes that end, and what the kernel offers."""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

SECOND_NS = 1_000_000_000
_TRACEFS = (Path("/sys/kernel/tracing/events"), Path("/sys/kernel/debug/tracing/events"))


def has_event(name: str) -> bool:
    """Return whether this kernel has a tracepoint; where tracefs cannot be read perf shall say so itself."""
    readable = [folder for folder in _TRACEFS if os.access(folder, os.R_OK | os.X_OK)]
    return not readable or any((folder / name.replace(":", "/")).is_dir() for folder in readable)


class Rate:
    """Tells whether more than so many events a second came, for two seconds.

    Shorter bursts are ordinary: perf hands over what its buffers held, and a shell script starts.
    """

    WINDOW_S = 2

    def __init__(self, most_per_s: int, start_ns: int) -> None:
        self._most = most_per_s
        self._seen: deque[tuple[int, int]] = deque([(start_ns, 0)])

    def is_over(self, now_ns: int, events: int) -> bool:
        """Take the count at now; return whether the last two seconds brought too many."""
        self._seen.append((now_ns, events))
        while len(self._seen) > 2 and self._seen[1][0] <= now_ns - self.WINDOW_S * SECOND_NS:
            self._seen.popleft()
        return events - self._seen[0][1] > self._most * self.WINDOW_S


class Sleep:
    """Sleeps, but wakes at once when one of some processes ends."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._fds: list[int] = []
        for pid in pids:
            with suppress(OSError):  # it has ended already, or this kernel is older than 5.3
                self._fds.append(os.pidfd_open(pid))

    def __enter__(self) -> Sleep:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._fds:
            os.close(fd)

    def for_seconds(self, seconds: float) -> None:
        """Sleep for so long, or until a process ends."""
        select.select(self._fds, [], [], seconds)
