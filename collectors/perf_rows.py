"""What the tokenizer of `perf script` text hands out: rows of sample lines, and where it is in the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from collectors.perf_header import Head, Tail

Key = tuple[Head, Tail, int, tuple[int, ...]]


@dataclass(slots=True)
class Rows:
    """Sample lines: equal positions of keys and times are one row.

    A key is (head, tail, node of the callers, frame numbers of the innermost stack line, the outermost first); times
    are as printed, b'' where the file has none; args, by position, is for rows that have arguments.
    """

    keys: list[Key] = field(default_factory=list)
    times: list[bytes] = field(default_factory=list)
    args: dict[int, bytes] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.keys)

    def split_last(self) -> Rows:
        """Take the last row out, if there is one, and return it."""
        last = Rows()
        if self.keys:
            last.keys.append(self.keys.pop())
            last.times.append(self.times.pop())
            args = self.args.pop(len(self.keys), None)
            if args is not None:
                last.args[0] = args
        return last


class LineCount:
    """Counts lines only when a place must be named: until then texts are kept, at most 16 MiB of them."""

    _KEPT_BYTES = 16 << 20

    def __init__(self) -> None:
        self._lines = 0
        self._texts: list[bytes] = []
        self._bytes = 0

    def add(self, text: bytes) -> None:
        """Take in a text that was read."""
        self._texts.append(text)
        self._bytes += len(text)
        if self._bytes > self._KEPT_BYTES:
            self._settle()

    def before(self, text: bytes, at: int) -> int:
        """Return how many lines stand before byte `at` of text, which follows all texts added."""
        self._settle()
        return self._lines + text.count(b"\n", 0, at)

    def _settle(self) -> None:
        for text in self._texts:
            self._lines += text.count(b"\n") + (not text.endswith(b"\n"))
        self._texts.clear()
        self._bytes = 0


def times_to_ns(times: Sequence[bytes]) -> list[int]:
    """Return printed times ('829.851181', 1 to 9 decimals) as integer nanoseconds."""
    digits = len(times[0]) - times[0].index(b".") - 1
    if all(time[-digits - 1 : -digits] == b"." for time in times):
        scale = 10 ** (9 - digits)
        return [int(time) * scale for time in b" ".join(times).replace(b".", b"").split()]
    out = []
    for time in times:
        seconds, _, fraction = time.partition(b".")
        out.append(int(seconds) * 10**9 + int(fraction.ljust(9, b"0")))
    return out
