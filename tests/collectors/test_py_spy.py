"""py-spy's raw format, and that its three formats tell the same of the same program."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from types import ModuleType

import pytest

from collectors import chrome_trace, py_spy, speedscope
from collectors.source import Source
from pipeline.folds import Fold

DATA = Path(__file__).resolve().parent.parent / "data" / "py_spy"


def folded(reader: ModuleType, path: Path) -> Fold:
    with Source.open_path(str(path)) as source:
        fold: Fold = reader.fold(source)
        return fold


def stacks(fold: Fold, *, by: int) -> dict[tuple[str, ...], int]:
    """Return stack -> samples (by=0) or period (by=1)."""
    out: dict[tuple[str, ...], int] = defaultdict(int)
    for (_, _, node), weight in fold.weights.items():
        out[tuple(frame.symbol for frame in fold.trie.path(node))] += weight[by]
    return dict(out)


def functions(stack: tuple[str, ...]) -> tuple[str, ...]:
    """Return a raw stack's functions without `(file:line)`."""
    return tuple(re.sub(r" \([^()]*\)$", "", name) for name in stack)


def test_raw_is_the_lines_of_the_file() -> None:
    fold = folded(py_spy, DATA / "busy.raw")
    lines = [line.rpartition(" ") for line in (DATA / "busy.raw").read_text().splitlines()]
    assert stacks(fold, by=0) == {tuple(stack.split(";")): int(count) for stack, _, count in lines}
    assert fold.is_folded
    assert fold.losses.as_tuple() == ()


def test_processes_and_threads_stay_frames() -> None:
    fold = folded(py_spy, DATA / "threads.raw")
    for (_, comm, node), _ in fold.weights.items():
        path = fold.trie.path(node)
        assert comm == ""
        assert path[0].symbol.startswith("process ")
        assert path[0].symbol.endswith(':"python busy.py 10"')
        assert path[1].symbol.startswith("thread (")
        assert {frame.kind for frame in path} == {"python"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("<module> (ps.py:15)", "python"),
        ("JSONEncoder.encode (json/encoder.py:200)", "python"),
        ("<lambda>.<locals>.<listcomp> (ps.py:14)", "python"),
        ("f (<string>:1)", "python"),
        ("_import (<frozen importlib._bootstrap>:1178)", "python"),
        ("Кириллица.метод (ps.py:5)", "python"),
        ('process 7:"sh -c x"', "python"),
        ("thread (30553): worker (a) 12", "python"),
        ("thread (0x7F3E): w", "python"),
        ("0x7fa7c13278ec (libc.so.6)", "user"),
        ("encoder_call (_json.c:1305)", "user"),
        ("main", "user"),
        ("(ps.py:1)", "user"),
    ],
)
def test_kinds(name: str, kind: str) -> None:
    assert py_spy.kind_of(name) == kind


@pytest.mark.parametrize(
    ("head", "answer"),
    [
        (b"<module> (a.py:1);f (a.py:2) 10\n", True),
        (b"0x7f (libc.so.6);thread_run (libpython.so) 1\n0x7f (libc.so.6);g (b.py:3) 2\n", True),
        (b'process 1:"python a.py";thread (1): Main;<module> (a.py:1) 3\n', True),
        (b"<module> (a.py:1);f (a.py:2) 10", None),
        (b"gzip;main;deflate 10\n", None),
        (b"gzip;main;deflate 10\n" * 100, False),
        (b"no number here\n", False),
        (b"a;b (x.py:3) 1.5\n", False),
    ],
)
def test_sniff(head: bytes, answer: bool | None) -> None:
    assert py_spy.sniff(head) is answer


def test_the_three_formats_of_one_program_agree() -> None:
    """Names are equal but for `(file:line)`; each run counted its own samples, so shares agree roughly."""
    raw = folded(py_spy, DATA / "busy.raw")
    scope = folded(speedscope, DATA / "busy.speedscope")
    trace = folded(chrome_trace, DATA / "busy.chrometrace")
    by_raw: dict[tuple[str, ...], int] = defaultdict(int)
    for stack, samples in stacks(raw, by=0).items():
        by_raw[functions(stack)] += samples
    by_scope, by_trace = stacks(scope, by=1), stacks(trace, by=1)
    spin = ("<module>", "step", "tokenize", "spin")
    schedule = ("<module>", "step", "schedule")
    assert set(by_raw) == {spin, schedule} == set(by_scope)
    assert {spin, schedule} <= set(by_trace)
    for weights in (dict(by_raw), by_scope, by_trace):
        assert 0.6 < weights[spin] / sum(weights.values()) < 0.9  # 75 % by construction, 100 samples
    # about one second each: 100 samples of 10 ms
    assert by_scope[spin] + by_scope[schedule] == 10_000_000 * sum(map(len, samples_of("busy.speedscope")))
    assert 850_000_000 < sum(by_trace.values()) < 1_100_000_000
    for fold in (raw, scope, trace):
        assert {frame.kind for frame in fold.trie.frames} == {"python"}
        assert fold.losses.as_tuple() == ()


def samples_of(name: str) -> list[list[object]]:
    return [profile["samples"] for profile in json.loads((DATA / name).read_text())["profiles"]]


def test_the_same_samples_in_two_formats_are_the_same_stacks(tmp_path: Path) -> None:
    """What py-spy would write of three samples of two threads, at 100 Hz."""
    (tmp_path / "raw").write_text("f (a.py:1);g (a.py:2) 2\nf (a.py:1) 1\n")
    (tmp_path / "speedscope").write_text(
        '{"$schema": "https://www.speedscope.app/file-format-schema.json", "exporter": "py-spy@0.4.3",'
        '"profiles": [{"type": "sampled", "name": "Thread 1 \\"A\\"", "unit": "seconds", "startValue": 0.0,'
        '"endValue": 0.02, "samples": [[0, 1], [0]], "weights": [0.01, 0.01]},'
        '{"type": "sampled", "name": "Thread 2 \\"B\\"", "unit": "seconds", "startValue": 0.0,'
        '"endValue": 0.01, "samples": [[0, 1]], "weights": [0.01]}],'
        '"shared": {"frames": [{"name": "f", "file": "a.py", "line": 1}, {"name": "g", "file": "a.py"}]}}'
    )
    raw = stacks(folded(py_spy, tmp_path / "raw"), by=0)
    scope = stacks(folded(speedscope, tmp_path / "speedscope"), by=1)
    assert {functions(stack): 10_000_000 * samples for stack, samples in raw.items()} == scope
