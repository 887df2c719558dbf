"""Runs py-spy on a process beside perf, and stamps when its times begin.

py-spy counts microseconds from a start of its own that it does not tell. It lies after py-spy was started, before it
said `Sampling process`, and before its end by at least the last time in its file: half of what remains is the
uncertainty, some ms.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from collectors import source_clocks
from collectors.perf_process import ends_with_parent
from pipeline.errors import FlamesliceError, WorkError

FILE = "py-spy.json"
FORMAT = "chrome_trace"
# a command is Python only once it has begun, and py-spy gives up on what is not
_TRY_FOR_S, _TRY_EVERY_S = 10.0, 0.2
_END_SECONDS = 30
_READY = b"Sampling process"


@dataclass(frozen=True, slots=True)
class Stamped:
    """When the times of py-spy's file begin, on CLOCK_MONOTONIC."""

    start_ns: int
    uncertainty_ns: int


def find_py_spy() -> str:
    """Return the path of py-spy: beside this Python, else on PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.is_file() else shutil.which("py-spy")
    if found is None:
        raise WorkError("py-spy is not installed", "pip install py-spy, or leave --py-spy out")
    return found


class PySpy:
    """One `py-spy record`, tried in a thread until the process is one that it can read."""

    def __init__(self, pid: int, output: Path, rate_hz: int) -> None:
        self._command = [
            find_py_spy(), "record", "--pid", str(pid), "--subprocesses",
            "--format", "chrometrace", "--output", str(output), "--rate", str(rate_hz),
        ]  # fmt: skip
        self._output = output
        self._is_stopped = threading.Event()
        self._begun_ns = self._ready_ns = self._ended_ns = 0
        self._words = b""
        self._process: subprocess.Popen[bytes] | None = None
        self.pids: list[int] = []
        self._thread = threading.Thread(target=self._run, name="py-spy", daemon=True)
        self._thread.start()

    def stop(self) -> Stamped:
        """End py-spy and return when its file begins; raises WorkError where it has recorded nothing."""
        self._is_stopped.set()
        self._thread.join(_END_SECONDS + 5)
        if self._thread.is_alive() and self._process is not None:  # it hangs before it samples
            self._process.kill()
            self._thread.join()
        if not self._ready_ns or not self._output.exists():
            self._output.unlink(missing_ok=True)
            lines = self._words.decode("utf-8", "backslashreplace").split("\n")
            raise WorkError(
                "py-spy recorded nothing", next((line for line in lines if line.strip()), "no words")
            )
        latest_ns = self._ready_ns
        try:
            last_ns = source_clocks.of(self._output, forced_format=FORMAT).last
        except FlamesliceError:  # no sample: nothing narrows it down
            last_ns = None
        if last_ns is not None:
            latest_ns = min(latest_ns, self._ended_ns - last_ns)
        latest_ns = max(latest_ns, self._begun_ns)
        return Stamped((self._begun_ns + latest_ns) // 2, (latest_ns - self._begun_ns + 1) // 2)

    def _run(self) -> None:
        until_s = time.monotonic() + _TRY_FOR_S
        while not self._ready_ns and not self._is_stopped.is_set() and time.monotonic() < until_s:
            self._record()
            self._is_stopped.wait(_TRY_EVERY_S)

    def _record(self) -> None:
        """Run py-spy once: until it is told to end, or gives up."""
        with tempfile.TemporaryFile() as words:
            self._begun_ns = time.monotonic_ns()
            process = self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=words,
                process_group=0,
                preexec_fn=ends_with_parent,
            )
            self.pids.append(process.pid)
            assert process.stdout is not None
            with process.stdout as said:
                self._wait_until_ready(said)
                if self._ready_ns:
                    while not self._is_stopped.wait(0.05) and process.poll() is None:
                        pass
                if process.poll() is None:
                    process.send_signal(signal.SIGINT)
                try:
                    process.wait(_END_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            self._ended_ns = time.monotonic_ns()
            words.seek(0)
            self._words = words.read(1 << 16)

    def _wait_until_ready(self, said: IO[bytes]) -> None:
        heard = b""
        while data := os.read(said.fileno(), 4096):
            heard = (heard + data)[-4096:]
            if _READY in heard:
                self._ready_ns = time.monotonic_ns()
                return
