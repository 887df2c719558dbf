"""The tokenizer of ftrace text: bytes in, rows and a trie of stacks out, as perf_tokens does for perf script.

A stack stands behind its event, but where CPUs take turns not right behind it:

            bash-2579    [000] ..... 36801.044436: sys_write(fd: 1, buf: 0x55e064401dc0, count: 0x15)
            bash-2579    [000] ..... 36801.044437: <stack trace>
 => ftrace_syscall_enter
 => do_syscall_64
"""

from __future__ import annotations

import re

from collectors import ftrace_lines
from collectors.ftrace_clocks import Stamp
from collectors.ftrace_frames import frame_of
from collectors.ftrace_lines import NAME_COLUMNS, PRINT, Event
from collectors.perf_header import Head, Tail
from collectors.perf_header_lines import HeaderLines
from collectors.perf_rows import Rows
from pipeline.losses import LossLedger
from pipeline.stacks import EMPTY_STACK, Frame, StackTrie
from pipeline.text import decode

_KEPT_ROWS = (
    256  # that stacks may still come for: between the two are other CPUs' events of some microseconds
)
_MOST_REMEMBERED = 1 << 16
_MOST_STRAY = NAME_COLUMNS  # lines: a name of line feeds alone
_NO_FRAMES: tuple[int, ...] = ()
_MOST_BLOCKS = 100
_ENTRIES = re.compile(rb"#\s*entries-in-buffer/entries-written:\s*(\d{1,18})/(\d{1,18})")
_TRACER = re.compile(rb"#\s*tracer: \w")
_PREV = re.compile(rb"prev_comm=(.{1,16}?) prev_pid=(\d+) |(.{1,16}?):(\d+) \[-?\d+\] \S+ ==> ", re.S)
_SWITCH = "sched:sched_switch"
_SWITCH_END = re.compile(rb" ==> .*(?:next_prio=-?\d+|\[-?\d+\]$)", re.S)

_Frames = tuple[Frame, ...]


