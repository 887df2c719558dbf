"""Remembers the lines of rows at which time goes back far: there another recording may begin (pipeline.time_order).

Which of them one does begin is known when all times are; the text is gone by then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_FAR_NS = 1_000_000_000  # as in pipeline.time_order
_MOST = 200


class RowLines:
    """Follows the times of a text part by part."""

    def __init__(self) -> None:
        self.line_of: dict[int, int] = {}  # row -> line, 1-based
        self._rows = 0
        self._texts = (b"", b"")  # the last row of a part stands in the text of the next, or is held back
        self._first_ns = self._highest_ns = self._last_ns = -1

    def add(
        self, text: bytes, printed: Sequence[bytes], times_ns: Sequence[int], lines_fed: Callable[[], int]
    ) -> None:
        """Take in a text and the rows that it completed; lines_fed tells how many lines there were so far."""
        self._texts = (self._texts[1], text)
        if not times_ns:
            return
        is_forward = self._last_ns <= times_ns[0] and all(map(int.__le__, times_ns, times_ns[1:]))
        if is_forward:
            if self._first_ns < 0:
                self._first_ns = times_ns[0]
            self._highest_ns = max(self._highest_ns, times_ns[-1])
        else:
            for row, time_ns in enumerate(times_ns):
                if self._may_begin(time_ns) and len(self.line_of) < _MOST:
                    line = self._line(printed[: row + 1], lines_fed())
                    if line is not None:
                        self.line_of[self._rows + row] = line
                self._last_ns = time_ns
        self._last_ns = times_ns[-1]
        self._rows += len(times_ns)

    def _may_begin(self, time_ns: int) -> bool:
        """Follow one time; return whether it goes back far, or to the beginning of what came before."""
        is_back = time_ns < self._last_ns and (
            self._highest_ns - time_ns >= _FAR_NS or time_ns <= self._first_ns
        )
        if is_back or self._first_ns < 0:
            self._first_ns = self._highest_ns = time_ns
        self._highest_ns = max(self._highest_ns, time_ns)
        return is_back

    def _line(self, printed: Sequence[bytes], lines: int) -> int | None:
        """Return the line of the last of a part's rows: its times stand in the texts in this order."""
        before, text = self._texts
        if before and not before.endswith(b"\n"):
            before += b"\n"
        joined = before + text
        at = 0
        if self._rows:  # the first row was held back from the text before
            found = [match.start() for match in _time(printed[0]).finditer(before or text)]
            if not found:
                return None
            at = found[-1]
        start = at
        for time in printed:
            match = _time(time).search(joined, at)
            if match is None:
                return None
            start, at = match.span()
        lines_joined = joined.count(b"\n") + (not joined.endswith(b"\n"))
        return lines - lines_joined + joined.count(b"\n", 0, start) + 1


def _time(printed: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"(?<!\d)" + re.escape(printed) + rb":(?=\s|$)", re.M)
