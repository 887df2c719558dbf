"""A perf of our own for what the real one does rarely: FAKE_PERF says how it misbehaves.

It is no test: test_record_command.py puts it on PATH as `perf`.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
import time
from pathlib import Path

HEAD = b"PERFILE2" + struct.pack("=QQQQQQ", 104, 128, 104, 0, 104, 0) + b"\0" * 48
SAMPLE = struct.pack("=IHH", 9, 0, 64) + b"\0" * 56
LOST = struct.pack("=IHHQQ", 2, 0, 24, 1, 7)
TEXT = "work 50/50 [000] 99999999.000000010:    1001001 cpu-clock: \n\tff f+0x1 (/bin/work)\n\n"


def record(arguments: list[str], mode: str) -> int:
    """Answer on the control pipe, then write until asked to end."""
    is_heavy = any("sched:sched_switch" in word for word in arguments)
    if mode == "refuse" or (mode == "refuse_second" and is_heavy):
        sys.stderr.write("Error:\nwrong clockid (0).\n")
        return 255
    refused = Path(arguments[arguments.index("-o") + 1]).with_name("refused-once")
    if mode.endswith("gone_once") and "perf-2" in " ".join(arguments) and not refused.exists():
        refused.touch()
        sys.stderr.write("Error:\nThe syscall returned with 3 (No such process) for event (cpu-clock).\n")
        return 255
    command, answer = map(int, arguments[arguments.index("--control") + 1][3:].split(","))
    asked: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
    os.read(command, 16)
    with open(arguments[arguments.index("-o") + 1], "wb", buffering=0) as out:  # noqa: PTH123 - plain bytes
        out.write(HEAD + LOST)
        os.write(answer, b"ack\n\0")
        started = time.monotonic()
        while not asked:
            if mode == "flood" or (mode.startswith("flood_heavy") and is_heavy):
                out.write(SAMPLE * 2000)
            if mode == "die" and time.monotonic() > started + 0.3:
                sys.stderr.write("[ perf record: Woken up 1 times to write data ]\nno space for me: killed\n")
                return 139
            time.sleep(0.01)
    return 0


def main(arguments: list[str], mode: str) -> int:
    """Do as perf does, but for the one thing."""
    if arguments[0] == "record":
        return record(arguments, mode)
    if mode == "unreadable":
        sys.stderr.write("incompatible file format (rerun with -v to learn more)\n")
        return 1
    sys.stdout.write(TEXT)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ.get("FAKE_PERF", "")))