class FtraceTokens:
    """Turns text into rows, which stay until `take` hands them out."""

    def __init__(self, stamp: Stamp) -> None:
        self.trie = StackTrie()
        self.losses = LossLedger()
        self.header = HeaderLines()
        self.header.meta.update(stamp.meta)
        self.comm_history: dict[int, str] = {}  # the last name seen of each thread
        self.rows = Rows()
        self.to_raw = stamp.to_raw
        self._stamp = stamp
        self._taken = 0
        self._lines = 0
        # each text is parsed once
        self._heads: dict[bytes, Head] = {}
        self._unnamed: dict[bytes, Head] = {}
        self._tails: dict[bytes, tuple[Tail, int]] = {}  # what stands before ': ', and where arguments begin
        self._returns: dict[bytes, Tail] = {}  # what stands before ' -> '
        self._tail_of: dict[str, Tail] = {}
        self._frames: dict[tuple[str, bytes], Frame] = {}
        self._nodes: dict[tuple[_Frames, _Frames], int] = {}
        # stacks: the last row of each CPU, and what is known of a row's two stacks
        self._last_row: dict[int | None, int] = {}
        self._stacks: dict[int, tuple[_Frames, _Frames]] = {}
        self._stack: list[Frame] | None = None  # being read, the innermost first
        self._stack_kind = ""
        self._stack_row: int | None = None
        self._stray: list[tuple[int, bytes]] = []  # may begin a task's name that holds line feeds

    def feed(self, text: bytes) -> None:
        """Read text, which ends at the end of a line (the newline itself may be missing)."""
        lines = text.removesuffix(b"\n").split(b"\n")
        columns, heads, tails, returns = ftrace_lines.COLUMNS.match, self._heads, self._tails, self._returns
        keys, times, args_of, last_row = self.rows.keys, self.rows.times, self.rows.args, self._last_row
        taken, is_bare, has_times = self._taken, self._stamp.is_bare, bool(self._stamp.clock)
        for number, line in enumerate(lines, self._lines + 1):
            found = columns(line)
            if found is None or self._stack is not None or self._stray:
                self._read_line(line, number)
                continue
            prefix, time = found.groups()
            rest = line[found.end() :]
            name, colon, args = rest.partition(b": ")
            tail: Tail | None
            tail, begin = tails.get(name, (None, 0))
            if tail is None:
                name, arrow, args = rest.partition(b" -> ")
                tail = returns.get(name) if arrow else None
            elif begin:
                args = rest[begin:-1]
                tail = tail if rest.endswith(b")") else None
            elif not colon:
                tail = None
            head = heads.get(prefix)
            if head is None or tail is None or (b"." in time) is is_bare:
                self._read_line(line, number)
                continue
            # the plain case: nothing new but the combination
            args = args.strip(b" ")
            row = len(keys)
            if args:
                args_of[row] = args
            keys.append((head, tail, EMPTY_STACK, _NO_FRAMES))
            times.append(time if has_times else b"")
            last_row[head.cpu] = taken + row
        self._lines += len(lines)
        self._bound_memory()

    def begin_piece(self) -> None:
        """Start a text of its own: lines and losses count from here."""
        self._lines = 0
        self.losses = LossLedger()

    def finish(self) -> None:
        """End the last row: no more text comes."""
        self._end_stack()
        self._settle_stray()

    def take(self, is_last: bool = False) -> Rows:
        """Hand out the rows read; the last ones stay until the end, for their stacks may still follow."""
        rows = self.rows
        count = len(rows) if is_last else max(0, len(rows) - _KEPT_ROWS)
        if not count:
            return Rows()
        kept = Rows(rows.keys[count:], rows.times[count:])
        kept.args = {at - count: args for at, args in rows.args.items() if at >= count}
        del rows.keys[count:], rows.times[count:]
        rows.args = {at: args for at, args in rows.args.items() if at < count}
        self.rows = kept
        self._taken += count
        self._stacks = {row: known for row, known in self._stacks.items() if row >= self._taken}
        return rows

    def lines_fed(self) -> int:
        """Return how many lines the texts had that were fed so far."""
        return self._lines

    def _bound_memory(self) -> None:
        memories: tuple[dict[object, object], ...] = (
            self._heads, self._unnamed, self._tails, self._returns, self._tail_of, self._frames, self._nodes,
        )  # type: ignore[assignment]  # fmt: skip
        for memory in memories:
            if len(memory) > _MOST_REMEMBERED:
                memory.clear()

    # one line at a time: everything that is new

    def _read_line(self, line: bytes, number: int) -> None:
        if self._stack is not None:
            frame = ftrace_lines.FRAME.match(line)
            if frame is not None:
                self._stack.append(self._frame(frame["text"]))
                return
            self._end_stack()
        found = ftrace_lines.match(line)
        if found is not None:
            head = self._named_across_lines(found["head"]) or self._head(found["head"])
            event = ftrace_lines.parse_event(line[found.end() :])
            if head is not None and event is not None and (b"." in found["time"]) is not self._stamp.is_bare:
                self._settle_stray()
                self._add(head, event, found["time"], line, found.end(), number)
                return
        self._read_other(line, number)

    def _add(self, head: Head, event: Event, time: bytes, line: bytes, begin: int, number: int) -> None:
        """Add what a line says that has a task and a time."""
        if event.kind == "function":
            self.losses.add("function_trace", line=number, example=line)
            return
        if event.kind != "event":
            self._begin_stack(event.kind, head, number)
            return
        tail = self._tail(event, line[begin:])
        if tail.event == _SWITCH and head.comm is not None and head.comm.startswith(":"):
            self._name_from_switch(event.args)
        row = len(self.rows)
        if event.args:
            self.rows.args[row] = event.args
        self.rows.keys.append((head, tail, EMPTY_STACK, _NO_FRAMES))
        self.rows.times.append(time if self._stamp.clock else b"")
        self._last_row[head.cpu] = self._taken + row

    def _read_other(self, line: bytes, number: int) -> None:
        """Read a line without a task and a time."""
        lost = ftrace_lines.LOST.match(line)
        if lost is not None:
            self.losses.add("kernel_lost", int(lost["lost"] or lost["dropped"] or 1), line=number)
        elif line.startswith(b"#") and not ftrace_lines.ASIDE.match(line):
            self._read_comment(line, number)
        elif ftrace_lines.ASIDE.match(line):
            pass
        elif ftrace_lines.FRAME.match(line):
            self.losses.add("stack_without_event", line=number, example=line)
        elif ftrace_lines.is_function_line(line):
            self.losses.add("function_trace", line=number, example=line)
        else:
            self._stray.append((number, line))
            if len(self._stray) > _MOST_STRAY:
                self._settle_stray()

    def _read_comment(self, line: bytes, number: int) -> None:
        entries = _ENTRIES.match(line)
        if entries is not None and int(entries[2]) > int(entries[1]):
            self.losses.add("kernel_lost", int(entries[2]) - int(entries[1]), line=number)
        rows_before, blocks = self._taken + len(self.rows), self.header.blocks
        if _TRACER.match(line) and rows_before and len(blocks) < _MOST_BLOCKS:
            blocks.append((rows_before, number))

    def _named_across_lines(self, prefix: bytes) -> Head | None:
        """Return the head of an event whose task's name holds line feeds, taking in its lines before."""
        for first in range(len(self._stray)):
            whole = b"\n".join([*(line for _, line in self._stray[first:]), prefix])
            if ftrace_lines.NAME_END.match(whole) and b"\n" not in whole[NAME_COLUMNS:]:
                head = ftrace_lines.parse_head(whole)
                if head is not None:
                    del self._stray[first:]
                    return head
        return None

    def _settle_stray(self) -> None:
        """Decide what lines are that were nothing known: more of the last event's arguments, or lost."""
        stray, self._stray = self._stray, []
        at = len(self.rows) - 1
        if stray and at >= 0 and _is_cut(self.rows.keys[at][1].event, self.rows.args.get(at, b"")):
            text = b"\n".join(line for _, line in stray).rstrip(b"\n")
            self.rows.args[at] = self.rows.args.get(at, b"") + b"\n" + text
            return
        for number, line in stray:
            if not line.strip():
                continue
            self.losses.add("unreadable_line", line=number, example=line)

    def _name_from_switch(self, args: bytes) -> None:
        """Learn the name that the kernel had forgotten where it printed the task, but not in the arguments."""
        found = _PREV.match(args)
        if found is not None:
            self.comm_history[int(found[2] or found[4])] = decode(found[1] or found[3])

    # stacks

    def _begin_stack(self, kind: str, head: Head, number: int) -> None:
        row = self._last_row.get(head.cpu, -1)
        self._stack, self._stack_kind = [], kind
        is_its = row >= self._taken and self.rows.keys[row - self._taken][0].tid == head.tid
        self._stack_row = row if is_its else None
        if not is_its:
            self.losses.add("stack_without_event", line=number)

    def _end_stack(self) -> None:
        """Give the stack that was read to its row: kernel functions are called by the user's."""
        if self._stack is None:
            return
        frames, self._stack = tuple(reversed(self._stack)), None
        row = self._stack_row
        if row is None or row < self._taken or not frames:
            return
        kernel, user = self._stacks.get(row, ((), ()))
        known = (frames, user) if self._stack_kind == "kernel" else (kernel, frames)
        self._stacks[row] = known
        node = self._nodes.get(known)
        if node is None:
            node = self._nodes[known] = self.trie.add((*known[1], *known[0]))
        head, tail, _, _ = self.rows.keys[row - self._taken]
        self.rows.keys[row - self._taken] = (head, tail, node, _NO_FRAMES)

    def _frame(self, text: bytes) -> Frame:
        key = (self._stack_kind, text)
        frame = self._frames.get(key)
        if frame is None:
            frame = self._frames[key] = frame_of(text, self._stack_kind)
        return frame

    # memory

    def _head(self, prefix: bytes) -> Head | None:
        head = self._heads.get(prefix) or self._unnamed.get(prefix)
        if head is None:
            head = ftrace_lines.parse_head(prefix)
            if head is None or head.comm is None or head.tid is None:
                return None
            if head.comm == f":{head.tid}":
                self._unnamed[prefix] = head  # its switches are looked at for the name
            else:
                self._heads[prefix] = head
                self.comm_history[head.tid] = head.comm
        return head

    def _tail(self, event: Event, rest: bytes) -> Tail:
        """Return the tail of an event, and remember what it is told by."""
        tail = self._tail_of.get(event.name)
        if tail is None:
            tail = self._tail_of[event.name] = Tail(event.name, None)
        name, _, args = rest.partition(b": ")
        if args.strip(b" ") == event.args:
            self._tails[name] = tail, 0
        elif rest.endswith(event.args + b")") and event.name.startswith("syscalls:sys_enter_"):
            self._tails[name] = tail, rest.index(b"(") + 1
        elif event.name.startswith("syscalls:sys_exit_") and b" -> " in rest:
            self._returns[rest.partition(b" -> ")[0]] = tail
        return tail


def _is_cut(event: str, args: bytes) -> bool:
    """Return whether the arguments of an event go on behind a line feed: in a print, or in a task's name."""
    if event == PRINT:
        return True
    if event == _SWITCH:
        return _SWITCH_END.search(args) is None
    if event.startswith("block:"):
        return not args.endswith(b"]")
    return b"comm=" in args and b" pid=" not in args
