"""Reads clocks that no system call shows, by marks that a tracer stamps: perf's own clock, and the TSC.

A mark is an event that a tracer sees between two reads of CLOCK_MONOTONIC, so it ties the tracer's clock to ktime
within half of that bracket. perf sees a system call that nobody else makes, ftrace a line of its trace_marker:

    flameslice 10455 [001] 34567.394868155: syscalls:sys_enter_getpriority: which: 0x666c6963, who: 0x00000007
    flameslice-10405 [000] ...1. 89740668660786: tracing_mark_write: flameslice 7
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from collectors.clock_snapshots import Reading
from collectors.perf_process import PerfProcess, environment
from pipeline.errors import WorkError

MAGIC = 0x666C6963  # 'flic', as `which` of getpriority, which knows 0 to 2
EVENT = "syscalls:sys_enter_getpriority"
MARKS_FILE = "perf-marks.data"
TRACEFS = Path("/sys/kernel/tracing")
TSC_CLOCK = "x86-tsc"

# our choice: the first try after a sleep is slow
_TRIES = 4
_READ_SECONDS = 60
_LIBC = ctypes.CDLL(None, use_errno=True)
# getpriority by `uname -m`; an architecture that is not here goes without marks
_GETPRIORITY = {"x86_64": 140, "aarch64": 141, "riscv64": 141, "loongarch64": 141, "ppc64le": 96, "s390x": 96}
_PERF_LINE = re.compile(rb"(\d+)\.(\d{9}): +" + EVENT.encode() + rb": which: 0x666c6963, who: 0x([0-9a-f]+)")
_TRACE_LINE = re.compile(rb" (\d+): tracing_mark_write: flameslice (\d+)\s*$", re.M)

Bracket = tuple[int, int]  # CLOCK_MONOTONIC before and after a mark, ns


class TscMarks:
    """Stamps marks with the TSC, in a tracefs instance of our own that is removed at the end.

    Raises OSError where there is no tracefs, no right to it, or no x86-tsc.
    """

    def __init__(self, tracefs: Path = TRACEFS) -> None:
        instances = tracefs / "instances"
        for left in instances.glob("flameslice-*"):  # by one that was killed
            pid = left.name.removeprefix("flameslice-")
            if pid.isdigit() and not Path("/proc", pid).exists():
                with contextlib.suppress(OSError):
                    left.rmdir()
        self._folder = instances / f"flameslice-{os.getpid()}"
        self._folder.mkdir()
        try:
            (self._folder / "trace_clock").write_text(TSC_CLOCK)
            self._marker = os.open(self._folder / "trace_marker", os.O_WRONLY)
        except OSError:
            self._folder.rmdir()
            raise
        self._brackets: dict[int, Bracket] = {}

    def mark(self, snapshot: int) -> None:
        """Write a snapshot's marks; the trace is one buffer, so thousands of them fit."""
        for number in range(snapshot * _TRIES, (snapshot + 1) * _TRIES):
            text = b"flameslice %d\n" % number
            self._brackets[number] = _bracketed(partial(os.write, self._marker, text))

    def finish(self) -> dict[int, tuple[Reading, ...]]:
        """Return each snapshot's readings of monotonic and tsc, and remove the instance."""
        try:
            trace = (self._folder / "trace").read_bytes()
        finally:
            os.close(self._marker)
            self._folder.rmdir()
        stamped = {int(number): int(ticks) for ticks, number in _TRACE_LINE.findall(trace)}
        return best_of("tsc", self._brackets, stamped)


