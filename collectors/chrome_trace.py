"""Chrome trace JSON as py-spy writes it (`-f chrometrace`): frames that begin (B) and end (E), times in microseconds.

    [{"args": {"filename": "ps.py", "line": 5}, "cat": "py-spy", "name": "f", "ph": "B", "pid": 7, "tid": 9, "ts": 62},
     {"cat": "py-spy", "name": "f", "ph": "E", "pid": 7, "tid": 9, "ts": 81}]

Also complete events (X, with dur), an object with `traceEvents`, and an array that is cut off, as Chrome accepts it.
Format: Chrome's "Trace Event Format" document. A stack weighs the time that it was on top.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from collectors import json_text
from collectors.source import Source
from pipeline.errors import InputError
from pipeline.folds import Fold
from pipeline.losses import LossLedger
from pipeline.stacks import EMPTY_STACK, Frame, FrameKind

EVENT = "wall"
_NS_PER_US = 1000
_LONGEST_US = 10**15


@dataclass(slots=True)
class _Thread:
    stack: list[tuple[int, str]] = field(default_factory=list)  # node, name
    last_ns: int = 0


def sniff(head: bytes) -> bool | None:
    """Return whether the beginning of a file is a Chrome trace; None: more bytes are needed."""
    stripped = head.lstrip()
    if not stripped:
        return None
    if not stripped.startswith((b"[", b"{")):
        return False
    return b'"ph"' in head or None


def fold(source: Source) -> Fold:
    """Count the time that each stack was on top, in ns, over all threads. Raises InputError where it is no trace."""
    document = json_text.load(source, closes_array=True)
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise InputError("no list of trace events", "is this a Chrome trace?", path=source.name)
    fold = Fold(is_folded=True, unit="ns")
    ordered = _ordered(events, fold.losses)
    threads: dict[tuple[Any, Any], _Thread] = {}
    for time_ns, phase, event in ordered:
        thread = threads.setdefault((event.get("pid"), event.get("tid")), _Thread(last_ns=time_ns))
        _spend(fold, thread, time_ns)
        if phase == "B":
            parent = thread.stack[-1][0] if thread.stack else EMPTY_STACK
            frame = _frame(event)
            thread.stack.append((fold.trie.push(parent, fold.trie.frame(frame)), frame.symbol))
        elif thread.stack and event.get("name", thread.stack[-1][1]) == thread.stack[-1][1]:
            thread.stack.pop()
        else:
            fold.losses.add("unmatched_end", example=str(event.get("name", "")))
    open_frames = sum(len(thread.stack) for thread in threads.values())
    if open_frames:
        fold.losses.add("unmatched_begin", open_frames)
    fold.rows = len(ordered) + fold.losses.lost_rows
    return fold


def _spend(fold: Fold, thread: _Thread, time_ns: int) -> None:
    """Give the time since the thread's last event to the stack on top."""
    spent_ns = time_ns - thread.last_ns
    if thread.stack and spent_ns > 0:
        fold.add(EVENT, "", thread.stack[-1][0], 1, spent_ns)
    thread.last_ns = time_ns


def _ordered(events: list[Any], losses: LossLedger) -> list[tuple[int, str, dict[str, Any]]]:
    """Return begins and ends in the order of their times; at equal times, the order of the file holds."""
    out: list[tuple[int, str, dict[str, Any]]] = []
    for event in events:
        phase = event.get("ph") if isinstance(event, dict) else None
        if phase not in ("B", "E", "X"):
            if phase is None:
                losses.add("unreadable_line", example=str(event)[:80])
            continue
        start_ns = _ns(event.get("ts"))
        length_ns = _ns(event.get("dur")) if phase == "X" else 0
        if start_ns is None or length_ns is None:
            losses.add("no_time", example=str(event.get("name", ""))[:80])
        elif phase == "X":
            out.append((start_ns, "B", event))
            out.append((start_ns + length_ns, "E", event))
        else:
            out.append((start_ns, phase, event))
    # an X event's end must come before a begin at the same time, its begin after an end
    has_complete = any(event.get("ph") == "X" for _, _, event in out)
    if has_complete:
        out.sort(key=lambda item: (item[0], item[1] == "B", -(_ns(item[2].get("dur")) or 0)))
    else:
        out.sort(key=lambda item: item[0])
    return out


def _ns(value: Any) -> int | None:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | Decimal)
        or not -_LONGEST_US < value < _LONGEST_US
    ):
        return None
    return int(value * _NS_PER_US)


def _frame(event: dict[str, Any]) -> Frame:
    args = event.get("args")
    args = args if isinstance(args, dict) else {}
    file, line = args.get("filename"), args.get("line")
    file = file if isinstance(file, str) else ""
    kind: FrameKind = "python" if event.get("cat") == "py-spy" else "user"
    return Frame(
        str(event.get("name", "")), "", kind, file, line if isinstance(line, int) and 0 <= line < 2**31 else 0
    )
