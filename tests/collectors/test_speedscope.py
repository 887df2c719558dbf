"""speedscope files: weights land on their stacks exactly, in ns; what breaks the format is named by its JSON path."""

from __future__ import annotations

import contextlib
import io
import json
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import speedscope
from collectors.source import Source
from pipeline.errors import FlamesliceError, InputError
from pipeline.folds import Fold
from pipeline.stacks import Frame

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
FRAMES = [{"name": name} for name in "abcd"]


def document(*profiles: dict[str, Any], frames: list[dict[str, Any]] | None = None, **more: Any) -> bytes:
    shared = {"frames": FRAMES if frames is None else frames}
    return json.dumps({"$schema": SCHEMA, "profiles": profiles, "shared": shared, **more}).encode()


def sampled(
    samples: list[list[int]], weights: list[Any], unit: str = "none", name: str = "p"
) -> dict[str, Any]:
    return {"type": "sampled", "name": name, "unit": unit, "samples": samples, "weights": weights}


def evented(*events: tuple[str, int, Any], unit: str = "none") -> dict[str, Any]:
    listed = [{"type": kind, "frame": frame, "at": at} for kind, frame, at in events]
    return {"type": "evented", "name": "p", "unit": unit, "startValue": 0, "endValue": 100, "events": listed}


def fold_of(data: bytes) -> Fold:
    return speedscope.fold(Source("x.json", io.BytesIO(data)))


def stacks(fold: Fold) -> dict[str, tuple[int, int]]:
    """Return `a;b` -> (samples, period)."""
    return {
        ";".join(frame.symbol for frame in fold.trie.path(node)): (samples, period)
        for (_, _, node), (samples, period) in fold.weights.items()
    }


def test_samples_add_up_with_their_weights() -> None:
    fold = fold_of(document(sampled([[0, 1, 2], [0, 1, 3], [0, 1, 2], [0], []], [1, 4, 3, 5, 2])))
    assert stacks(fold) == {"a;b;c": (2, 4), "a;b;d": (1, 4), "a": (1, 5), "": (1, 2)}
    assert list(fold.events) == ["samples"]
    assert (fold.unit, fold.rows, fold.is_folded) == ("", 5, True)


def test_events_give_time_to_the_frame_on_top() -> None:
    fold = fold_of(
        document(
            evented(
                ("O", 0, 0),
                ("O", 1, 0),
                ("O", 2, 0),
                ("C", 2, 2),
                ("O", 3, 2),
                ("C", 3, 6),
                ("C", 1, 14),
                ("C", 0, 15),
            )
        )
    )
    assert {stack: period for stack, (_, period) in stacks(fold).items()} == {
        "a;b;c": 2,
        "a;b;d": 4,
        "a;b": 8,
        "a": 1,
    }


@pytest.mark.parametrize(
    ("unit", "ns"),
    [("seconds", 10**9), ("milliseconds", 10**6), ("microseconds", 1000), ("nanoseconds", 1)],
)
def test_times_become_nanoseconds(unit: str, ns: int) -> None:
    fold = fold_of(document(sampled([[0], [0]], [3, 4], unit), evented(("O", 0, 1), ("C", 0, 2), unit=unit)))
    assert fold.unit == "ns"
    assert fold.events["wall"].period == 8 * ns


def test_seconds_are_converted_without_binary_fractions() -> None:
    text = document(sampled([[0]] * 10, ["W"] * 10, "seconds")).replace(b'"W"', b"0.1")
    assert stacks(fold_of(text)) == {"a": (10, 10**9)}
    text = document(sampled([[0]] * 3, ["W"] * 3, "seconds")).replace(
        b'"W"', b"0.0000000001666666666666666666666"
    )
    fold = fold_of(text)
    # half a ns, exactly below: 3 x 0.1666... ns
    assert stacks(fold) == {"a": (3, 0)}
    assert [loss.reason for loss in fold.losses.as_tuple()] == ["rounded_weight"]


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 3), max_size=5), st.decimals(0, 1000, places=12)), max_size=20)
)
def test_sums_are_exact_and_rounded_once(samples: list[tuple[list[int], Any]]) -> None:
    names = [[f"@{weight}@" for _, weight in samples]]
    text = document(sampled([stack for stack, _ in samples], *names, unit="seconds"))
    expected: Counter[str] = Counter()
    for stack, weight in samples:
        expected[";".join("abcd"[index] for index in stack)] += Fraction(weight) * 10**9  # type: ignore[assignment]
    fold = fold_of(text.replace(b'"@', b"").replace(b'@"', b""))
    assert {stack: period for stack, (_, period) in stacks(fold).items()} == {
        stack: (2 * Fraction(total) + 1).__floor__() // 2 for stack, total in expected.items()
    }


def test_bytes_stay_bytes() -> None:
    fold = fold_of(document(sampled([[0]], [4096], "bytes")))
    assert fold.unit == "bytes"
    assert stacks(fold) == {"a": (1, 4096)}


def test_frames_may_come_before_or_after_their_use() -> None:
    profile = sampled([[0, 1]], [2])
    first = json.dumps({"$schema": SCHEMA, "shared": {"frames": FRAMES}, "profiles": [profile]}).encode()
    keys = json.dumps({"weights": [2], "samples": [[0, 1]], "unit": "none", "name": "p", "type": "sampled"})
    last = document().replace(b'"profiles": []', b'"profiles": [' + keys.encode() + b"]")
    assert stacks(fold_of(first)) == stacks(fold_of(last)) == {"a;b": (1, 2)}


