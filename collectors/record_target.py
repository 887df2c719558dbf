"""What is recorded: a command that starts only when perf watches it, or running processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from collectors.processes import is_alive
from pipeline.errors import WorkError

_GRACE_SECONDS = 5
_ABANDONED = 125  # as timeout(1) and docker use it: the command did not run


class HeldCommand:
    """A command whose process exists and waits: perf attaches to it, then `release` lets it begin.

    A shell of the same process id reads a FIFO and becomes the command by exec; if the recorder dies before,
    the FIFO ends and the command never runs.
    """

    def __init__(self, command: Sequence[str]) -> None:
        if shutil.which(command[0]) is None:
            raise WorkError(f"no command {command[0]!r}", "check its spelling and PATH")
        with tempfile.TemporaryDirectory(prefix="flameslice-") as folder:
            gate = Path(folder) / "gate"
            os.mkfifo(gate, 0o600)
            self._gate = os.open(gate, os.O_RDWR | os.O_CLOEXEC)  # both ways: opening does not wait
            script = f'read -r _ < "$0" || exit {_ABANDONED}; exec "$@"'
            self._process = subprocess.Popen(["/bin/sh", "-c", script, str(gate), *command])
            self._wait_until_open(gate)
        self.pid = self._process.pid
        self.name = Path(command[0]).name[:15]  # as the kernel will name it

    def _wait_until_open(self, gate: Path) -> None:
        """Wait until the shell holds the FIFO, after which its name may go."""
        folder = Path(f"/proc/{self._process.pid}/fd")
        while self._process.poll() is None:
            try:
                if any(fd.readlink() == gate for fd in folder.iterdir()):
                    return
            except OSError:
                pass  # a descriptor that was closed meanwhile
            time.sleep(0.001)

    def release(self) -> None:
        """Let the command begin."""
        os.write(self._gate, b"\n")
        self._close()

    @property
    def is_held(self) -> bool:
        """Return whether the command has not begun."""
        return self._gate >= 0

    def poll(self) -> int | None:
        """Return the command's exit status (negative: the signal that ended it), None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float | None = None) -> int | None:
        """Return the exit status, None if the command still runs after so many seconds."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> int | None:
        """End the command: it never runs if it was not released; return its status, None if it goes on."""
        if self.is_held:
            self._close()
        elif self.wait(0.5) is None:  # Ctrl-C on a terminal has reached it too
            self._process.send_signal(signal.SIGTERM)
        status = self.wait(_GRACE_SECONDS)
        if status is None:
            self._process.returncode = 0  # its own master from now on: subprocess need not wait for it
        return status

    def _close(self) -> None:
        os.close(self._gate)
        self._gate = -1


def check_running(pids: Sequence[int]) -> None:
    """Raise WorkError if one of pids is no running process."""
    for pid in pids:
        if not is_alive(pid):
            raise WorkError(f"no process {pid}", "check the process id")
