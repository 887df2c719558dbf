"""Collapsed (folded) stacks: a line per stack, the outermost frame first, and its count.

    gzip;main;treat_file;zip;deflate_fast 3132
    java;start_thread;Thread.run_[j];epoll_wait_[k] 12
    P6360;T6360;<module>:15 100.5

What stackcollapse-*.pl, inferno-collapse-*, async-profiler, austin and flameslice itself write. Counts may
be fractions. Suffixes `_[k] _[j] _[i]` tell the kind of a frame and stay part of its name, so that what was
read is written again byte for byte. A line may end in CRLF; `# ` begins a comment.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction

from collectors.source import Source
from pipeline.errors import InputError
from pipeline.folds import Fold
from pipeline.stacks import EMPTY_STACK, Frame, FrameKind
from pipeline.text import decode

EVENT = "samples"

# 38 digits: what 128 bits hold, and more than any sum of real counts
_COUNT = re.compile(rb"(\d{1,38})(?:\.(\d{0,60}))?|\.(\d{1,60})")
_PLAIN_COUNT = re.compile(rb"\d+(?:\.\d*)?|\.\d+")
_NUMBERS = re.compile(rb"[\d. \t]+\r?")
_KIND_SUFFIXES: dict[str, FrameKind] = {
    "_[k]": "kernel",
    "_[w]": "kernel",  # a waker's stack in off-wake graphs
    "_[j]": "jit",
    "_[i]": "inlined",
    "_[0]": "jit",  # async-profiler: interpreted
    "_[1]": "jit",  # async-profiler: compiled by C1
}
_JUDGED_LINES = 40
_REMEMBERED_BYTES = 64 << 20


def sniff(head: bytes) -> bool | None:
    """Return whether the beginning of a file is collapsed stacks; None: more bytes are needed."""
    good = plain = bad = 0
    for line in complete_lines(head):
        if _NUMBERS.fullmatch(line):
            continue  # a name of digits, or a table of numbers: says nothing
        if not _is_stack_line(line):
            bad += 1
        elif b";" in line:
            good += 1
        else:
            plain += 1
        if good > bad or (plain >= 3 and not bad):
            return True
        if bad >= _JUDGED_LINES:
            return False
    return None


def _is_stack_line(line: bytes) -> bool:
    """Return whether a line is a stack, not all numbers, and a count. Linear in the line: it may be huge."""
    words = line.rsplit(None, 1)
    return (
        len(words) == 2 and _PLAIN_COUNT.fullmatch(words[1]) is not None and not _NUMBERS.fullmatch(words[0])
    )


def _has_two_counts(line: bytes) -> bool:
    words = line.rsplit(None, 2)
    return len(words) == 3 and all(_PLAIN_COUNT.fullmatch(word) for word in words[1:])


def holds_only_stacks(text: bytes) -> bool:
    """Return whether every line of a whole (short) file is a stack with a count: `main 12` alone is one."""
    lines = list(complete_lines(text + b"\n"))
    good = sum(map(_is_stack_line, lines))
    return good > 0 and good + sum(_NUMBERS.fullmatch(line) is not None for line in lines) == len(lines)


def is_differential(head: bytes) -> bool:
    """Return whether every stack has two counts, as difffolded.pl and inferno-diff-folded write them."""
    lines = list(complete_lines(head if head.count(b"\n") > 1 else head + b"\n"))
    stacks = [line for line in lines if _is_stack_line(line)]
    return any(b";" in line for line in stacks) and all(_has_two_counts(line) for line in stacks)


def fold(source: Source, kind_of: Callable[[str], FrameKind] | None = None) -> Fold:
    """Add up the counts of a source by stack.

    kind_of: tells a frame's kind by its text (default: by its suffix). Raises InputError for a differential.
    """
    if is_differential(source.head()):
        raise InputError(
            "two counts per line: this is a differential (difffolded.pl, inferno-diff-folded)",
            "give one of the two files that it was made from",
            path=source.name,
        )
    result = Fold(is_folded=True)
    sums = _Sums(result, kind_of or kind_by_suffix)
    first_line = 1
    for chunk in source.line_chunks():
        lines = chunk.split(b"\n")
        if not lines[-1]:
            lines.pop()
        sums.add(lines, first_line)
        first_line += len(lines)
    sums.finish()
    result.losses.merge(source.losses.as_tuple())
    result.rows += source.losses.lost_rows
    return result


def kind_by_suffix(name: str) -> FrameKind:
    """Return the kind that a frame's suffix tells, 'user' without one."""
    return _KIND_SUFFIXES.get(name[-4:], "user") if name.endswith("]") else "user"


