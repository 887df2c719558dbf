"""The tokenizer of `perf script` text: bytes in, rows and a trie of stacks out.

It works on whole blocks between blank lines, most of which are looked up in what was seen before (`perf_seen`), not
parsed; a block that is not plain goes line by line. Both ways end in the same few functions, so they read the same.
"""

from __future__ import annotations

import re

from collectors import perf_frames, perf_header
from collectors.perf_header import Head, Layout, Tail
from collectors.perf_rows import LineCount, Rows
from collectors.perf_seen import REMEMBER_BYTES, Seen
from pipeline.losses import LossLedger
from pipeline.stacks import EMPTY_STACK, Frame
from pipeline.text import decode, encode

_split_at_time = re.compile(rb" (\d+\.\d{1,9}):(?=\s)").split
_COMMENT = re.compile(rb"^#\s*(?P<key>[a-z][a-z ]*?)\s*:\s*(?P<value>.*)$")
_LOST = re.compile(rb"lost (\d+)")
_COMM_RECORD = re.compile(rb"^(?:exec:? )?:?\s*(?P<comm>.*):(?P<pid>\d+)/(?P<tid>\d+)$", re.S)
_SWITCHES = frozenset({"PERF_RECORD_SWITCH", "PERF_RECORD_SWITCH_CPU_WIDE"})
_TAB, _HASH = 0x09, 0x23


