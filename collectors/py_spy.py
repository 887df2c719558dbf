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
from pipeline.text import decode

# file.py:12, <string>:1, notebook cells; each text is looked at from its last parenthesis only
_PYTHON_FILE = re.compile(r"(?:[^()]*\.(?:py|pyx|pyw|ipynb)|<[^()]*>)(?::\d+)?\)")
_PSEUDO_FRAME = re.compile(r'thread \((?:0x)?[0-9A-Fa-f]+\)(?:: .*)?|process \d+(?::".*)?', re.DOTALL)
_JUDGED_LINES = 100


def sniff(head: bytes) -> bool | None:
    """Return whether the beginning of a file is py-spy's raw format; None: more bytes are needed."""
    for judged, line in enumerate(collapsed.complete_lines(head), 1):
        stack, _, count = line.rstrip().rpartition(b" ")
        if not count.isdigit() or not stack:
            return False  # py-spy writes no other lines
        if any(kind_of(decode(name)) == "python" for name in stack.split(b";")):
            return True
        if judged == _JUDGED_LINES:
            return False
    return None


def fold(source: Source) -> Fold:
    """Add up the counts of a source by stack."""
    return collapsed.fold(source, kind_of)


def kind_of(name: str) -> FrameKind:
    """Return 'python' for a frame with a Python file and for a process or thread, 'user' for native code."""
    before, _, file = name.rpartition("(")
    if before.endswith(" ") and _PYTHON_FILE.fullmatch(file):
        return "python"
    return "python" if _PSEUDO_FRAME.fullmatch(name) else "user"
