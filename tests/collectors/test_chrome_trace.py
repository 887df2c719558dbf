"""Chrome traces: a stack weighs the time that it was on top, whatever the order of the events."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import chrome_trace
from collectors.source import Source
from pipeline.errors import FlamesliceError, InputError
from pipeline.folds import Fold


def event(
    phase: str, name: str | None, ts: Any, dur: Any = None, pid: Any = 1, tid: Any = 1
) -> dict[str, Any]:
    made = {"ph": phase, "name": name, "ts": ts, "dur": dur, "pid": pid, "tid": tid}
    return {key: value for key, value in made.items() if value is not None}


def fold_of(events: list[Any] | dict[str, Any] | str) -> Fold:
    text = events if isinstance(events, str) else json.dumps(events)
    return chrome_trace.fold(Source("t.json", io.BytesIO(text.encode())))


def times(fold: Fold) -> dict[str, int]:
    """Return `a;b` -> ns on top."""
    return {
        ";".join(frame.symbol for frame in fold.trie.path(node)): period
        for (_, _, node), (_, period) in fold.weights.items()
    }


def losses(fold: Fold) -> dict[str, int]:
    return {loss.reason: loss.count for loss in fold.losses.as_tuple()}


def test_begins_and_ends_nest() -> None:
    fold = fold_of(
        [
            event("B", "a", 0),
            event("B", "b", 1),
            event("E", "b", 4),
            event("B", "b", 4),
            event("B", "c", 5),
            event("E", "c", 6.5),
            event("E", "b", 7),
            event("E", "a", 10),
        ]
    )
    assert times(fold) == {"a": 4000, "a;b": 4500, "a;b;c": 1500}
    assert (fold.unit, list(fold.events), fold.rows) == ("ns", ["wall"], 8)
    assert losses(fold) == {}


def test_complete_events_nest_in_any_order() -> None:
    events = [
        event("X", "a", 0, 20),
        event("X", "b", 1, 2),
        event("X", "c", 2, 1),
        event("X", "c", 10, 1),
        event("X", "b", 9, 2),
    ]
    expected = {"a": 16000, "a;b": 2000, "a;b;c": 2000}
    assert times(fold_of(events)) == expected
    assert times(fold_of(events[::-1])) == expected


def test_halves_and_complete_events_mix() -> None:
    fold = fold_of(
        [
            event("B", "a", 0),
            event("B", "b", 1),
            event("X", "c", 2, 5),
            event("E", "b", 13),
            event("E", "a", 14),
        ]
    )
    assert times(fold) == {"a": 2000, "a;b": 7000, "a;b;c": 5000}


def test_events_out_of_order_are_sorted() -> None:
    fold = fold_of(
        [
            event("B", "b", 1),
            event("E", "b", 9),
            event("B", "a", 0),
            event("E", "a", 10),
            event("B", "c", 2),
            event("E", "c", 8),
        ]
    )
    assert times(fold) == {"a": 2000, "a;b": 2000, "a;b;c": 6000}
    assert losses(fold) == {}


def test_calls_without_length_open_before_they_close() -> None:
    fold = fold_of(
        [
            event("B", "a", 0),
            event("B", "b", 1),
            event("E", "b", 1),
            event("E", "c", 2),
            event("B", "c", 2),
            event("X", "d", 3, 0),
            event("E", "a", 10),
        ]
    )
    assert times(fold) == {"a": 10_000}
    assert losses(fold) == {}


def test_threads_and_processes_are_apart() -> None:
    fold = fold_of(
        [
            {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "server"}},
            {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "worker"}},
            event("B", "a", 0, pid=1, tid=1),
            event("B", "b", 1, pid=1, tid=2),
            event("B", "c", 2, pid="x", tid="y"),
            event("E", "a", 3, pid=1, tid=1),
            event("E", "b", 4, pid=1, tid=2),
            event("E", "c", 5, pid="x", tid="y"),
        ]
    )
    assert times(fold) == {"server;a": 3000, "server;b": 3000, "c": 3000}


def test_what_does_not_match_is_counted() -> None:
    fold = fold_of(
        [
            event("E", "early", 0),
            event("B", "a", 1),
            event("B", "b", 2),
            event("B", "c", 3),
            event("E", "a", 5),  # closes b and c, too
            event("B", "open", 6),
            event("X", "d", 7, 1),
        ]
    )
    assert times(fold) == {"a": 1000, "a;b": 1000, "a;b;c": 2000, "open": 1000, "open;d": 1000}
    assert losses(fold) == {"unmatched_end": 1, "unmatched_begin": 3}


def test_an_end_without_a_name_closes_what_is_on_top() -> None:
    assert times(
        fold_of([event("B", "a", 0), event("B", "b", 1), event("E", None, 2), event("E", None, 5)])
    ) == {
        "a": 4000,
        "a;b": 1000,
    }


def test_overlapping_complete_events_lose_the_inner_one() -> None:
    fold = fold_of([event("X", "a", 0, 10), event("X", "b", 5, 10)])
    assert times(fold) == {"a": 5000, "a;b": 5000}
    assert losses(fold) == {"unmatched_begin": 1}


def test_what_is_no_event_of_a_stack_is_counted_apart() -> None:
    fold = fold_of(
        [
            event("B", "a", 0),
            event("E", "a", 1),
            {"ph": "C", "name": "counter", "ts": 1, "args": {"x": 1}},
            {"name": "no phase"},
            7,
            event("B", "b", "soon"),
            event("X", "c", 1, -1),
            event("B", "d", 10**30),
        ]
    )
    assert times(fold) == {"a": 1000}
    assert losses(fold) == {"skipped_event": 1, "unreadable_line": 2, "no_time": 3}
    assert fold.rows == 2 + 5


WHOLE = '[{"ph":"B","name":"a","ts":0},{"ph":"E","name":"a","ts":5},{"ph":"B","name":"b","ts":7}'


@pytest.mark.parametrize("end", ["", "]", ",", ",\n", "\n]\n"])
def test_an_array_needs_no_end(end: str) -> None:
    fold = fold_of(WHOLE + end)
    assert times(fold) == {"a": 5000}
    assert losses(fold) == {"unmatched_begin": 1}
    assert losses(fold_of('{"traceEvents": ' + WHOLE + end)) == {"unmatched_begin": 1}


def test_an_array_cut_inside_an_event_loses_that_event() -> None:
    fold = fold_of(WHOLE + ',{"ph":"B","na')
    assert times(fold) == {"a": 5000}
    assert losses(fold) == {"unmatched_begin": 1, "truncated_input": 1}


def test_an_object_may_hold_more_around_its_events() -> None:
    fold = fold_of(
        {
            "stackFrames": {"1": {"name": "x"}},
            "traceEvents": [event("X", "a", 1, 2)],
            "displayTimeUnit": "ns",
        }
    )
    assert times(fold) == {"a": 2000}


@pytest.mark.parametrize("text", ['{"traceEvents": 7}', "{}", "7", '"B"', '{"traceEvents": {}}'])
def test_what_is_no_trace_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^t\.json: no list of trace events"):
        fold_of(text)


def test_frames_carry_file_line_and_kind() -> None:
    fold = fold_of(
        [
            {
                "ph": "X", "name": "f", "cat": "py-spy", "ts": 0, "dur": 1,
                "args": {"filename": "/srv/a.py", "line": 3},
            },
            {"ph": "X", "name": "g", "ts": 2, "dur": 1, "args": ["odd"]},
            {"ph": "X", "ts": 4, "dur": 1},
            {"ph": "X", "name": "\ud800;", "ts": 6, "dur": 1},
        ]
    )  # fmt: skip
    assert [(f.symbol, f.kind, f.file, f.line) for f in fold.trie.frames] == [
        ("f", "python", "/srv/a.py", 3),
        ("g", "user", "", 0),
        ("[unknown]", "user", "", 0),
        ("\\ud800;", "user", "", 0),
    ]


def test_microseconds_with_a_point_are_exact() -> None:
    fold = fold_of(
        '[{"ph":"B","name":"a","ts":1661938466265032.001},{"ph":"E","name":"a","ts":1661938466265032.004}]'
    )
    assert times(fold) == {"a": 3}


# a tree of calls: (length before, children, length after) in us
TREES = st.recursive(
    st.tuples(st.integers(0, 3), st.just([]), st.integers(0, 3)),
    lambda inner: st.tuples(st.integers(0, 3), st.lists(inner, max_size=3), st.integers(0, 3)),
    max_leaves=12,
)


def written(tree: Any, name: str, at: int, out: list[tuple[str, int, int]], own: dict[str, int]) -> int:
    """Append (stack, start, end) of a tree of calls that begins at a time; return its end."""
    before, children, after = tree
    place = len(out)
    out.append((name, at, at))
    now = at + before
    for number, child in enumerate(children):
        now = written(child, f"{name};{'abc'[number]}", now, out, own)
    end = now + after
    out[place] = (name, at, end)
    own[name] = own.get(name, 0) + before + after
    return end


@given(TREES, st.randoms(use_true_random=False))
def test_complete_events_of_a_call_tree_give_its_own_times(tree: Any, random: Any) -> None:
    calls: list[tuple[str, int, int]] = []
    own: dict[str, int] = {}
    end = written(tree, "root", 0, calls, own)
    if len({(start, stop) for _, start, stop in calls}) < len(calls):
        return  # two calls of one and the same time: which is the outer one, nothing tells
    events = [event("X", stack.rpartition(";")[2], start, stop - start) for stack, start, stop in calls]
    random.shuffle(events)
    found = times(fold_of(events))
    assert sum(found.values()) == 1000 * end
    if all(stop > start for _, start, stop in calls):
        assert found == {stack: 1000 * time for stack, time in own.items() if time}


@given(TREES)
def test_halves_of_a_call_tree_give_its_own_times(tree: Any) -> None:
    events: list[dict[str, Any]] = []
    own: dict[str, int] = {}

    def write(tree: Any, stack: str, at: int) -> int:
        name = stack.rpartition(";")[2]
        events.append(event("B", name, at))
        now = at + tree[0]
        for number, child in enumerate(tree[1]):
            now = write(child, f"{stack};{'abc'[number]}", now)
        events.append(event("E", name, now + tree[2]))
        own[stack] = own.get(stack, 0) + tree[0] + tree[2]
        return int(now + tree[2])

    write(tree, "root", 100)
    fold = fold_of(events)
    assert times(fold) == {stack: 1000 * time for stack, time in own.items() if time}
    assert losses(fold) == {}


@given(st.data())
def test_damage_never_ends_in_a_traceback(data: st.DataObject) -> None:
    text = bytearray(json.dumps([event("B", "a", 0), event("X", "b", 1, 2.5), event("E", "a", 9)]).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=4))
    with contextlib.suppress(FlamesliceError):
        chrome_trace.fold(Source("t.json", io.BytesIO(bytes(text))))


@pytest.mark.parametrize(
    ("head", "answer"),
    [
        (b'[{"ph":"B"', True),
        (b'{"traceEvents": [{"name": "a", "ph": "X"}]}', True),
        (b'[{"name"', None),
        (b" ", None),
        (b"a;b 1\n", False),
    ],
)
def test_sniff(head: bytes, answer: bool | None) -> None:
    assert chrome_trace.sniff(head) is answer
