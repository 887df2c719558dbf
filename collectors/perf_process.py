"""One running perf: started waiting, told to begin, watched, ended with a file that can be read.

perf is told by a pipe to begin and answers when it has (`--control`), so that a command starts only when
every perf sees it. It runs in a process group of its own, out of reach of the terminal's Ctrl-C, and the
kernel ends it when this process dies, however it dies.
"""

from __future__ import annotations

import ctypes
import os
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from collectors.presets import SELF
from pipeline.errors import WorkError

_START_SECONDS = 60  # perf reads /proc of every process first
_END_SECONDS = 60  # and writes what its buffers hold at the end
_PR_SET_PDEATHSIG = 1

_INSTALL = (
    "install linux-perf (Debian, Fedora: perf; Ubuntu: linux-tools-generic); `flameslice doctor` tells more"
)
_SILENT = "it failed without a word"
_LIBC = ctypes.CDLL(None, use_errno=True)


def find_perf() -> str:
    """Return the path of perf."""
    perf = shutil.which("perf")
    if perf is None:
        raise WorkError("perf is not installed", _INSTALL)
    return perf


def environment() -> dict[str, str]:
    """Return the environment for perf: no user's configuration, no translated messages, no network."""
    return os.environ | {"LC_ALL": "C", "PERF_CONFIG": os.devnull, "DEBUGINFOD_URLS": "", "PAGER": "cat"}


def ends_with_parent() -> None:
    """Ask the kernel to end this process as by Ctrl-C when its parent dies; runs between fork and exec."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


def refusal(stderr: str, paranoid: str) -> WorkError:
    """Return the error for a perf that did not record, with perf's own line and what to do about it."""
    if "Access to performance monitoring" in stderr:
        remedy = (
            "run as root, or `sysctl kernel.perf_event_paranoid=-1`, or record a command with --preset cpu"
        )
        return WorkError(f"perf may not record this (perf_event_paranoid is {paranoid})", remedy, text=stderr)
    line = error_line(stderr)
    remedies = {
        "wrong clockid": "use --clock monotonic, which every event accepts",
        "access trace events": "run as root, or mount tracefs readable, or use --preset cpu",
        "No permissions to read": "run as root, or mount tracefs readable, or use --preset cpu",
        "No permission to enable": "run as root, or use --preset cpu",
        "No such process": "check the process id",
        "mapping pages": "raise kernel.perf_event_mlock_kb, or run as root",
        "branch stack": "use --call-graph fp or dwarf: this machine has no LBR",
        "Too many": "raise the limit of open files (ulimit -n)",
        "No space left": "free space on that disk, or write elsewhere with -o",
    }
    found = [remedy for words, remedy in remedies.items() if words in stderr]
    return WorkError(
        f"perf: {line}", (found or ["`flameslice doctor` says what this machine allows"])[0], text=stderr
    )


def error_line(stderr: str) -> str:
    """Return the line of perf's messages that says what went wrong: after `Error:`, or else the last."""
    usage = stderr.partition("\n Usage: perf")[0]
    lines = [line.strip() for line in usage.splitlines()]
    words = [
        line
        for line in lines
        if line and not line.startswith(("[ perf record:", "Events ", "Run 'perf list'"))
    ]
    for index, line in enumerate(words):
        if line.startswith("Error:"):
            said = line.removeprefix("Error:").strip() or (words[index + 1] if index + 1 < len(words) else "")
            return said.rstrip(".") or _SILENT
    return words[-1].rstrip(".") if words else _SILENT


class PerfProcess:
    """One `perf record`; `enable` returns when it records."""

    def __init__(self, perf: str, arguments: Sequence[str], control_at: str, output: Path) -> None:
        """Start perf with arguments, in which SELF stands for its process id and control_at for the pipes."""
        self.output = output
        self.cpu_ns = 0
        self.status: int | None = None
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this object
        command_read, self._command = os.pipe()
        self._answer, answer_write = os.pipe()
        control = f"fd:{command_read},{answer_write}"
        words = [shlex.quote(control if word == control_at else word) for word in (perf, *arguments)]
        # the shell's process id becomes perf's by exec; only so can a filter name it
        script = "exec " + " ".join(words).replace(SELF, "'\"$$\"'")
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            env=environment(),
            # both ends of both: perf 6.1 drops its recording when the other end of a control pipe is closed,
            # as it is when this process is killed
            pass_fds=(command_read, self._command, self._answer, answer_write),
            process_group=0,
            preexec_fn=ends_with_parent,
        )
        os.close(command_read)
        os.close(answer_write)
        self.pid = self._process.pid

    def enable(self) -> None:
        """Begin to record; raise WorkError with perf's words where it refuses."""
        try:
            os.write(self._command, b"enable\n")
            ready, _, _ = select.select([self._answer], [], [], _START_SECONDS)
            answered = ready and os.read(self._answer, 16).startswith(b"ack")
        except BrokenPipeError:
            answered = False
        if not answered:
            was_alive = self.poll() is None and bool(not ready)
            self.stop()
            if was_alive:
                raise WorkError(
                    f"perf did not begin within {_START_SECONDS} s", "try again on a calmer machine"
                )
            raise refusal(self.stderr(), _paranoid())

    def poll(self) -> int | None:
        """Return perf's exit status, None while it runs."""
        if self.status is None:
            self._reap(os.WNOHANG)
        return self.status

    def interrupt(self) -> None:
        """Ask perf to end, as Ctrl-C does."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGINT)

    def stop(self) -> int:
        """End perf so that its file is whole; return its exit status."""
        deadline = time.monotonic() + _END_SECONDS
        self.interrupt()
        while self.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self._reap(0)
        for pipe in (self._command, self._answer):
            if pipe >= 0:
                os.close(pipe)
        self._command = self._answer = -1
        assert self.status is not None
        return self.status

    def forget(self) -> None:
        """Let go of what perf has said."""
        self._stderr.close()

    def cpu_so_far_ns(self) -> int:
        """Return the CPU time that perf has used, 0 where the kernel does not tell."""
        try:
            return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0])
        except (OSError, IndexError):
            return 0

    def stderr(self) -> str:
        """Return what perf has said."""
        return os.pread(self._stderr.fileno(), 1 << 16, 0).decode("utf-8", "backslashreplace")

    @property
    def hit_size_limit(self) -> bool:
        """Return whether perf ended because its file reached --max-size."""
        return "perf size limit reached" in self.stderr()

    def close(self) -> None:
        """Forget what perf has said."""
        self._stderr.close()

    def _reap(self, flags: int) -> None:
        pid, status, usage = os.wait4(self.pid, flags)
        if pid == self.pid:
            self.status = os.waitstatus_to_exitcode(status)
            self._process.returncode = self.status  # else subprocess waits for it once more
            self.cpu_ns = round((usage.ru_utime + usage.ru_stime) * 1e9)


def _paranoid() -> str:
    try:
        return Path("/proc/sys/kernel/perf_event_paranoid").read_text().strip()
    except OSError:
        return "unknown"