class _Sums:
    """Adds up counts by trie node; frames that a stack shares with the one before are not looked up again."""

    def __init__(self, result: Fold, kind_of: Callable[[str], FrameKind]) -> None:
        self._result = result
        self._kind_of = kind_of
        self._whole: defaultdict[int, int] = defaultdict(int)
        self._fractions: defaultdict[int, Fraction] = defaultdict(Fraction)
        self._numbers: dict[bytes, int] = {}
        self._nodes: dict[bytes, int] = {}  # of whole stacks that were seen
        self._remembered_bytes = 0
        self._last_names: list[bytes] = []
        self._last_nodes: list[int] = []

    def add(self, lines: list[bytes], first_line: int) -> None:
        """Add lines, the first of which has number first_line."""
        nodes, whole = self._nodes, self._whole
        odd = 0
        for number, line in enumerate(lines, first_line):
            stack, _, count = line.rpartition(b" ")
            if count.isdigit() and len(count) < 19 and stack and not line.startswith(b"# "):
                node = nodes.get(stack)
                whole[self._remember(stack) if node is None else node] += int(count)
            else:
                odd += 1
                self._odd(line, number)
        self._result.rows += len(lines) - odd

    def _remember(self, stack: bytes) -> int:
        self._remembered_bytes += len(stack)
        if self._remembered_bytes > _REMEMBERED_BYTES:
            self._nodes.clear()
            self._remembered_bytes = len(stack)
        node = self._nodes[stack] = self._node(stack.rstrip())
        return node

    def _odd(self, line: bytes, number: int) -> None:
        text = line.rstrip()
        if not text or text.startswith(b"# "):
            return
        self._result.rows += 1
        parts = text.rsplit(None, 1)
        match = _COUNT.fullmatch(parts[1]) if len(parts) == 2 else None
        if match is None:
            is_negative = len(parts) == 2 and _COUNT.fullmatch(parts[1].removeprefix(b"-")) is not None
            reason = "bad_weight" if is_negative else "unreadable_line"
            self._result.losses.add(reason, line=number, example=line)
            return
        node = self._node(parts[0])
        self._whole[node] += int(match[1] or 0)
        decimals = (match[2] or match[3] or b"").rstrip(b"0")
        if decimals:
            self._fractions[node] += Fraction(int(decimals), 10 ** len(decimals))

    def _node(self, stack: bytes) -> int:
        names = stack.split(b";")
        depth = 0
        for name, before in zip(names, self._last_names, strict=False):
            if name != before:
                break
            depth += 1
        nodes = self._last_nodes[:depth]
        node = nodes[-1] if depth else EMPTY_STACK
        push = self._result.trie.push
        for name in names[depth:]:
            number = self._numbers.get(name)
            node = push(node, self._frame(name) if number is None else number)
            nodes.append(node)
        self._last_names, self._last_nodes = names, nodes
        return node

    def _frame(self, name: bytes) -> int:
        symbol = decode(name)
        number = self._numbers[name] = self._result.trie.frame(Frame(symbol, kind=self._kind_of(symbol)))
        return number

    def finish(self) -> None:
        """Put the sums into the fold: fractions rounded half up, once per stack."""
        for node, amount in self._whole.items():
            fraction = self._fractions.get(node)
            if fraction is not None:
                exact = amount + fraction
                amount = (2 * exact.numerator + exact.denominator) // (2 * exact.denominator)
                if amount != exact:
                    self._result.losses.add("rounded_weight")
            self._result.add(EVENT, "", node, amount, None)


def complete_lines(head: bytes) -> Iterator[bytes]:
    """Yield the lines that have their end and are neither blank nor comments."""
    for line in head.split(b"\n")[:-1]:
        if line.strip() and not line.startswith(b"# "):
            yield line
