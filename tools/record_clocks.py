"""Records one run of marker calls as five clocks see it, for tests/data/clocks and docs/clocks.md.

    PYTHONPATH=. python tools/record_clocks.py FOLDER [SECONDS]

A marker is a getpriority call between two reads of CLOCK_MONOTONIC. perf sees it on its default clock, with
-k CLOCK_MONOTONIC and with -k CLOCK_MONOTONIC_RAW, ftrace with trace_clock x86-tsc. Beside them the clocks are read
once a second as `flameslice record` reads them. Needs root, perf and tracefs; nothing of the host's own is changed.
"""

from __future__ import annotations

import csv
import ctypes
import gzip
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from collectors import clock_snapshots
from collectors.clock_markers import EVENT, MAGIC, TRACEFS, PerfMarks, TscMarks
from collectors.perf_process import environment, find_perf

FIRST = 1 << 20  # numbers of our own, beside those of the marks once a second
EVERY_S = 0.05
WARM_CALLS = (
    5  # four tracers stamp one after the other: 1 to 9 us each after a sleep, far less when that is warm
)
CLOCKS: dict[str, list[str]] = {
    "perf": [],
    "monotonic": ["-k", "CLOCK_MONOTONIC"],
    "monotonic_raw": ["-k", "CLOCK_MONOTONIC_RAW"],
}
SYSCALL = {"x86_64": 140, "aarch64": 141}


def main(folder: Path, seconds: float) -> None:
    """Record, and leave small text files in folder."""
    folder.mkdir(parents=True, exist_ok=True)
    perf = find_perf()
    instance = TRACEFS / "instances" / f"markers-{os.getpid()}"
    instance.mkdir()
    try:
        (instance / "trace_clock").write_text("x86-tsc")
        (instance / "set_event_pid").write_text(str(os.getpid()))
        (instance / "events/syscalls/sys_enter_getpriority/enable").write_text("1")
        recorders = [
            subprocess.Popen(
                [
                    perf,
                    "record",
                    "-q",
                    "-N",
                    *options,
                    "-e",
                    EVENT,
                    "-p",
                    str(os.getpid()),
                    "-o",
                    f"{clock}.data",
                ],
                cwd=folder,
                env=environment(),
            )
            for clock, options in CLOCKS.items()
        ]
        time.sleep(2)  # until each of them records
        markers, lines = _mark(perf, folder, seconds)
        for recorder in recorders:
            recorder.send_signal(2)
            recorder.wait()
        trace = (instance / "trace").read_text()
    finally:
        (instance / "events/enable").write_text("0")
        instance.rmdir()
    _write(folder / "trace.txt.gz", "".join(f"{line}\n" for line in trace.splitlines() if _is_marker(line)))
    _write(folder / "clocks.jsonl.gz", "".join(lines))
    for clock in CLOCKS:
        printed = subprocess.run(
            [perf, "script", "--ns", "-F", "comm,pid,tid,cpu,time,event,trace", "-i", f"{clock}.data"],
            cwd=folder, env=environment(), capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        kept = [line for line in printed.splitlines() if _is_marker(line)]
        _write(folder / f"{clock}.txt.gz", "".join(f"{line}\n" for line in kept))
        (folder / f"{clock}.data").unlink()
    with gzip.open(folder / "markers.csv.gz", "wt", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows([("marker", "before_ns", "after_ns"), *markers])


def _mark(perf: str, folder: Path, seconds: float) -> tuple[list[tuple[int, int, int]], list[str]]:
    """Make markers for so long; return them, and the lines of clocks.jsonl."""
    libc, number = ctypes.CDLL(None), SYSCALL[platform.machine()]
    tracers: list[TscMarks | PerfMarks] = [TscMarks(), PerfMarks(perf, folder, platform.machine())]
    os.sched_setscheduler(
        0, os.SCHED_FIFO, os.sched_param(50)
    )  # a call that is preempted measures the scheduler
    markers: list[tuple[int, int, int]] = []
    lines: list[str] = []
    snapshots, end_s, next_s = 0, time.monotonic() + seconds, 0.0
    while time.monotonic() < end_s:
        if time.monotonic() >= next_s:
            lines.append(clock_snapshots.to_line(snapshots, clock_snapshots.take()))
            for tracer in tracers:
                tracer.mark(snapshots)
            snapshots, next_s = snapshots + 1, time.monotonic() + 1
        for _ in range(WARM_CALLS):
            libc.syscall(number, MAGIC, 0)
        before_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        libc.syscall(number, MAGIC, FIRST + len(markers))
        markers.append((FIRST + len(markers), before_ns, time.clock_gettime_ns(time.CLOCK_MONOTONIC)))
        time.sleep(EVERY_S)
    found = [readings for tracer in tracers for readings in tracer.finish().values()]
    return markers, lines + [clock_snapshots.to_line(snapshots + n, one) for n, one in enumerate(found)]


def _is_marker(line: str) -> bool:
    """Return whether a line is one of our own markers, and not of the marks once a second."""
    _, which, who = line.partition("who: ")
    return bool(which) and int(who.strip(" )\n"), 16) >= FIRST if "0x" in who else False


def _write(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 65)