class Tokens:
    """Turns text into rows, which stay until `take` hands them out."""

    def __init__(self, layout: Layout, remember_bytes: int = REMEMBER_BYTES) -> None:
        self.layout = layout
        self.losses = LossLedger()
        self.meta: dict[str, str] = {}
        self.comm_history: dict[int, str] = {}  # from PERF_RECORD_COMM: the last name of each thread
        self.rows = Rows()
        self._seen = Seen(layout, remember_bytes)
        self.trie = self._seen.trie
        self._lines = LineCount()
        self._stack: list[bytes] = []  # stack lines of the last row, not interned yet
        self._stray: list[tuple[int, bytes]] = []  # lines that may begin the next process name
        self._block_at = (b"", 0)  # the odd block being read: its text, and where it begins
        self._has_row = False  # whether a stack line belongs to the last row
        self._has_inline = False  # whether that row's node came from a frame on the sample line
        self._record: tuple[str, bytes] | None = None  # the PERF_RECORD line just read
        self._is_finished = False

    def feed(self, text: bytes) -> None:
        """Read text, which ends at the end of a line (the newline itself may be missing)."""
        heads, tails, callers = self._seen.heads, self._seen.tails, self._seen.callers
        rows = self.rows
        add_head, add_tail, add_node = rows.heads.append, rows.tails.append, rows.nodes.append
        add_time = rows.times.append
        ends_blank = text.endswith(b"\n\n")
        blocks = (text[:-2] if ends_blank else text.removesuffix(b"\n")).split(b"\n\n")
        counted = counted_bytes = 0  # blocks and bytes up to the last odd block
        plain_from = len(rows)  # each plain block since has added one
        is_clean = self._is_clean()
        for block in blocks:
            lines = block.split(b"\n", 2)
            if len(lines) == 2:
                lines.append(b"")
            if is_clean and len(lines) == 3:
                line, leaf, rest = lines
                parts = _split_at_time(line, 1)
                if len(parts) == 3:
                    prefix, time, suffix = parts
                    try:
                        # the plain case: nothing new but the combination
                        head, tail = heads[prefix], tails[suffix]
                        add_node(callers[rest][leaf])
                        add_head(head)
                        add_tail(tail)
                        add_time(time)
                        continue
                    except KeyError:
                        if self._add_block(prefix, suffix, time, leaf, rest):
                            continue
            # something odd: line by line. The plain blocks since the last odd one added a row each
            number = counted + len(rows) - plain_from
            if number > counted:
                self._after_plain_block()
            counted_bytes += sum(map(len, blocks[counted:number])) + 2 * (number - counted)
            self._block_at = (text, counted_bytes)
            self._read_odd_block(block, number > 0, ends_blank or number < len(blocks) - 1)
            is_clean = self._is_clean()
            counted, plain_from = number + 1, len(rows)
            counted_bytes += len(block) + 2
        if len(rows) > plain_from:
            self._after_plain_block()
        self._lines.add(text)
        self._seen.bound()

    def _is_clean(self) -> bool:
        """Return whether the next sample line stands alone, whatever came before."""
        return not (self._stray or self._stack)

    def _after_plain_block(self) -> None:
        self._has_row, self._has_inline, self._record = True, False, None

    def _add_block(self, prefix: bytes, suffix: bytes, time: bytes, leaf: bytes, rest: bytes) -> bool:
        """Add the row of a block in which something is new; False where it is not plain."""
        seen = self._seen
        head, found = seen.head(prefix), seen.tail(suffix)
        if head is None or found is None or found[0].is_record:
            return False
        node = seen.stack(leaf, rest)
        if node is None:
            return False
        tail, args = found
        self.rows.add(head, tail, node, time, args if tail.has_args else b"")
        return True

    def begin_piece(self) -> None:
        """Start a text of its own: lines and losses count from here, everything remembered stays."""
        self._lines = LineCount()
        self.losses = LossLedger()
        self._is_finished = False

    def finish(self) -> None:
        """End the last row: no more text comes."""
        self._blank_line()
        self._is_finished = True

    @property
    def ready(self) -> int:
        """Return how many rows can be taken: the last one stays until the end, for stack lines may still follow."""
        return len(self.rows) if self._is_finished else max(0, len(self.rows) - 1)

    def take(self, count: int) -> Rows:
        """Hand out the first rows read, at most as many as are ready."""
        taken = self.rows
        self.rows = taken.cut(count)
        return taken

    # one line at a time: everything that is not a plain block

    def _read_odd_block(self, block: bytes, is_after_blank: bool, ends_blank: bool) -> None:
        if is_after_blank:
            self._blank_line()
        for index, line in enumerate(block.split(b"\n")):
            self._read_line(line, index)
        if ends_blank:
            self._blank_line()

    def _line_number(self, index: int) -> int:
        """Return the line number of a line of the odd block being read."""
        return self._lines.before(*self._block_at) + 1 + index

    def _read_line(self, line: bytes, index: int) -> None:
        if not line or line.isspace():
            self._blank_line()
        elif line[0] == _TAB:
            self._read_indented(line, index)
        elif self._seen.frames.get(line) is not None and self._has_row:
            self._add_stack_line(line)
        elif line[0] == _HASH and not (self.layout.has_time and perf_header.TIME.search(line)):
            self._read_comment(line)
        elif not self._start_row(line):
            self._read_other(line, index)

    def _read_indented(self, line: bytes, index: int) -> None:
        """A line that begins with TAB: a stack line, or more of a PERF_RECORD, or a process name that begins so."""
        if self._record is not None:
            return
        if self._has_row and self._seen.frame_numbers(line) is not None:
            self._add_stack_line(line)
        elif not self._start_row(line):
            self._end_stack()
            self.losses.add("unreadable_frame", line=self._line_number(index), example=line)

    def _read_other(self, line: bytes, index: int) -> None:
        if self._has_row and self._seen.frame_numbers(line) is not None:
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

    def _read_comment(self, line: bytes) -> None:
        match = _COMMENT.match(line)
        if match is not None and len(self.meta) < 200:
            self.meta.setdefault(decode(match["key"]), decode(match["value"]).strip())

    def _start_row(self, line: bytes) -> bool:
        """Read a sample line or a PERF_RECORD line; False where line is neither."""
        found = self._timed(line) if self.layout.has_time else self._untimed(line)
        if found is None:
            return False
        head, tail, time, args = found
        self._end_stack()
        if self._stray:
            self._settle_stray()
        if tail.is_record:
            self._read_record(tail.event, args, head)
            self._has_row = self._has_inline = False
            if tail.event not in _SWITCHES:
                return True
        else:
            self._record = None
            self._has_row = True
        node = EMPTY_STACK
        self._has_inline = False
        if args and not tail.has_args:
            node = self._inline_node(args)
            self._has_inline = node != EMPTY_STACK
        self.rows.add(head, tail, node, time, args if tail.has_args else b"")
        return True

    def _timed(self, line: bytes) -> tuple[Head, Tail, bytes, bytes] | None:
        for match in perf_header.times_in(line):
            prefix = line[: match.start()].removesuffix(b" ")
            found = self._seen.tail(line[match.end() :])
            if found is None:
                continue
            head = self._named_across_lines(prefix) or self._seen.head(prefix)
            if head is not None:
                time = line[match.start() : match.end() - 1]
                return head, found[0], time, found[1]
        return None

    def _untimed(self, line: bytes) -> tuple[Head, Tail, bytes, bytes] | None:
        parsed = perf_header.parse_without_time(line, self.layout)
        if parsed is None:
            return None
        head, event, period, args = parsed
        return self._seen.interned_head(head), self._seen.interned_tail(event, period), b"", args

    def _named_across_lines(self, prefix: bytes) -> Head | None:
        """Return the head of a sample whose process name holds line feeds, taking in its lines before."""
        for first in range(len(self._stray)):
            name_start = b"\n".join(line for _, line in self._stray[first:]).lstrip(b" ")
            if len(name_start) > perf_header.COMM_BYTES:
                continue
            head = self._seen.head(name_start + b"\n" + prefix)
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
        node = self._seen.stack(lines[0], b"\n".join(lines[1:]))
        if node is None:
            node = self._stack_with_sources(lines)
        inner = self.rows.nodes[-1]
        if inner != EMPTY_STACK and not self._has_inline:
            # a blank line stood within the stack: these are the callers of what came before it
            for frame in self.trie.path(inner):
                node = self.trie.push(node, self.trie.frame(frame))
        self.rows.nodes[-1] = node
        self._has_inline = False

    def _stack_with_sources(self, lines: list[bytes]) -> int:
        """Return the node of stack lines with source lines between them."""
        innermost_first: list[Frame] = []
        for line in lines:
            numbers = self._seen.frame_numbers(line)
            if numbers is not None:
                innermost_first.extend(self.trie.frames[number] for number in reversed(numbers))
                continue
            source = perf_frames.parse_source_line(line)
            if source is not None and innermost_first:
                file, line_number, is_inlined = source
                frame = innermost_first[-1]._replace(file=file, line=line_number)
                innermost_first[-1] = frame._replace(kind="inlined", dso="inlined") if is_inlined else frame
        return self.trie.add(reversed(innermost_first))
