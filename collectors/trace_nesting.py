"""Nests the events of one thread: begins and ends, in whatever order they were written, become times per stack."""

from __future__ import annotations

import itertools
import operator
from array import array
from collections.abc import Sequence

from pipeline.losses import LossLedger
from pipeline.stacks import StackTrie

# what stands in place of an end time
BEGIN = -(2**63)
END = BEGIN + 1

_LOOK_AHEAD = 64  # events at one instant that are tried for the one that fits


class Calls:
    """The events of a thread as columns, so that ten million fit: time, end time or BEGIN or END, frame or name."""

    def __init__(self) -> None:
        self.times_ns = array("q")
        self.ends_ns = array("q")
        self.what = array("q")  # the frame; of an END the name, -1 where it has none

    def add(self, time_ns: int, end_ns: int, what: int) -> None:
        """Add an event; end_ns is BEGIN or END for one half of a call."""
        self.times_ns.append(time_ns)
        self.ends_ns.append(end_ns)
        self.what.append(what)


def self_times(
    calls: Calls, name_of_frame: Sequence[int], trie: StackTrie, root: int, losses: LossLedger
) -> dict[int, list[int]]:
    """Return, per stack below root, how often and how long (ns) it was on top.

    Ends close the call of their name that is on top; one that fits no open call, and a call that is closed by the end
    of an outer one or of the trace, are losses.
    """
    return _Nesting(calls, name_of_frame, trie, root, losses).run()


class _Nesting:
    def __init__(
        self, calls: Calls, name_of_frame: Sequence[int], trie: StackTrie, root: int, losses: LossLedger
    ) -> None:
        self._calls = calls
        self._name_of_frame = name_of_frame
        self._trie = trie
        self._root = root
        self._losses = losses
        self._nodes: list[int] = []  # the open calls, by node and by event
        self._events: list[int] = []
        self._spent: dict[int, list[int]] = {}
        self._last_ns = 0

    def run(self) -> dict[int, list[int]]:
        """Walk begins and ends in the order of time; of equal times, in the order that makes sense."""
        if self._is_in_order():
            self._walk()
        else:
            self._walk_sorted()
        if self._nodes:
            self._losses.add("unmatched_begin", len(self._nodes))
        return self._spent

    def _is_in_order(self) -> bool:
        """Return whether the events are halves of calls in the order of their times, as a profiler writes them."""
        times = self._calls.times_ns
        return all(end in (BEGIN, END) for end in self._calls.ends_ns) and all(
            map(operator.le, times, itertools.islice(times, 1, None))
        )

    def _walk(self) -> None:
        for at, end_ns in enumerate(self._calls.ends_ns):
            if end_ns == BEGIN:
                self._open(at)
            else:
                self._close(at)

    def _walk_sorted(self) -> None:
        times, ends = self._calls.times_ns, self._calls.ends_ns
        both = range(len(times))
        # at one instant an outer call begins first and ends last; for halves the file's order tells
        begins = sorted(
            (at for at in both if ends[at] != END),
            key=lambda at: (times[at], -ends[at] if ends[at] != BEGIN else END),
        )
        closing = sorted(
            (at for at in both if ends[at] != BEGIN),
            key=lambda at: (times[at], 0) if ends[at] == END else (ends[at], -times[at]),
        )
        begun = 0
        for done in range(len(closing)):
            end_ns = self._end_of(closing[done])
            while begun < len(begins) and times[begins[begun]] <= end_ns:
                at_once = times[begins[begun]] == end_ns
                if at_once and self._choose(closing, done):
                    break
                self._open(begins[begun])
                begun += 1
            self._choose(closing, done)
            self._close(closing[done])
        for at in begins[begun:]:
            self._open(at)

    def _end_of(self, at: int) -> int:
        end_ns = self._calls.ends_ns[at]
        return self._calls.times_ns[at] if end_ns == END else end_ns

    def _choose(self, closing: list[int], done: int) -> bool:
        """Put first, of the ends at one instant, one that closes the call on top; return whether there is one."""
        end_ns = self._end_of(closing[done])
        for ahead in range(done, min(done + _LOOK_AHEAD, len(closing))):
            if self._end_of(closing[ahead]) != end_ns:
                return False
            if self._nodes and self._fits(closing[ahead], len(self._nodes) - 1):
                closing[done : ahead + 1] = [closing[ahead], *closing[done:ahead]]
                return True
        return False

    def _fits(self, end: int, depth: int) -> bool:
        """Return whether an end closes the open call at a depth."""
        event = self._events[depth]
        if self._calls.ends_ns[end] != END:
            return event == end
        if self._calls.ends_ns[event] != BEGIN:
            return False
        name = self._calls.what[end]
        return name == -1 or name == self._name_of_frame[self._calls.what[event]]

    def _open(self, at: int) -> None:
        self._spend(self._calls.times_ns[at])
        caller = self._nodes[-1] if self._nodes else self._root
        self._nodes.append(self._trie.push(caller, self._calls.what[at]))
        self._events.append(at)

    def _close(self, end: int) -> None:
        self._spend(self._end_of(end))
        for depth in range(len(self._nodes) - 1, -1, -1):
            if self._fits(end, depth):
                inner = len(self._nodes) - 1 - depth
                if inner:
                    self._losses.add("unmatched_begin", inner)
                del self._nodes[depth:], self._events[depth:]
                return
        if self._calls.ends_ns[end] == END:  # a complete call that an outer one closed is counted already
            self._losses.add("unmatched_end")

    def _spend(self, time_ns: int) -> None:
        if self._nodes and time_ns > self._last_ns:
            spent = self._spent.setdefault(self._nodes[-1], [0, 0])
            spent[0] += 1
            spent[1] += time_ns - self._last_ns
        self._last_ns = time_ns
