"""Chrome trace JSON, as py-spy writes it (`-f chrometrace`): functions that begin (B) and end (E), times in us.

    [{"args": {"filename": "ps.py", "line": 5}, "name": "f", "ph": "B", "pid": 7, "tid": 9, "ts": 62, "cat": "py-spy"},
     {"name": "f", "ph": "E", "pid": 7, "tid": 9, "ts": 81, "cat": "py-spy"}]

Also complete events (X, with dur), an object with `traceEvents`, events in any order, and an array that is cut off,
as Chrome accepts it. Format: Chrome's "Trace Event Format". A stack weighs the time that it was on top of its thread;
a process that has a name (`process_name`) is the outermost frame. py-spy tells a function by its name alone here, so
that its line is the one where it was first seen.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from collectors.json_stream import CutJson, JsonStream, as_name
from collectors.source import Source
from collectors.trace_nesting import BEGIN, END, Calls, self_times
from pipeline.errors import InputError
from pipeline.folds import Fold
from pipeline.stacks import EMPTY_STACK, Frame, FrameKind

EVENT = "wall"
_NS_PER_US = 1000
_LONGEST_US = 9 * 10**15  # 285 years: in ns it fits 64 bits
_NAMELESS = "[unknown]"


def sniff(head: bytes) -> bool | None:
    """Return whether the beginning of a file is a Chrome trace; None: more bytes are needed."""
    stripped = head.lstrip()
    if not stripped:
        return None
    if not stripped.startswith((b"[", b"{")):
        return False
    return b'"ph"' in head or None


def fold(source: Source) -> Fold:
    """Count the time that each stack was on top, in ns, over all threads.

    Raises InputError where it is no trace.
    """
    trace = _Trace(source)
    trace.read()
    trace.result.losses.merge(source.losses.as_tuple())
    trace.result.rows += source.losses.lost_rows
    return trace.result


@dataclass(slots=True)
class _Names:
    """Function names as numbers, so that an event is a few integers."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, name: str) -> int:
        return self.numbers.setdefault(name, len(self.numbers))


class _Trace:
    def __init__(self, source: Source) -> None:
        self.result = Fold(is_folded=True, unit="ns")
        self._name = source.name
        self._json = JsonStream(source)
        self._names = _Names()
        self._name_of_frame = array("q")
        self._threads: dict[tuple[Any, Any], Calls] = {}
        self._processes: dict[Any, str] = {}

    def read(self) -> None:
        """Walk the document, then nest each thread's events."""
        has_events = False
        try:
            match self._json.peek():
                case "[":
                    has_events = True
                    self._read_events()
                case "{":
                    for key in self._json.members():
                        if key == "traceEvents" and self._json.peek() == "[":
                            has_events = True
                            self._read_events()
                case _:
                    pass
        except CutJson:
            # Chrome reads on without the closing bracket; what is cut inside an event is one event less
            if not has_events:
                raise
            if self._is_inside_event:
                self.result.losses.add("truncated_input", line=self._json.line)
        if not has_events:
            raise InputError("no list of trace events", "is this a Chrome trace?", path=self._name)
        for (pid, _), calls in self._threads.items():
            self._add_thread(pid, calls)
        self.result.rows += self.result.losses.lost_rows

    _is_inside_event = False

    def _read_events(self) -> None:
        for _ in self._json.elements():
            if not self._json.peek():
                raise CutJson("the trace ends after a comma", path=self._name)
            self._is_inside_event = True
            event = self._json.value()
            self._is_inside_event = False
            if not isinstance(event, dict) or "ph" not in event:
                self.result.losses.add("unreadable_line", line=self._json.line, example=str(event)[:80])
            else:
                self._read_event(event)

    def _read_event(self, event: dict[str, Any]) -> None:
        phase = event["ph"]
        if phase == "M":
            self._read_metadata(event)
            return
        if phase not in ("B", "E", "X"):
            self.result.losses.add("skipped_event", line=self._json.line, example=str(phase))
            return
        start_ns = _ns(event.get("ts"))
        length_ns = _ns(event.get("dur", event.get("tdur", 0))) if phase == "X" else 0
        if start_ns is None or length_ns is None or length_ns < 0:
            self.result.losses.add("no_time", line=self._json.line, example=str(event.get("name", "")))
            return
        self.result.rows += 1
        calls = self._threads.setdefault((_key(event.get("pid")), _key(event.get("tid"))), Calls())
        name = event.get("name")
        if phase == "E":
            calls.add(start_ns, END, -1 if name is None else self._names.number(as_name(str(name))))
        else:
            calls.add(start_ns, start_ns + length_ns if phase == "X" else BEGIN, self._frame(event))

    def _read_metadata(self, event: dict[str, Any]) -> None:
        args = event.get("args")
        if (
            event.get("name") == "process_name"
            and isinstance(args, dict)
            and isinstance(args.get("name"), str)
        ):
            self._processes[_key(event.get("pid"))] = as_name(args["name"])

    def _frame(self, event: dict[str, Any]) -> int:
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        file, line = args.get("filename"), args.get("line")
        name = event.get("name")
        symbol = _NAMELESS if name is None else as_name(str(name))
        kind: FrameKind = "python" if event.get("cat") == "py-spy" else "user"
        line = line if type(line) is int and 0 <= line < 2**31 else 0
        number = self.result.trie.frame(
            Frame(symbol, "", kind, as_name(file) if isinstance(file, str) else "", line)
        )
        if number == len(self._name_of_frame):
            self._name_of_frame.append(self._names.number(symbol))
        return number

    def _add_thread(self, pid: Any, calls: Calls) -> None:
        root = EMPTY_STACK
        process = self._processes.get(pid)
        if process is not None:
            number = self.result.trie.frame(Frame(process))
            if number == len(self._name_of_frame):
                self._name_of_frame.append(self._names.number(process))
            root = self.result.trie.push(EMPTY_STACK, number)
        spent = self_times(calls, self._name_of_frame, self.result.trie, root, self.result.losses)
        for node, (times, self_ns) in spent.items():
            self.result.add(EVENT, "", node, times, self_ns)


def _ns(value: Any) -> int | None:
    """Return microseconds as ns, what is finer than a ns cut off; None where it is no usable number."""
    if type(value) not in (int, Decimal) or not -_LONGEST_US < value < _LONGEST_US:
        return None
    return int(value * _NS_PER_US)


def _key(value: Any) -> Any:
    """Return a process or thread id as a dictionary key: numbers and texts are both in use."""
    return value if isinstance(value, int | str) else str(value)