def test_several_profiles_hang_under_their_names_but_for_py_spy() -> None:
    profiles = (sampled([[0]], [1], name="one"), sampled([[0], [0]], [1, 1], name="two"))
    assert stacks(fold_of(document(*profiles))) == {"one;a": (1, 1), "two;a": (2, 2)}
    assert stacks(fold_of(document(*profiles, exporter="py-spy@0.4.3"))) == {"a": (3, 3)}
    assert stacks(fold_of(document(profiles[0]))) == {"a": (1, 1)}


def test_frames_carry_file_line_and_kind() -> None:
    frames = [
        {"name": "f", "file": "/srv/a.py", "line": 12, "col": None},
        {"name": "g", "file": "/usr/lib/libc.so.6"},
        {"name": "h", "line": -1},
        {"name": "h;\n"},
    ]
    fold = fold_of(document(sampled([[0, 1, 2, 3]], [1]), frames=frames))
    assert fold.trie.frames == [
        Frame("f", "", "python", "/srv/a.py", 12),
        Frame("g", "", "user", "/usr/lib/libc.so.6", 0),
        Frame("h"),
        Frame("h;\n"),
    ]


def test_equal_frames_under_two_numbers_are_one() -> None:
    fold = fold_of(document(sampled([[0], [1]], [1, 2]), frames=[{"name": "a"}, {"name": "a"}]))
    assert stacks(fold) == {"a": (2, 3)}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (document(sampled([[0]], [1, 2])), "$.profiles[0] has 1 samples and 2 weights"),
        (document(sampled([[0, 7]], [1])), "$.profiles[0].samples[0] names frame 7 of 4"),
        (
            document(sampled([[0]], [1]), sampled([[0], [-1]], [1, 1])),
            "$.profiles[1].samples[1] is not a list of",
        ),
        (document(sampled([[True]], [1])), "$.profiles[0].samples[0] is not a list of frame numbers"),
        (document(sampled([["a"]], [1])), "$.profiles[0].samples[0] is not a list of frame numbers"),  # type: ignore[list-item]
        (document(sampled([[0]], [-1])), "$.profiles[0].weights[0] is not 0 or more"),
        (document(sampled([[0]], ["1"])), "$.profiles[0].weights[0] is not a usable number"),
        (document(sampled([[0]], [10**40])), "$.profiles[0].weights[0] is not a usable number"),
        (document(sampled([[0]], [float("nan")])), "not valid JSON: nan is not a number"),
        (document(sampled([[0]], [1], "fortnights")), "$.profiles[0].unit is not one of seconds, milli"),
        (
            document(sampled([[0]], [1], "bytes"), sampled([[0]], [1], "seconds")),
            "profiles of different units",
        ),
        (document(evented(("O", 0, 0))), "$.profiles[0].events ends while frame 0 is open"),
        (
            document(evented(("O", 0, 0), ("C", 1, 1))),
            "$.profiles[0].events[1] closes frame 1 while frame 0 is",
        ),
        (document(evented(("C", 1, 1))), "$.profiles[0].events[0] closes frame 1 while none is open"),
        (document(evented(("O", 0, 5), ("C", 0, 4))), "$.profiles[0].events[1].at is earlier"),
        (document(evented(("O", 0, None))), "$.profiles[0].events[0].at is not a usable number"),
        (document(evented(("X", 0, 0))), "$.profiles[0].events[0].type is not O or C"),
        (document(evented(("O", 9, 0), ("C", 9, 1))), "$.profiles[0].events[0] names frame 9 of 4"),
        (document({"type": "sampled", "unit": "none", "samples": []}), "$.profiles[0].weights is not there"),
        (document({"type": "flat", "unit": "none"}), "$.profiles[0].type is not sampled or evented"),
        (document({"type": 7}), "$.profiles[0].type is not text"),
        (document([]), "$.profiles[0] is not an object"),  # type: ignore[arg-type]
        (document(frames=[{}]), "$.shared.frames[0].name is not text"),
        (b'{"shared": {"frames": []}}', "$.profiles is not a list"),
        (b'{"profiles": []}', "$.shared.frames is not a list"),
        (b'{"profiles": 7}', "$.profiles is not a list"),
        (b"[]", "$ is not an object"),
        (document(sampled([[0]], [1]))[:-5], "the JSON ends in the middle"),
        (b'{"profiles": ' + b"[" * 100_000, ""),
    ],
)
def test_what_breaks_the_format_is_one_line_with_its_path(data: bytes, problem: str) -> None:
    with pytest.raises(InputError) as raised:
        fold_of(data)
    assert "\n" not in str(raised.value)
    assert raised.value.problem.startswith(problem)
    assert raised.value.path == "x.json"


@given(st.data())
def test_damage_never_ends_in_a_traceback(data: st.DataObject) -> None:
    whole = document(
        sampled([[0, 1], [2]], [1, 0.5], "seconds"), evented(("O", 0, 0), ("C", 0, 3), unit="seconds")
    )
    text = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=4))
    with contextlib.suppress(FlamesliceError):
        fold_of(bytes(text))


@pytest.mark.parametrize(
    ("head", "answer"),
    [(document()[:30], None), (document(), True), (b"  ", None), (b"[1]", False), (b"a;b 1\n", False)],
)
def test_sniff(head: bytes, answer: bool | None) -> None:
    assert speedscope.sniff(head) is answer
