"""What the tokenizer of `perf script` text hands out: rows of sample lines, and where it is in the text."""

from __future__ import annotations

from dataclasses import dataclass, field

from collectors.perf_header import Head, Tail


@dataclass(slots=True)
class Rows:
    """Sample lines: equal positions of heads, tails, nodes (of whole stacks) and times are one row.

    Times are as printed, b'' where the file has none; args, by position, is for rows that have arguments. Four flat
    lists: what holds a tuple for each row keeps Python's garbage collector busy.
    """

    heads: list[Head] = field(default_factory=list)
    tails: list[Tail] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    times: list[bytes] = field(default_factory=list)
    args: dict[int, bytes] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.times)

    def add(self, head: Head, tail: Tail, node: int, time: bytes, args: bytes) -> None:
        """Add a row."""
        if args:
            self.args[len(self.times)] = args
        self.heads.append(head)
        self.tails.append(tail)
        self.nodes.append(node)
        self.times.append(time)

    def cut(self, at: int) -> Rows:
        """Take the rows from a position on out and return them."""
        rest = Rows(self.heads[at:], self.tails[at:], self.nodes[at:], self.times[at:])
        if self.args:
            places = [place for place in range(at, len(self)) if place in self.args]
            rest.args = {place - at: self.args.pop(place) for place in places}
        del self.heads[at:], self.tails[at:], self.nodes[at:], self.times[at:]
        return rest


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
