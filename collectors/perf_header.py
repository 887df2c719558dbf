"""The sample line of `perf script`: which columns a file has, and what each line says.

    python3 19917/19917 [000]   829.851181:    5025125 cpu-clock:
    a b: c 12/34 19827   828.775689128:    2004008 cpu-clock:u:
                perf 20858 [000]   836.534317:       sched:sched_switch: prev_comm=perf prev_pid=20858 ...

Written from tools/perf/builtin-script.c (process name, pid/tid, cpu, misc, time of day, time, period, event, in this
order, each optional) and from files of perf 3.2 to 6.16 and of simpleperf. A process name may hold anything, so columns
are found from the time backwards, and which columns exist is learned from the file (`learn`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.text import decode

# a process name is at most 15 bytes in the kernel (TASK_COMM_LEN); only longer joins are told apart by this
COMM_BYTES = 15
# hostile lines are bounded before a regular expression sees them; real ones are far shorter
_LONGEST_PREFIX = 1024
_LONGEST_LINE = 65536

TIME = re.compile(rb"(?<!\d)(\d{1,20})\.(\d{1,9}):(?=\s|$)")
_COLUMNS = (
    rb"(?:\s+[A-Za-z]{1,5})?"  # misc before or after the CPU
    rb"(?:\s+\[(?P<cpu>\d+)\])?"
    rb"(?:\s+[A-Za-z]{1,5})?"
)
_TIME_OF_DAY = rb"(?:\s+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+)?"
_THREAD = rb"(?P<comm>.*?)(?:(?<=\s)|^)(?P<first>-?\d+)(?:/(?P<second>-?\d+))?"
_WITH_TID = re.compile(rb"^" + _THREAD + _COLUMNS + _TIME_OF_DAY + rb"\s*$", re.S)
_WITHOUT_TID = re.compile(
    rb"^(?P<comm>.*?)(?:\s*\[(?P<cpu>\d+)\])?(?:(?<=\])\s+[A-Za-z]{1,5})?" + _TIME_OF_DAY + rb"\s*$", re.S
)
_EVENT = rb"(?P<event>[^\s:(][^\s(]*?(?: [^\s(]+?)*?):(?=\s|$)\s*(?P<rest>.*)$"
_TAIL = re.compile(rb"^\s*(?:(?P<period>\d+)\s+)?" + _EVENT, re.S)
_TAIL_WITHOUT_EVENT = re.compile(rb"^\s*(?P<period>\d+)?\s*(?P<rest>[0-9a-f]{2,16}\s.*)?$", re.S)
_RECORD = re.compile(rb"^\s*PERF_RECORD_(?P<type>[A-Z0-9_]+):?\s*(?P<rest>.*)$", re.S)
_EVENT_WITHOUT_TIME = rb"\s+(?P<event>[A-Za-z_][^\s(]*):(?=\s|$)\s*(?P<rest>.*)$"
_NO_TIME_PERIOD = re.compile(rb"^" + _THREAD + _COLUMNS + rb"\s+(?P<period>\d+)" + _EVENT_WITHOUT_TIME, re.S)
_NO_TIME = re.compile(rb"^" + _THREAD + _COLUMNS + _EVENT_WITHOUT_TIME, re.S)
_LOOKS_NUMERIC = re.compile(r"^\d+\.\d+$")
_MODIFIERS = re.compile(r"^[ukhGHpPSDIWeb]*$")


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns the sample lines of a file have."""

    has_time: bool = True
    has_tid: bool = True
    has_comm: bool = True
    has_period: bool = (
        True  # asked only where there is no time: after the time, a period is told by its place
    )
    has_symbols: bool = True


class Head:
    """Who a sample belongs to; one object per different spelling, compared by identity."""

    __slots__ = ("comm", "cpu", "pid", "tid")

    def __init__(self, comm: str | None, pid: int | None, tid: int | None, cpu: int | None) -> None:
        self.comm = comm
        self.pid = pid
        self.tid = tid
        self.cpu = cpu


class Tail:
    """What a sample counts; one object per different event and period, compared by identity."""

    __slots__ = ("event", "is_tracepoint", "period")

    def __init__(self, event: str, period: int | None) -> None:
        self.event = event
        self.period = period
        self.is_tracepoint = is_tracepoint(event) or event.startswith("PERF_RECORD_")


