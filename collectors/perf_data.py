"""`perf.data`, read as the text that `perf script` prints of it (see perf_script):

    worker 14225/14225 [001]  2179.425850161:    1001001 cpu-clock:
                       ee017 __sched_yield+0x7 (/usr/lib/x86_64-linux-gnu/libc.so.6)

Both endians, the pipe mode of `perf record -o -`, and whatever the installed perf can read. Inlined functions are not
expanded: that asks addr2line for every address and takes minutes to hours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from collectors.perf_process import ends_with_parent, environment, find_perf
from collectors.source import Source
from pipeline.errors import FlamesliceError, InputError, WorkError, from_os_error

MAGICS = (b"PERFILE2", b"2ELIFREP")  # little and big endian
TEXT_FORMAT = "perf_script"  # what reads the text

_PLAIN = ("-f", "--no-inline", "--ns")
# The process id beside the thread's, and what the kernel lost. Naming a field switches off what perf prints by
# itself for tracepoints, hence the others; a field that an event lacks fails only where it is not added with `+`.
_RICH = (*_PLAIN, "--show-lost-events", "--show-switch-events", "-F", "+pid,+ip,+sym,+symoff,+dso")
_HEADER_SECONDS = 20
_HEADER_BYTES = 1 << 20
_STDERR_BYTES = 1 << 16
_READ_BYTES = 1 << 20
_CUT_WORDS = ("unexpected end of event stream", "data size field is 0")


def sniff(head: bytes) -> bool | None:
    """Return whether the beginning of a file is perf.data; None: more bytes are needed."""
    if len(head) < len(MAGICS[0]):
        return None if any(magic.startswith(head) for magic in MAGICS) else False
    return head.startswith(MAGICS)


@contextlib.contextmanager
def open_text(source: Source) -> Iterator[Source]:
    """Yield the text of a perf.data file as a source that can be read once.

    Raises WorkError where perf is missing or refuses the file (then it ends with perf's own last line), InputError
    where perf finds nothing in it.
    """
    perf = perf_path(source.name)
    with contextlib.ExitStack() as stack:
        path = stack.enter_context(on_disk(source))
        header = _header(perf, path)
        for options in (_RICH, _PLAIN):  # an old perf does not know every option
            output = stack.enter_context(_PerfOutput([perf, "script", *options, "-i", path], source.name))
            try:
                output.begin(header)
                break
            except FlamesliceError:
                if options is _PLAIN:
                    raise
        text = Source(source.name, cast(BinaryIO, output))
        text.carry([*source.notes, "perf.data, printed by perf script"], source.losses)
        output.source = text
        yield text


def perf_path(name: str) -> str:
    """Return the path of perf; raises WorkError that names the file for which it is needed."""
    try:
        return find_perf()
    except WorkError as error:
        remedy = f"{error.remedy}; or give the output of perf script"
        raise WorkError(error.problem, remedy, path=name) from error


@contextlib.contextmanager
def on_disk(source: Source) -> Iterator[str]:
    """Yield the absolute path of an unpacked perf.data file: perf itself looks through no compression."""
    if source.path is not None and source.is_plain_file():
        yield str(source.path.absolute())  # so that no name is taken for an option, or for standard input
        return
    with tempfile.TemporaryDirectory(prefix="flameslice-") as folder:
        path = Path(folder) / "perf.data"
        try:
            with path.open("wb") as spool:
                for chunk in source.chunks():
                    spool.write(chunk)
        except OSError as error:
            raise from_os_error(error, str(path)) from error
        yield str(path)


def _header(perf: str, path: str) -> bytes:
    """Return perf's description of the recording (clock, host, events), '' where perf has none to give."""
    command = [perf, "script", "-f", "--header-only", "-i", path]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(),
            timeout=_HEADER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return b""
    lines = done.stdout[:_HEADER_BYTES].splitlines(keepends=True) if done.returncode == 0 else []
    return b"".join(line for line in lines if line.startswith(b"#") and line.endswith(b"\n"))


class _PerfOutput:
    """The standard output of one perf, as a stream whose end is an error where perf failed."""

    def __init__(self, command: Sequence[str], name: str) -> None:
        self.source: Source | None = None
        self._name = name
        self._ahead = b""
        self._is_ended = False
        self._words = b""
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment(),
                process_group=0,
                preexec_fn=ends_with_parent,
            )
        except OSError as error:
            raise from_os_error(error, command[0]) from error
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdout, self._stderr = self._process.stdout, self._process.stderr
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> _PerfOutput:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._listener.join()
        self._stdout.close()
        self._stderr.close()

    def begin(self, header: bytes) -> None:
        """Wait for perf's first words; raise where it fails before them, or has none."""
        first = self.read(_READ_BYTES)
        if not first:
            raise InputError("perf finds no samples in it", "record again", path=self._name)
        self._ahead = header + first

    def read(self, n: int) -> bytes:
        """Return what perf has printed, b'' at its end; raise WorkError where it failed."""
        if self._ahead:
            data, self._ahead = self._ahead[:n], self._ahead[n:]
            return data
        if self._is_ended:
            return b""
        data = os.read(self._stdout.fileno(), n)
        if not data:
            self._is_ended = True
            self._end()
        return data

    def fileno(self) -> int:
        """Return the pipe's descriptor: a source asks what kind of file it is."""
        return self._stdout.fileno()

    def close(self) -> None:
        """Do nothing: the process ends with the context."""

    def _end(self) -> None:
        status = self._process.wait()
        self._listener.join()
        words = self._words.decode("utf-8", "backslashreplace")
        lines = [line.strip() for line in words.splitlines() if line.strip()]
        if status:
            problem = "perf script cannot read this file (it may be cut, or newer than the installed perf)"
            line = lines[-1] if lines else f"exit status {status}"
            if status < 0:
                problem, line = "perf script was ended while it read this file", _signal_name(-status)
            raise WorkError(problem, f"perf: {line}", path=self._name, text=words)
        cut = [line for line in lines if any(told in line for told in _CUT_WORDS)]
        if cut and self.source is not None:
            self.source.losses.add("truncated_input", example=f"perf: {cut[-1]}")

    def _listen(self) -> None:
        """Keep the last of what perf says on standard error, however much that is."""
        while data := os.read(self._stderr.fileno(), _STDERR_BYTES):
            self._words = (self._words + data)[-_STDERR_BYTES:]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
