"""Counts the samples of perf script, or events of ftrace, by event, process and stack: the short way to a flame graph.

Nothing here keeps single samples: its size follows the number of different stacks. What several processes counted is
united by their tries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from collectors.perf_header import Head
from collectors.perf_header_lines import HeaderLines
from collectors.perf_rows import Key, Rows
from pipeline.filters import SampleFilter
from pipeline.folds import EventTotals, Fold
from pipeline.losses import Loss, LossLedger
from pipeline.stacks import Frame, StackTrie

_COUNTER_KEYS = 1 << 17

Weights = dict[tuple[str, str | None, int], list[int]]


@dataclass(slots=True)
class Counts:
    """What one process counted, small enough to send: the trie as its lists, weights by node of that trie."""

    frames: list[Frame] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    frame_of: list[int] = field(default_factory=list)
    weights: Weights = field(default_factory=dict)
    events: dict[str, tuple[tuple[int, int], EventTotals]] = field(
        default_factory=dict
    )  # first piece and place
    losses: tuple[Loss, ...] = ()
    rows: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    meta: dict[str, str] = field(default_factory=dict)
    comm_history: dict[int, str] = field(default_factory=dict)


class TokenSource(Protocol):
    """A tokenizer: text in, rows out."""

    trie: StackTrie
    losses: LossLedger
    header: HeaderLines
    comm_history: dict[int, str]

    def feed(self, text: bytes) -> None:
        """Read text, which ends at the end of a line (the newline itself may be missing)."""

    def take(self, is_last: bool = False) -> Rows:
        """Hand out the rows read, all of them where it is the last time."""

    def finish(self) -> None:
        """End the last row: no more text comes."""

    def begin_piece(self) -> None:
        """Start a text of its own: lines and losses count from here."""

    def lines_fed(self) -> int:
        """Return how many lines the texts had that were fed so far."""

    def to_raw(self, printed: Sequence[bytes]) -> list[int]:
        """Return printed times in the unit of their clock."""


class Counting:
    """Counts the rows of one tokenizer."""

    def __init__(self, tokens: TokenSource, keep: SampleFilter) -> None:
        self.tokens = tokens
        self.counts = Counts()
        self._keep = keep
        self._kept_heads: dict[Head, bool] = {}
        self._counter: Counter[Key] = Counter()
        self._piece = 0

    def piece(self, number: int, texts: Iterable[bytes]) -> tuple[Loss, ...]:
        """Count one piece; return its losses, whose lines count from the piece's start."""
        self._piece = number
        tokens = self.tokens
        tokens.begin_piece()
        for text in texts:
            tokens.feed(text)
            self._count(tokens.take())
        tokens.finish()
        self._count(tokens.take(is_last=True))
        self._settle()
        return tokens.losses.as_tuple()

    def result(self) -> Counts:
        """Return everything counted."""
        counts, trie = self.counts, self.tokens.trie
        counts.frames, counts.parents, counts.frame_of = trie.frames, trie.parents, trie.frame_of
        counts.meta, counts.comm_history = self.tokens.header.meta, self.tokens.comm_history
        return counts

    def _count(self, rows: Rows) -> None:
        if not rows.keys:
            return
        counts = self.counts
        keys = rows.keys
        if rows.times[0]:
            # all times only where a range asks for them: else the first and last row tell enough
            times_ns = self.tokens.to_raw(
                rows.times if self._keep.has_range else rows.times[:: len(rows) - 1 or 1]
            )
            first, last = min(times_ns), max(times_ns)
            counts.first_ns = first if counts.first_ns is None else min(first, counts.first_ns)
            counts.last_ns = last if counts.last_ns is None else max(last, counts.last_ns)
            if self._keep.has_range:
                keep = self._keep.keeps_time
                keys = [key for key, time_ns in zip(keys, times_ns, strict=True) if keep(time_ns)]
        elif self._keep.has_range:
            keys = []
        self._counter.update(keys)
        if len(self._counter) > _COUNTER_KEYS:
            self._settle()

    def _settle(self) -> None:
        """Turn counted keys into weights."""
        counts, weights, push = self.counts, self.counts.weights, self.tokens.trie.push
        for (head, tail, node, numbers), number in self._counter.items():
            event = tail.event or "[unknown]"
            if event.startswith("PERF_RECORD_"):
                continue
            counts.rows += number
            if not self._keeps(head):
                continue
            for frame in numbers:
                node = push(node, frame)
            known = counts.events.get(event)
            if known is None:
                known = counts.events[event] = ((self._piece, len(counts.events)), EventTotals())
            totals = known[1]
            totals.samples += number
            period = number if tail.period is None else number * tail.period
            totals.has_period |= tail.period is not None
            totals.period += period
            weight = weights.get((event, head.comm, node))
            if weight is None:
                weights[(event, head.comm, node)] = [number, period]
            else:
                weight[0] += number
                weight[1] += period
        self._counter.clear()

    def _keeps(self, head: Head) -> bool:
        if self._keep.is_trivial:
            return True
        kept = self._kept_heads.get(head)
        if kept is None:
            kept = self._kept_heads[head] = self._keep.keeps_origin(head.pid, head.tid, head.cpu, head.comm)
        return kept


def unite(results: Iterable[Counts], fold: Fold) -> dict[str, str]:
    """Add what several processes counted into fold; return the file's own header fields."""
    found: list[tuple[tuple[int, int], str, EventTotals]] = []
    comm_history: dict[int, str] = {}
    meta: dict[str, str] = {}
    for counts in results:
        nodes = fold.trie.absorb(counts.frames, counts.parents, counts.frame_of)
        comm_history.update(counts.comm_history)
        meta.update(counts.meta)
        fold.rows += counts.rows
        for (event, comm, node), weight in counts.weights.items():
            into = fold.weights.setdefault((event, comm, nodes[node]), [0, 0])
            into[0] += weight[0]
            into[1] += weight[1]
        found.extend((place, event, totals) for event, (place, totals) in counts.events.items())
        if counts.first_ns is not None and counts.last_ns is not None:
            fold.first_ns = min(counts.first_ns, counts.first_ns if fold.first_ns is None else fold.first_ns)
            fold.last_ns = max(counts.last_ns, counts.last_ns if fold.last_ns is None else fold.last_ns)
    for _, event, totals in sorted(found, key=lambda item: item[0]):
        into_totals = fold.events.setdefault(event, EventTotals())
        into_totals.samples += totals.samples
        into_totals.period += totals.period
        into_totals.has_period |= totals.has_period
    _name_threads(fold, comm_history)
    return meta


def _name_threads(fold: Fold, comm_history: dict[int, str]) -> None:
    """Replace the names `:TID`, which perf prints for threads that it does not know, by recorded ones."""
    for key in [key for key in fold.weights if key[1] and key[1].startswith(":") and key[1][1:].isdigit()]:
        event, comm, node = key
        name = comm_history.get(int(comm[1:])) if comm else None
        if name is not None:
            moved = fold.weights.pop(key)
            into = fold.weights.setdefault((event, name, node), [0, 0])
            into[0] += moved[0]
            into[1] += moved[1]
