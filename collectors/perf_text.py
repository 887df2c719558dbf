"""Turns the perf.data files of one recording into one text with names, in order of time, as perf prints it:

    worker 14225/14225 [001]  2179.425850161:    1001001 cpu-clock:
        ffffffff821fae4e __schedule+0x78e ([kernel.kallsyms])
                       ee017 __sched_yield+0x7 (/usr/lib/x86_64-linux-gnu/libc.so.6)

This runs on the host that recorded, while its symbols, JIT maps and kernel addresses are there.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from heapq import merge
from pathlib import Path
from typing import IO, BinaryIO

from collectors.perf_process import ends_with_parent, environment, refusal

_FIELDS = "comm,pid,tid,cpu,time,period,event,ip,sym,symoff,dso,trace"
_LOW_PRIORITY = 10  # the target may still run

# pid/tid [cpu] seconds.nanoseconds: then ` period event: ` or a PERF_RECORD line
_HEADER = re.compile(rb" +(-?\d+)/(-?\d+) +\[\d+\] +(\d+)\.(\d{9}): +(?:PERF_RECORD_(\w+)|\d+ +(\S+?):\s)")
_OTHER_PID = re.compile(rb"(?:next|prev) pid/tid: *(-?\d+)/")


@dataclass(frozen=True, slots=True)
class Recorded:
    """One perf.data, and which of perf's records its text shows."""

    path: Path
    switch_records: bool
    task_records: bool
    from_ns: int = 0  # records before this, while perf set itself up, are left out


@dataclass(slots=True)
class TextReport:
    """What the text holds."""

    events: Counter[str] = field(default_factory=Counter)
    first_of: dict[str, int] = field(default_factory=dict)  # event -> ns of its first
    recorder_samples: int = 0  # left out: the recorder's own
    failures: list[str] = field(default_factory=list)

    def default_event(self, cpu_event: str) -> str:
        """Return the CPU samples' event as perf spells it (`cpu-clock:u` without root), else the first."""
        spelled = [name for name in self.events if name.partition(":")[0] == cpu_event]
        return (spelled or sorted(self.first_of, key=self.first_of.__getitem__) or [""])[0]


def write_text(
    perf: str, recorded: Sequence[Recorded], cpu_event: str, recorder_pids: frozenset[int], out: BinaryIO
) -> TextReport:
    """Write the merged text of recordings that share a clock, compressed with zstd."""
    import zstandard

    report = TextReport()
    with ExitStack() as stack:
        streams = [stack.enter_context(_PerfScript(perf, one)) for one in recorded]
        writer = stack.enter_context(zstandard.ZstdCompressor(level=3).stream_writer(out, closefd=False))
        timed = [
            _from(blocks(stream.lines()), one.from_ns) for stream, one in zip(streams, recorded, strict=True)
        ]
        for _, block in merge(*timed, key=lambda timed_block: timed_block[0]):
            if _is_kept(block, cpu_event.encode(), recorder_pids, report):
                writer.write(block)
        report.failures += [words for one in streams if (words := one.failure())]
    return report


def blocks(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield (time in ns, text) for each sample or record, its frames and blank line included.

    A line before a header that is neither frame nor blank is the first half of a name with a line feed in it.
    """
    block: list[bytes] = []
    time_ns: int | None = None
    last_ns = 0
    for line in lines:
        if line[:1] in (b"\t", b"\n"):
            block.append(line)
            continue
        header = _HEADER.search(line)
        if time_ns is not None:
            yield time_ns, b"".join(block)
            block, last_ns, time_ns = [], time_ns, None
        block.append(line)
        if header is not None:
            time_ns = int(header[3]) * 1_000_000_000 + int(header[4])
    if block:
        yield last_ns if time_ns is None else time_ns, b"".join(block)


def _from(timed_blocks: Iterable[tuple[int, bytes]], from_ns: int) -> Iterator[tuple[int, bytes]]:
    """Leave out what is earlier than from_ns, but for losses."""
    return (timed for timed in timed_blocks if timed[0] >= from_ns or b"PERF_RECORD_LOST" in timed[1])


def _is_kept(block: bytes, cpu_event: bytes, recorder_pids: frozenset[int], report: TextReport) -> bool:
    """Count a block; return False for what perf made up at the start, and for the recorder's own doings."""
    header = _HEADER.search(block)
    if header is None:
        return True
    pid, record, event = int(header[1]), header[5], header[6]
    if record is not None:
        if not int(header[3]) and not int(header[4]) and not record.startswith(b"LOST"):
            return False  # at time 0: the processes that were there before, whether they take part or not
        if record.startswith(b"SWITCH") and (other := _OTHER_PID.search(block)) is not None:
            return not {pid, int(other[1])} <= recorder_pids | {0}
        return True
    if pid in recorder_pids and event.partition(b":")[0] == cpu_event:
        report.recorder_samples += 1
        return False
    name = event.decode("utf-8", "replace")
    if name not in report.first_of:
        report.first_of[name] = int(header[3]) * 1_000_000_000 + int(header[4])
    report.events[name] += 1
    return True


class _PerfScript:
    """One running `perf script`."""

    def __init__(self, perf: str, recorded: Recorded) -> None:
        options = ["-f", "--no-inline", "--ns", "--show-lost-events", "-F", _FIELDS]
        options += ["--show-switch-events"] if recorded.switch_records else []
        options += ["--show-task-events"] if recorded.task_records else []
        self._name = recorded.path.name
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this object
        self._process = subprocess.Popen(
            [perf, "script", *options, "-i", str(recorded.path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=environment(),
            process_group=0,
            preexec_fn=_at_low_priority,
        )

    def __enter__(self) -> _PerfScript:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdout is not None
        if self._process.poll() is None:
            self._process.kill()
        self._process.stdout.close()
        self._process.wait()
        self._stderr.close()

    def lines(self) -> Iterator[bytes]:
        """Yield perf's lines."""
        assert self._process.stdout is not None
        yield from self._process.stdout

    def failure(self) -> str:
        """Return why perf could not print all, empty where it could; the lines must be read to their end."""
        if self._process.wait() == 0:
            return ""
        words = os.pread(self._stderr.fileno(), 1 << 16, 0).decode("utf-8", "backslashreplace")
        return f"{self._name}: {refusal(words, 'unknown').problem}"


def _at_low_priority() -> None:
    ends_with_parent()
    os.nice(_LOW_PRIORITY)