def times_in(line: bytes) -> Iterator[re.Match[bytes]]:
    """Return what may be the time of a sample line, from the left; real ones stand near its start."""
    return TIME.finditer(line, 0, _LONGEST_PREFIX)


def parse_prefix(prefix: bytes, layout: Layout) -> Head | None:
    """Read the columns before the time; None where they are not those of the layout."""
    if len(prefix) > _LONGEST_PREFIX:
        return None
    match = (_WITH_TID if layout.has_tid else _WITHOUT_TID).match(prefix)
    if match is None:
        return None
    comm = decode(match["comm"].strip(b" \t")) if layout.has_comm else None
    cpu = None if match["cpu"] is None else int(match["cpu"])
    if not layout.has_tid:
        return Head(comm, None, None, cpu)
    first, second = int(match["first"]), match["second"]
    return Head(comm, None, first, cpu) if second is None else Head(comm, first, int(second), cpu)


def parse_suffix(suffix: bytes) -> tuple[str, int | None, bytes] | None:
    """Read what stands after the time: event, period, the rest of the line; None where it is no sample line.

    A PERF_RECORD_* line is an event of that name. The event is '' where the file does not print one.
    """
    record = _RECORD.match(suffix)
    if record is not None:
        return "PERF_RECORD_" + record["type"].decode(), None, record["rest"]
    match = _TAIL.match(suffix)
    if match is not None:
        event = decode(match["event"])
        if _LOOKS_NUMERIC.match(event):
            return None  # this is the real time: what we took for the time is part of a process name
        return event, None if match["period"] is None else int(match["period"]), match["rest"]
    match = _TAIL_WITHOUT_EVENT.match(suffix)
    if match is None:
        return None
    return "", None if match["period"] is None else int(match["period"]), match["rest"] or b""


def parse_without_time(line: bytes, layout: Layout) -> tuple[Head, str, int | None, bytes] | None:
    """Read a whole sample line of a file without times."""
    if len(line) > _LONGEST_LINE:
        return None
    match = (_NO_TIME_PERIOD if layout.has_period else _NO_TIME).match(line)
    if match is None:
        return None
    head = Head(decode(match["comm"].strip(b" \t")), None, int(match["first"]), None)
    if match["second"] is not None:
        head.pid, head.tid = head.tid, int(match["second"])
    if match["cpu"] is not None:
        head.cpu = int(match["cpu"])
    period = int(match["period"]) if layout.has_period else None
    return head, decode(match["event"]), period, match["rest"]


def is_tracepoint(event: str) -> bool:
    """Return whether an event's line carries arguments: `sched:sched_switch` does, `cpu-clock:u` does not."""
    name, colon, last = event.rpartition(":")
    return bool(colon) and "/" not in name and not _MODIFIERS.match(last)


def learn(head: bytes) -> Layout | None:
    """Learn the columns from the beginning of a file; None where no sample line stands in it."""
    lines = [line for line in head.split(b"\n")[:2000] if line and not line.startswith((b"\t", b"#"))]
    has_symbols = _has_symbols(head)
    timed = []
    for line in lines:
        for match in times_in(line):
            if parse_suffix(line[match.end() :]) is not None:
                timed.append(line[: match.start()])
                break
    if timed:
        with_tid = sum(_WITH_TID.match(prefix) is not None for prefix in timed)
        has_tid = 2 * with_tid >= len(timed)
        layout = Layout(has_tid=has_tid, has_symbols=has_symbols)
        heads = [found for prefix in timed if (found := parse_prefix(prefix, layout)) is not None]
        if not heads:
            return None
        return Layout(has_tid=has_tid, has_comm=any(found.comm for found in heads), has_symbols=has_symbols)
    untimed = [line for line in lines if _NO_TIME.match(line)]
    if not untimed:
        return None
    has_period = all(_NO_TIME_PERIOD.match(line) for line in untimed)
    return Layout(has_time=False, has_period=has_period, has_symbols=has_symbols)


_SYMBOL_LINE = re.compile(rb"^\s+[0-9a-f]{1,16}\s+\S", re.M)
_ADDRESS_LINE = re.compile(rb"^\s+[0-9a-f]{1,16}\s*$", re.M)


def _has_symbols(head: bytes) -> bool:
    return _SYMBOL_LINE.search(head) is not None or _ADDRESS_LINE.search(head) is None
