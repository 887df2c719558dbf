"""The header blocks in `perf script --header` text: fields of the first, and where others begin.

# ========
# captured on    : Tue Dec  1 03:53:41 2026
# hostname : web-1
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pipeline.text import decode

_COMMENT = re.compile(rb"^#\s*(?P<key>[a-z][a-z ]*?)\s*:\s*(?P<value>.*)$")
_RULE = b"# ==="
_FIRST_FIELD = "captured on"
_MOST_FIELDS, _MOST_BLOCKS = 200, 100


class HeaderLines:
    """Takes in the lines that begin with #."""

    def __init__(self) -> None:
        self.meta: dict[str, str] = {}
        self.blocks: list[
            tuple[int, int]
        ] = []  # (rows before, line) of blocks behind rows: files were joined
        self._rule_line = 0

    def read(self, line: bytes, rows_before: int, number: Callable[[], int]) -> None:
        """Take in a line; `number` tells its own, and is asked only where it matters."""
        if line.startswith(_RULE) and rows_before:
            self._rule_line = number()
        match = _COMMENT.match(line)
        if match is None:
            return
        key = decode(match["key"])
        if key == _FIRST_FIELD and rows_before and len(self.blocks) < _MOST_BLOCKS:
            here = number()
            self.blocks.append((rows_before, here - (self._rule_line == here - 1)))
        if len(self.meta) < _MOST_FIELDS:
            self.meta.setdefault(key, decode(match["value"]).strip())
