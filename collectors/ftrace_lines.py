"""The lines of ftrace text: which are events, what each says, and how perf would name the event.

            bash-4469    (   4469) [001] d..2. 36970.465462: sched_switch: prev_comm=bash prev_pid=4469 ...
          <idle>-0       [001] ..... 36970.465027: sys_write -> 0x2
web:              cat-71    [000] 37001.445171246: sys_exit_write:       0x2          (trace-cmd report, buffer web)

Written from trace_print_context and print_syscall_enter of the kernel (kernel/trace), and from files of Linux 6.18 and
trace-cmd 3.1. A task's name may hold anything; it is right-aligned in 16 columns, which tells where it ends.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from collectors.perf_header import Head
from pipeline.text import decode

LONGEST_PREFIX: Final = 1024  # of a line before its time: no task name makes one longer

_FLAGS = (
    rb"[^\s:\d\[(][^\s:\[(]{3,9}"  # irq-info: d..2. ; older kernels have 4 letters, lazy preemption has more
)
_PLACE = rb"-\d{1,10}\s+(?:\(\s*[\d-]{1,10}\)\s+)?\[\d{1,9}\]\s+(?:" + _FLAGS + rb"\s+)?"
_TIME = rb"(?P<time>\d{1,20}(?:\.\d{1,9})?):(?:\s+|$)"
# the usual line, and one whose name is not in its columns: another buffer's, or text whose indentation is lost
COLUMNS: Final = re.compile(rb"(?P<head>(?:[^\s:]+: (?=[^\n]{16}-\d))?[^\n]{16}" + _PLACE + rb")" + _TIME)
ANYWHERE: Final = re.compile(rb"(?P<head>[^\n]*?" + _PLACE + rb")" + _TIME)

_PLACED = re.compile(rb"-(?P<tid>\d+)\s+(?:\(\s*(?P<pid>[\d-]+)\)\s+)?\[(?P<cpu>\d+)\]\s+(?P<flags>\S+)?\s*")
NAME_COLUMNS: Final = 16
NAME_END: Final = re.compile(rb".{16}-\d", re.S)
_BUFFER = re.compile(rb"[^\s:]+: (?=[^\n]{16}-\d)")  # trace-cmd names the buffer where there are several

LOST: Final = re.compile(
    rb"CPU:\s*\d+ \[(?:LOST (?P<lost>\d+) EVENTS|(?P<dropped>\d+) EVENTS DROPPED|LOST EVENTS|EVENTS DROPPED)\]"
)
# what stands around events, and says nothing of them
ASIDE: Final = re.compile(
    rb"#{5} CPU \d+ buffer started #{4}|cpus=\d+$|version = \d+$|CPU \d+ is empty$|TRACE:$"
)
FRAME: Final = re.compile(rb"\s*=> ?(?P<text>.*)$")
# function_graph: ` 0)   1.234 us    |  func();`, with a time before it or without the CPU, and its rulers
_GRAPH = re.compile(
    rb"\s*(?:\d+\.\d+ +\|\s*)?\d+\)\s.*|\s*-{20,}\s*$|[^|]*\| [^|]*(?:[{};]|\*/)\s*(?:/\*.*\*/)?\s*$"
)
_CALLED = re.compile(rb"\S+(?:\(.*\))? <--? ?\S+")
_FUNCTION_EVENTS = frozenset(
    {b"function", b"funcgraph_entry", b"funcgraph_exit", b"funcgraph_retaddr_entry", b"funcgraph"}
)

_CALL = re.compile(rb"(sys_\w+)\((.*)\)\s*$")
_RETURN = re.compile(rb"(sys_\w+) -> (.*)$")
_NAME = re.compile(rb"[A-Za-z_][\w.:-]*")
_OFFSET = re.compile(rb"\+0x[0-9a-f]+(?:/0x[0-9a-f]+)?$")
_PRINTS = frozenset({b"tracing_mark_write", b"print", b"bprint", b"bputs"})
PRINT: Final = "ftrace:print"
_STACK_EVENTS = {b"kernel_stack": "kernel", b"user_stack": "user"}
_STACKS = {b"<stack trace>": "kernel", b"<stack trace >": "kernel", b"<user stack trace>": "user"}

# ftrace prints events without their system; by how names begin, as in the kernel's include/trace/events
_SYSTEMS: Final = (
    ("sys_enter_", "syscalls"), ("sys_exit_", "syscalls"), ("sched_ext_", "sched_ext"), ("sched_", "sched"),
    ("irq_handler_", "irq"), ("softirq_", "irq"), ("tasklet_", "irq"), ("block_", "block"),
    ("dma_fence_", "dma_fence"), ("hrtimer_", "timer"), ("timer_", "timer"), ("workqueue_", "workqueue"),
)  # fmt: skip
_WHOLE_NAMES = {"sys_enter": "raw_syscalls:sys_enter", "sys_exit": "raw_syscalls:sys_exit"}


class Event(NamedTuple):
    """What stands behind the time: an event with perf's name and its arguments, or 'function', 'kernel', 'user'."""

    kind: str  # event; function: a line of the function tracers; kernel, user: the heading of a stack
    name: str = ""
    args: bytes = b""


FUNCTION: Final = Event("function")