class PerfMarks:
    """Has a perf on its default clock see this process's marks; raises WorkError where perf refuses."""

    def __init__(self, perf: str, folder: Path, arch: str) -> None:
        number = _GETPRIORITY.get(arch)
        if number is None:
            raise WorkError(f"no number of getpriority is known for {arch}", "record with -k monotonic")
        self._perf, self._output, self._number = perf, folder / MARKS_FILE, number
        self._brackets: dict[int, Bracket] = {}
        control = "@CONTROL@"
        arguments = [
            "record",
            "-N",
            "--no-bpf-event",
            "-D",
            "-1",
            "--control",
            control,
            "-o",
            str(self._output),
        ]
        arguments += ["-m", "16", "-e", EVENT, "--filter", f"which == {MAGIC}", "-p", str(os.getpid())]
        self._process = PerfProcess(perf, arguments, control, self._output)
        try:
            self._process.enable()
        except WorkError:
            self._process.forget()
            raise

    @property
    def pid(self) -> int:
        """Return the process id of the perf that looks."""
        return self._process.pid

    def mark(self, snapshot: int) -> None:
        """Make a snapshot's system calls."""
        for number in range(snapshot * _TRIES, (snapshot + 1) * _TRIES):
            call = ctypes.c_long(self._number), ctypes.c_int(MAGIC), ctypes.c_int(number)
            self._brackets[number] = _bracketed(partial(_LIBC.syscall, *call))

    def finish(self) -> dict[int, tuple[Reading, ...]]:
        """Return each snapshot's readings of monotonic and perf, and remove perf's file."""
        try:
            self._process.stop()
            self._process.forget()
            done = subprocess.run(
                [self._perf, "script", "--ns", "-i", str(self._output)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=environment(),
                timeout=_READ_SECONDS,
                check=False,
            )
        finally:
            self._output.unlink(missing_ok=True)
        stamped = {
            int(number, 16): int(seconds) * 1_000_000_000 + int(ns)
            for seconds, ns, number in _PERF_LINE.findall(done.stdout)
        }
        return best_of("perf", self._brackets, stamped)


class Marks:
    """The marks of one recording: whatever of the two can be had; `notes` says what cannot."""

    def __init__(self, perf: str, folder: Path, arch: str, clock: str) -> None:
        self.notes: list[str] = []
        self._tracers: list[TscMarks | PerfMarks] = []
        try:
            self._tracers.append(TscMarks())
        except OSError as error:
            if arch == "x86_64":
                self.notes.append(f"the TSC was not read: {error.strerror} ({error.filename})")
        if clock == "perf":
            try:
                self._tracers.append(PerfMarks(perf, folder, arch))
            except WorkError as error:
                self.notes.append(f"perf's clock is not tied to others: {error}")

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the tracers."""
        return [one.pid for one in self._tracers if isinstance(one, PerfMarks)]

    def mark(self, snapshot: int) -> None:
        """Make a snapshot's marks."""
        for tracer in self._tracers:
            tracer.mark(snapshot)

    def finish(self) -> list[tuple[Reading, ...]]:
        """Return what each snapshot's marks say, a tracer after the other, and leave nothing behind."""
        found: list[tuple[Reading, ...]] = []
        for tracer in self._tracers:
            try:
                found += tracer.finish().values()
            except (OSError, subprocess.TimeoutExpired) as error:
                self.notes.append(f"marks could not be read: {error}")
        self._tracers = []
        return found


def best_of(
    clock: str, brackets: Mapping[int, Bracket], stamped: Mapping[int, int]
) -> dict[int, tuple[Reading, ...]]:
    """Return what the tightest of each snapshot's marks says: monotonic with half the bracket, and the clock."""
    best: dict[int, tuple[int, tuple[Reading, ...]]] = {}
    for number, value in stamped.items():
        if number not in brackets:
            continue
        before_ns, after_ns = brackets[number]
        width_ns = after_ns - before_ns
        snapshot = number // _TRIES
        if snapshot not in best or width_ns < best[snapshot][0]:
            middle = Reading("monotonic", (before_ns + after_ns) // 2, (width_ns + 1) // 2)
            best[snapshot] = width_ns, (middle, Reading(clock, value, 0))
    return {snapshot: readings for snapshot, (_, readings) in sorted(best.items())}


def _bracketed(mark: Callable[[], object]) -> Bracket:
    before_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    with contextlib.suppress(OSError):
        mark()
    return before_ns, time.clock_gettime_ns(time.CLOCK_MONOTONIC)
