"""py-spy's raw format: collapsed stacks of Python frames, each with its file and line.

    process 30547:"python ps.py 3";thread (30553): MainThread;<module> (ps.py:15);rec (ps.py:3) 25
    0x7fa7c13278ec (libc.so.6);thread_run (libpython3.11.so.1.0);worker (ps.py:9) 2

`py-spy record -f raw` of py-spy 0.4. The first frames may be a process (with --subprocesses, a child below
its parent) and a thread (with --threads); they stay frames. py-spy does not escape a `;` in their names, so
that such a name reads as two frames. A recording of py-spy in its speedscope or chrometrace format names the
same functions without `(file:line)`, which their frames carry apart.
"""

from __future__ import annotations

import re

from collectors import collapsed
from collectors.source import Source
from pipeline.folds import Fold
from pipeline.stacks import FrameKind

_PYTHON_FRAME = re.compile(r".* \((?:[^()]*\.(?:py|pyx|pyw)|<[^()]*>|\S*\.ipynb)(?::\d+)?\)", re.DOTALL)
_PSEUDO_FRAME = re.compile(r'thread \((?:0x)?[0-9A-Fa-f]+\)(?:: .*)?|process \d+(?::".*)?', re.DOTALL)
_PY_SPY_LINE = re.compile(
    rb"(?:[^\n]*;)?(?:[^;\n]+ \((?:[^()\n]*\.pyx?|<[^()\n]*>):\d+\)|thread \(\d+\)[^;\n]*"
    rb'|process \d+:"[^\n]*)(?:;[^\n]*)? \d+\r?'
)
_JUDGED_LINES = 100


def sniff(head: bytes) -> bool | None:
    """Return whether the beginning of a file is py-spy's raw format; None: more bytes are needed."""
    lines = [line for line in head.split(b"\n")[:-1] if line.strip()]
    if lines and not lines[0].rsplit(None, 1)[-1].isdigit():
        return False
    if any(_PY_SPY_LINE.fullmatch(line) for line in lines[:_JUDGED_LINES]):
        return True
    return False if len(lines) >= _JUDGED_LINES else None


def fold(source: Source) -> Fold:
    """Add up the counts of a source by stack."""
    return collapsed.fold(source, kind_of)


def kind_of(name: str) -> FrameKind:
    """Return 'python' for a frame with a Python file and for a process or thread, 'user' for native code."""
    return "python" if _PYTHON_FRAME.fullmatch(name) or _PSEUDO_FRAME.fullmatch(name) else "user"