def match(line: bytes) -> re.Match[bytes] | None:
    """Return the match of an event line: head, time, and where the event begins; None where it is none."""
    return COLUMNS.match(line, 0, LONGEST_PREFIX) or ANYWHERE.match(line, 0, LONGEST_PREFIX)


def parse_head(head: bytes) -> Head | None:
    """Read task, thread, process and CPU of what stands before the time.

    A task without a name, or with `<...>` for one that the kernel had forgotten, is called `:TID`, as perf calls those.
    """
    buffer = _BUFFER.match(head)
    if buffer is not None:
        head = head[buffer.end() :]
    at = NAME_COLUMNS if NAME_END.match(head) else head.rfind(b"-", 0, max(0, head.rfind(b"[")))
    found = _PLACED.fullmatch(head, at) if at >= 0 else None
    if found is None:
        dashes = (dash.start() for dash in re.finditer(b"-", head))
        found = next((one for at in dashes if (one := _PLACED.fullmatch(head, at)) is not None), None)
        if found is None:
            return None
    tid, pid = int(found["tid"]), found["pid"]
    name = decode(head[: found.start()].strip(b" \t"))
    has_pid = pid is not None and pid.isdigit()
    return Head(
        f":{tid}" if name in ("", "<...>") else name, int(pid) if has_pid else None, tid, int(found["cpu"])
    )


def parse_event(rest: bytes) -> Event | None:
    """Read what stands behind the time of a line; None where it is nothing that the kernel prints."""
    stack = _STACKS.get(rest.rstrip())
    if stack is not None:
        return Event(stack)
    if _CALLED.fullmatch(rest.rstrip()):
        return FUNCTION
    call = _CALL.match(rest)
    if call is not None:
        return Event("event", "syscalls:sys_enter_" + decode(call[1][4:]), call[2])
    back = _RETURN.match(rest)
    if back is not None:
        return Event("event", "syscalls:sys_exit_" + decode(back[1][4:]), back[2].strip(b" "))
    raw, colon, args = rest.partition(b": ")
    raw = _OFFSET.sub(b"", raw if colon else raw.rstrip().removesuffix(b":"))
    if not _NAME.fullmatch(raw) or not (colon or rest.rstrip().endswith(b":")):
        return None
    return named(raw, args.strip(b" "))


def named(raw: bytes, args: bytes) -> Event:
    """Return the event that the kernel calls raw."""
    if raw in _FUNCTION_EVENTS:
        return FUNCTION
    if raw in _STACK_EVENTS:
        return Event(_STACK_EVENTS[raw])
    if raw in _PRINTS:
        return Event("event", PRINT, args.removeprefix(b"tracing_mark_write: "))
    return Event("event", event_name(decode(raw)), args)


def event_name(name: str) -> str:
    """Return perf's name of an event, where its system follows from how it begins; else the name as it is."""
    if name in _WHOLE_NAMES:
        return _WHOLE_NAMES[name]
    return next((f"{system}:{name}" for begin, system in _SYSTEMS if name.startswith(begin)), name)


def is_function_line(line: bytes) -> bool:
    """Return whether a line without task and time is one of function_graph's."""
    return _GRAPH.match(line) is not None


_SURE = re.compile(
    rb"(?:sched|irq_handler|softirq|block|dma_fence|hrtimer|timer|workqueue|sys_enter|sys_exit)_?\w*:(?!\w)"
    rb"|sys_\w+(?:\(| -> )|<(?:user )?stack trace|(?:tracing_mark_write|print|bprint|bputs)\S*:(?!\w)"
    rb"|\w+:\s+(?:\w+[=:] ?\S|NR \d)|\S+ <-"
)
_MARKED = re.compile(rb"\) +\[\d+\]\s+\S*\s*$|\[\d+\]\s+\S+\s*$")  # a column of processes or flags
_HEADINGS = re.compile(rb"# tracer: \w|(?:version = \d+\n)?cpus=\d+\n|TRACE:\n")
_NOTED_LINES = 2000


def sniff(head: bytes) -> bool | None:
    """Return whether the beginning of a file is ftrace text; None: more bytes are needed.

    A line of perf script without its column of thread ids can look like one of trace-cmd: `worker-1 [000] 1.5: a:`.
    There a column of flags, or an event as only the kernel prints it, decides.
    """
    if b"\n" not in head:
        return None
    if _headed(head):
        return True
    seen = sure = graph = 0
    for line in head.split(b"\n", _NOTED_LINES)[:_NOTED_LINES]:
        if not line.strip() or line.startswith(b"#"):
            continue
        found = match(line)
        if found is not None:
            seen += 1
            sure += _MARKED.search(found["head"]) is not None or _SURE.match(line, found.end()) is not None
        elif LOST.match(line):
            return True
        elif _GRAPH.fullmatch(line) and b"|" in line and re.match(rb"\s*(?:\d+\.\d+ +\|\s*)?\d+\)\s", line):
            graph += 1
    return 2 * sure > seen if seen else graph > 1


def _headed(head: bytes) -> bool:
    """Return whether a file begins as the kernel's trace or trace-cmd's report does, after comments of others."""
    at = 0
    while head.startswith(b"#", at) or head.startswith(b"\n", at):
        if _HEADINGS.match(head, at):
            return True
        end = head.find(b"\n", at)
        if end < 0:
            return False
        at = end + 1
    return _HEADINGS.match(head, at) is not None
