"""The tokenizer of `perf script` text: bytes in, rows and a trie of stacks out.

It works on whole blocks between blank lines and remembers texts that it has seen (the callers' part of a stack, a stack
line, the columns before and after the time), so that most of a capture is looked up, not parsed; a block that is not
plain goes line by line. Both ways end in the same few functions, so they read the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from collectors import perf_frames, perf_header
from collectors.perf_header import Head, Layout, Tail
from collectors.perf_header_lines import HeaderLines
from collectors.perf_rows import LineCount, Rows, times_to_ns
from pipeline.losses import LossLedger
from pipeline.stacks import EMPTY_STACK, Frame, StackTrie
from pipeline.text import decode, encode

_TIME_DIGITS = re.compile(rb" \d+\.\d{1,9}:\s")
REMEMBER_BYTES = 192 << 20  # of texts seen, over all processes; all are forgotten beyond, to bound the memory
_LOST = re.compile(rb"lost (\d+)")
_COMM_RECORD = re.compile(rb"^(?:exec:? )?:?\s*(?P<comm>.*):(?P<pid>\d+)/(?P<tid>\d+)$", re.S)
_SWITCHES = frozenset({"PERF_RECORD_SWITCH", "PERF_RECORD_SWITCH_CPU_WIDE"})
_ENTRY_BYTES = 120  # what remembering a text costs beside the text
_TAB, _HASH = 0x09, 0x23
_NO_FRAMES: tuple[int, ...] = ()


def _never(_: bytes) -> None:
    return None


class Tokens:
    """Turns text into rows, which stay until `take` hands them out."""

    def __init__(self, layout: Layout, remember_bytes: int = REMEMBER_BYTES) -> None:
        self.layout = layout
        self.trie = StackTrie()
        self.losses = LossLedger()
        self.header = HeaderLines()
        self.comm_history: dict[int, str] = {}  # from PERF_RECORD_COMM: the last name of each thread
        self._lines = LineCount()
        self._taken = 0  # rows handed out
        self.rows = Rows()
        # each text is parsed once; only what is plain stands here
        self._heads: dict[bytes, Head] = {}
        self._tails: dict[bytes, Tail] = {}
        self._heads_untimed: dict[tuple[str | None, int | None, int | None, int | None], Head] = {}
        self._tail_of: dict[tuple[str, int | None], Tail] = {}
        self._callers: dict[bytes, int] = {b"": EMPTY_STACK}
        self._frames: dict[bytes, tuple[int, ...]] = {}
        self._named_frames: dict[bytes, tuple[int, ...]] = {}
        self._steps: dict[tuple[int, bytes], int] = {}  # (stack, next stack line inwards) -> stack
        self._memories: tuple[dict[Any, Any], ...] = (
            self._heads,
            self._tails,
            self._tail_of,
            self._callers,
            self._steps,
            self._frames,
            self._named_frames,
        )
        self._remember_bytes = remember_bytes
        self._remembered_bytes = 0
        self._stack: list[bytes] = []  # stack lines of the last row, not interned yet
        self._stray: list[tuple[int, bytes]] = []  # lines that may begin the next process name
        self._block_at = (b"", 0)  # the odd block being read: its text, and where it begins
        self._has_row = False  # whether a stack line belongs to the last row
        self._has_inline = False  # whether that row's node came from a frame on the sample line
        self._record: tuple[str, bytes] | None = None  # the PERF_RECORD line just read

    def to_raw(self, printed: Sequence[bytes]) -> list[int]:
        """Return printed times as integer nanoseconds."""
        return times_to_ns(printed)

    def feed(self, text: bytes) -> None:
        """Read text, which ends at the end of a line (the newline itself may be missing)."""
        heads, tails, callers, frames = self._heads, self._tails, self._callers, self._frames
        keys = self.rows.keys
        add_key, add_time = keys.append, self.rows.times.append
        blocks = text.removesuffix(b"\n").split(b"\n\n")
        look = _TIME_DIGITS.search if self._is_clean() else _never
        counted = counted_bytes = 0  # blocks and bytes up to the last odd block
        plain_from = len(keys)  # each plain block since has added one
        for block in blocks:
            parts = block.split(b"\n", 2)
            if len(parts) == 2:
                parts.append(b"")
            if len(parts) == 3 and (match := look(parts[0])) is not None:
                line, leaf, rest = parts
                space, after = match.span()
                try:
                    # the plain case: nothing new but the combination
                    add_key((heads[line[: space + 1]], tails[line[after - 1 :]], callers[rest], frames[leaf]))
                    add_time(line[space + 1 : after - 2])
                    continue
                except KeyError:
                    time = line[space + 1 : after - 2]
                    if self._add_block(line[: space + 1], line[after - 1 :], time, leaf, rest):
                        continue
            # something odd: line by line. The plain blocks since the last odd one added a row each
            number = counted + len(keys) - plain_from
            if number > counted:
                self._has_row, self._has_inline, self._record = True, False, None
            skipped = blocks[counted:number]
            counted_bytes += sum(map(len, skipped)) + 2 * len(skipped)
            if number > 0:
                self._blank_line()
            self._block_at = (text, counted_bytes)
            for index, line in enumerate(block.split(b"\n")):
                self._read_line(line, index)
            if number < len(blocks) - 1:
                self._blank_line()
            look = _TIME_DIGITS.search if self._is_clean() else _never
            counted, plain_from = number + 1, len(keys)
            counted_bytes += len(block) + 2
        if len(keys) > plain_from:
            self._has_row, self._has_inline, self._record = True, False, None
        self._lines.add(text)
        if self._remembered_bytes > self._remember_bytes:
            self._forget()

    def _is_clean(self) -> bool:
        """Return whether the next sample line stands alone, whatever came before."""
        return not (self._stray or self._stack)

    def _add_block(self, prefix: bytes, suffix: bytes, time: bytes, leaf: bytes, rest: bytes) -> bool:
        """Add the row of a block in which something is new; False where it is not plain."""
        head, found = self._head(prefix), self._tail(suffix)
        if head is None or found is None or found[0].event.startswith("PERF_RECORD_"):
            return False
        numbers = self._frame_numbers(leaf)
        node = None if numbers is None else self._callers_node(rest)
        if numbers is None or node is None:
            return False
        tail, args = found
        if args and tail.is_tracepoint:
            self.rows.args[len(self.rows)] = args
        self.rows.keys.append((head, tail, node, numbers))
        self.rows.times.append(time)
        return True

    def begin_piece(self) -> None:
        """Start a text of its own: lines and losses count from here, everything remembered stays."""
        self._lines = LineCount()
        self.losses = LossLedger()

    def finish(self) -> None:
        """End the last row: no more text comes."""
        self._blank_line()

    def take(self, is_last: bool = False) -> Rows:
        """Hand out the rows read; the last one stays until the end, for stack lines may still follow."""
        if is_last:
            taken, kept = self.rows, Rows()
        else:
            taken, kept = self.rows, self.rows.split_last()
        self._taken += len(taken)
        self.rows = kept
        return taken

    def _forget(self) -> None:
        for memory in self._memories:
            memory.clear()
        self._callers[b""] = EMPTY_STACK
        self._remembered_bytes = 0

    # one line at a time: everything that is not a plain block

    def _line_number(self, index: int) -> int:
        """Return the line number of a line of the odd block being read."""
        return self._lines.before(*self._block_at) + 1 + index

    def _read_line(self, line: bytes, index: int) -> None:
        if not line or line.isspace():
            self._blank_line()
        elif line[0] == _TAB:
            self._read_indented(line, index)
        elif self._frames.get(line) is not None and self._has_row:
            self._add_stack_line(line)
        elif line[0] == _HASH and not (self.layout.has_time and perf_header.TIME.search(line)):
            self.header.read(line, self._taken + len(self.rows), lambda: self._line_number(index))
        elif not self._start_row(line):
            self._read_other(line, index)

    def _read_indented(self, line: bytes, index: int) -> None:
        """A line that begins with TAB: a stack line, or more of a PERF_RECORD, or a process name that begins so."""
        if self._record is not None:
            return
        if self._has_row and self._frame_numbers(line) is not None:
            self._add_stack_line(line)
        elif not self._start_row(line):
            self._end_stack()
            self.losses.add("unreadable_frame", line=self._line_number(index), example=line)

    def _read_other(self, line: bytes, index: int) -> None:
        if self._has_row and self._frame_numbers(line) is not None:
            self._add_stack_line(line)
        elif (self._stack or self._has_inline) and perf_frames.parse_source_line(line) is not None:
            if self._stack:
                self._stack.append(line)
        else:
            self._stray.append((self._line_number(index), line))

    def _add_stack_line(self, line: bytes) -> None:
        if self._stray:
            self._settle_stray()
        self._stack.append(line)

    def _blank_line(self) -> None:
        if self._stack:
            self._end_stack()
        if self._stray:
            self._settle_stray()

    def lines_fed(self) -> int:
        """Return how many lines the texts had that were fed so far."""
        return self._lines.before(b"", 0)

    def _start_row(self, line: bytes) -> bool:
        """Read a sample line or a PERF_RECORD line; False where line is neither."""
        found = self._timed(line) if self.layout.has_time else self._untimed(line)
        if found is None:
            return False
        head, tail, time, args = found
        self._end_stack()
        if self._stray:
            self._settle_stray()
        if tail.event.startswith("PERF_RECORD_"):
            self._read_record(tail.event, args, head)
            self._has_row = self._has_inline = False
            if tail.event not in _SWITCHES:
                return True
        else:
            self._record = None
            self._has_row = True
        node = EMPTY_STACK
        self._has_inline = False
        if args and not tail.is_tracepoint and self._has_row:
            node = self._inline_node(args)
            self._has_inline = node != EMPTY_STACK
        if args and tail.is_tracepoint:
            self.rows.args[len(self.rows)] = args
        self.rows.keys.append((head, tail, node, _NO_FRAMES))
        self.rows.times.append(time)
        return True

    def _timed(self, line: bytes) -> tuple[Head, Tail, bytes, bytes] | None:
        for match in perf_header.times_in(line):
            prefix = line[: match.start()]
            found = self._tail(line[match.end() :])
            if found is None:
                continue
            head = self._named_across_lines(prefix) or self._head(prefix)
            if head is not None:
                time = line[match.start() : match.end() - 1]
                return head, found[0], time, found[1]
        return None

    def _untimed(self, line: bytes) -> tuple[Head, Tail, bytes, bytes] | None:
        parsed = perf_header.parse_without_time(line, self.layout)
        if parsed is None:
            return None
        head, event, period, args = parsed
        known = self._heads_untimed.setdefault((head.comm, head.pid, head.tid, head.cpu), head)
        return known, self._intern_tail(event, period), b"", args

    def _named_across_lines(self, prefix: bytes) -> Head | None:
        """Return the head of a sample whose process name holds line feeds, taking in its lines before."""
        for first in range(len(self._stray)):
            name_start = b"\n".join(line for _, line in self._stray[first:]).lstrip(b" ")
            if len(name_start) > perf_header.COMM_BYTES:
                continue
            head = self._head(name_start + b"\n" + prefix)
            if head is not None and head.comm and len(encode(head.comm)) <= perf_header.COMM_BYTES:
                del self._stray[first:]
                return head
        return None

    def _settle_stray(self) -> None:
        """Decide what lines are that were neither samples nor stack lines: more arguments, or lost."""
        stray, self._stray = self._stray, []
        text = b"\n".join(line for _, line in stray)
        if self._record is not None:
            self._read_record(self._record[0], self._record[1] + b"\n" + text, None)
        elif self._has_row and not self._stack and len(self.rows) - 1 in self.rows.args:
            self.rows.args[len(self.rows) - 1] += b"\n" + text  # an argument that holds a line feed
        else:
            for number, line in stray:
                self.losses.add("unreadable_line", line=number, example=line)

    def _read_record(self, event: str, text: bytes, head: Head | None) -> None:
        is_new = head is not None
        self._record = (event, text)
        if event == "PERF_RECORD_COMM":
            match = _COMM_RECORD.match(text)
            if match is not None:
                self.comm_history[int(match["tid"])] = decode(match["comm"])
        elif event in ("PERF_RECORD_LOST", "PERF_RECORD_LOST_SAMPLES") and is_new:
            match = _LOST.search(text)
            self.losses.add("kernel_lost", int(match[1]) if match else 1)
        elif event == "PERF_RECORD_THROTTLE" and is_new:
            self.losses.add("kernel_throttled")
        elif event not in _SWITCHES and is_new:
            self.losses.add("skipped_record")

    # memory: each text is parsed once

    def _head(self, prefix: bytes) -> Head | None:
        head = self._heads.get(prefix) or perf_header.parse_prefix(prefix, self.layout)
        if head is not None and prefix not in self._heads:
            self._heads[prefix] = head
            self._remembered_bytes += len(prefix) + _ENTRY_BYTES
        return head

    def _tail(self, suffix: bytes) -> tuple[Tail, bytes] | None:
        known = self._tails.get(suffix)
        if known is not None:
            return known, b""
        parsed = perf_header.parse_suffix(suffix)
        if parsed is None:
            return None
        event, period, args = parsed
        tail = self._intern_tail(event, period)
        if not args and not tail.event.startswith("PERF_RECORD_"):
            self._tails[suffix] = tail
            self._remembered_bytes += len(suffix) + _ENTRY_BYTES
        return tail, args

    def _intern_tail(self, event: str, period: int | None) -> Tail:
        tail = self._tail_of.get((event, period))
        if tail is None:
            tail = self._tail_of[(event, period)] = Tail(event, period)
            self._remembered_bytes += _ENTRY_BYTES
        return tail

    def _frame_numbers(self, line: bytes) -> tuple[int, ...] | None:
        """Return the frames of a stack line, the outermost first; None where it is no stack line."""
        numbers = self._frames.get(line)
        if numbers is not None:
            return numbers
        if line[:1] != b"\t" and self._is_sample_line(line):
            return None
        # the lines of one function differ in address and offset: most need no parsing
        words = line.split(None, 1)
        if len(words) == 2 and perf_frames.is_address(words[0]):
            name = perf_frames.without_offset(words[1])
            key = b"^" + name if perf_frames.is_kernel_address(words[0]) else name
            numbers = self._named_frames.get(key)
            if numbers is None:
                numbers = self._parse_frame(line)
                if numbers is not None:
                    self._named_frames[key] = numbers
                    self._remembered_bytes += len(key) + _ENTRY_BYTES
        else:
            numbers = self._parse_frame(line)
        if numbers is not None:
            self._frames[line] = numbers
            self._remembered_bytes += len(line) + _ENTRY_BYTES
        return numbers

    def _parse_frame(self, line: bytes) -> tuple[int, ...] | None:
        parsed = perf_frames.parse_frame(line, self.layout.has_symbols)
        return None if parsed is None else tuple(self.trie.frame(frame) for frame in parsed)

    def _is_sample_line(self, line: bytes) -> bool:
        if self.layout.has_time:
            return next(perf_header.times_in(line), None) is not None
        return perf_header.parse_without_time(line, self.layout) is not None

    def _callers_node(self, text: bytes) -> int | None:
        """Return the node of stack lines, the innermost first; None where a line is something else."""
        known = self._callers.get(text)
        if known is not None:
            return known
        node = EMPTY_STACK
        steps = self._steps
        lines = text.split(b"\n")
        lines.reverse()
        for line in lines:
            step = (node, line)
            known = steps.get(step)
            if known is not None:
                node = known
                continue
            numbers = self._frame_numbers(line)
            if numbers is None:
                return None
            for number in numbers:
                node = self.trie.push(node, number)
            steps[step] = node
            self._remembered_bytes += len(line) + _ENTRY_BYTES
        self._callers[text] = node
        self._remembered_bytes += len(text) + _ENTRY_BYTES
        return node

    def _inline_node(self, text: bytes) -> int:
        """Return the node of a frame that stands on the sample line (no call graph), after data addresses if any."""
        text = text.partition(b" => ")[0]  # a branch: where it came from
        words = text.split(None, 2)
        while len(words) == 3 and perf_frames.is_address(words[0]) and perf_frames.is_address(words[1]):
            text = text.split(None, 1)[1]
            words = text.split(None, 2)
        if len(words) < 2:
            return EMPTY_STACK
        parsed = perf_frames.parse_frame(b"\t" + text, self.layout.has_symbols)
        return self.trie.add(parsed or ())

    def _end_stack(self) -> None:
        """Give the collected stack lines to the last row."""
        if not self._stack:
            return
        lines, self._stack = self._stack, []
        node = self._callers_node(b"\n".join(lines))
        if node is None:
            node = self._stack_with_sources(lines)
        head, tail, inner, numbers = self.rows.keys[-1]
        if (inner != EMPTY_STACK or numbers) and not self._has_inline:
            # a blank line stood within the stack: these are the callers of what came before it
            for frame in self.trie.path(inner):
                node = self.trie.push(node, self.trie.frame(frame))
        else:
            numbers = _NO_FRAMES
        self.rows.keys[-1] = (head, tail, node, numbers)
        self._has_inline = False

    def _stack_with_sources(self, lines: list[bytes]) -> int:
        """Return the node of stack lines with source lines between them."""
        innermost_first: list[Frame] = []
        for line in lines:
            numbers = self._frame_numbers(line)
            if numbers is not None:
                innermost_first.extend(self.trie.frames[number] for number in reversed(numbers))
                continue
            source = perf_frames.parse_source_line(line)
            if source is not None and innermost_first:
                file, line_number, is_inlined = source
                frame = innermost_first[-1]._replace(file=file, line=line_number)
                innermost_first[-1] = frame._replace(kind="inlined", dso="inlined") if is_inlined else frame
        return self.trie.add(reversed(innermost_first))
