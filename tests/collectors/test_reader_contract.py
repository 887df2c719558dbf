"""What every reader promises: it knows its format or says that it cannot tell, and ends in one line or a fold."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import io
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

import collectors
from collectors.source import Source
from pipeline.errors import FlamesliceError
from pipeline.folds import Fold
from pipeline.text import encode

READERS = {name: importlib.import_module(module) for name, module in collectors.READERS.items()}

# a small whole file of each format
WHOLE: dict[str, bytes] = {
    "perf_script": (
        b"app 7/8 [001] 12.345678: 250000 cpu-clock:\n\t7f12 main+0x1 (/bin/app)\n\t7f13 start (/bin/app)\n\n"
        b"b c 9/9 [000] 12.345700: 250000 cpu-clock:\n\tffffffff81000000 read ([kernel.kallsyms])\n\n"
    )
    * 3,
    "ftrace": (
        b"# tracer: nop\n#\n"
        b"             app-8       [001] d..2. 12.345678: sched_waking: comm=b c pid=9 prio=120\n"
        b"             app-8       [001] d..2. 12.345679: <stack trace>\n => __schedule\n => schedule\n"
        b"             b c-9       [000] ..... 12.345700: sys_write(fd: 1, buf: 0x7f, count: 2)\n"
        b"             b c-9       [000] ..... 12.345701: sys_write -> 0x2\n"
    ),
    "collapsed": b"app;main;read_[k] 12\napp;main 3.5\n# comment\nb c;main 4\n",
    "py_spy_raw": b"<module> (a.py:1);f (a.py:2) 3\n0x7f (libc.so.6);<module> (a.py:1) 4\n",
    "speedscope": (
        b'{"$schema": "https://www.speedscope.app/file-format-schema.json", "shared": {"frames": [{"name": "f"},'
        b' {"name": "g", "file": "a.py", "line": 3}]}, "profiles": [{"type": "sampled", "name": "t", "unit":'
        b' "seconds", "startValue": 0, "endValue": 2, "samples": [[0], [0, 1]], "weights": [0.5, 1]}]}'
    ),
    "chrome_trace": (
        b'[{"ph": "B", "name": "f", "ts": 1, "pid": 1, "tid": 1}, {"ph": "X", "name": "g", "ts": 2, "dur": 3,'
        b' "pid": 1, "tid": 1}, {"ph": "E", "name": "f", "ts": 9, "pid": 1, "tid": 1}]'
    ),
}

# texts that look like many formats at once
LIKELY = st.lists(
    st.sampled_from(
        [
            b"a;b 1\n", b"a;b", b" 12\n", b"\n", b"app 7 1.000000: cycles:", b"\t7f main (a)\n", b"{", b"[", b'"',
            b'"ph": "B"', b"<svg>", b"# ", b"\r\n", b"\0", b"\xff\xfe", b"f (a.py:1)",
            b"speedscope.app/file-format-schema",
            b"9" * 30, b"PERF_RECORD_LOST", b"# tracer: nop\n", b"             a-1  [000] d..2. 1.5: ", b"sched_x: a\n",
            b" => f\n",             b"<stack trace>\n", b" 0)  1 us | f();\n", b"\t", b"1 2 3\n", b"\x1f\x8b\x08",
        ]
    ),
    max_size=12,
).map(b"".join)  # fmt: skip
BYTES = st.binary(max_size=200) | LIKELY


def source(data: bytes) -> Source:
    return Source("file", io.BytesIO(data))


def check(fold: Fold) -> None:
    """Check what holds for every fold."""
    by_event: dict[str, list[int]] = {}
    for (event, _, node), (samples, period) in fold.weights.items():
        assert samples >= 0
        assert period >= 0
        total = by_event.setdefault(event, [0, 0])
        total[0] += samples
        total[1] += period
        for frame in fold.trie.path(node):
            encode(frame.symbol + frame.dso + frame.file)
    for event, totals in fold.events.items():
        samples, period = by_event.get(event, [0, 0])
        assert totals.samples == samples
        if totals.has_period:
            assert totals.period == period
    assert fold.rows >= fold.losses.lost_rows


def test_the_table_of_whole_files_is_whole() -> None:
    assert WHOLE.keys() == READERS.keys()


@pytest.mark.parametrize("name", READERS)
def test_a_reader_knows_its_own_format_and_no_other(name: str) -> None:
    for other, text in WHOLE.items():
        answer = READERS[name].sniff(text + b"\n")
        is_a_kind_of = (name, other) == ("collapsed", "py_spy_raw")
        assert bool(answer) is (name == other or is_a_kind_of)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@given(data=BYTES)
def test_sniff_never_raises(reader: ModuleType, data: bytes) -> None:
    assert reader.sniff(data) in (True, False, None)


@pytest.mark.parametrize("name", ["collapsed", "py_spy_raw", "speedscope", "chrome_trace"])
@given(data=BYTES, cuts=st.lists(st.integers(0, 250), max_size=8))
def test_more_bytes_never_change_an_answer(name: str, data: bytes, cuts: list[int]) -> None:
    answers = [READERS[name].sniff(data[:cut]) for cut in sorted(cuts)] + [READERS[name].sniff(data)]
    told = [answer for answer in answers if answer is not None]
    assert len(set(told)) <= 1
    first = next((at for at, answer in enumerate(answers) if answer is not None), len(answers))
    assert None not in answers[first:]


@pytest.mark.parametrize("name", READERS)
def test_a_whole_file_gives_a_fold_without_losses(name: str) -> None:
    assert collectors.detect(source(WHOLE[name])) == name
    fold = READERS[name].fold(source(WHOLE[name]))
    check(fold)
    assert fold.events
    assert {loss.reason for loss in fold.losses.as_tuple()} <= {"rounded_weight"}


@pytest.mark.parametrize("name", READERS)
@given(length=st.integers(0, 700))
def test_a_cut_file_gives_a_fold_or_one_line(name: str, length: int) -> None:
    with contextlib.suppress(FlamesliceError):
        check(READERS[name].fold(source(WHOLE[name][:length])))


@pytest.mark.parametrize("name", READERS)
def test_a_cut_gzip_is_a_counted_loss_or_one_line(name: str) -> None:
    packed = gzip.compress(WHOLE[name], mtime=0)[:-6]  # all of the text, without the check of its length
    fold = READERS[name].fold(source(packed))
    check(fold)
    assert "truncated_input" in {loss.reason for loss in fold.losses.as_tuple()}


@pytest.mark.parametrize("name", READERS)
@given(edits=st.lists(st.tuples(st.integers(0, 700), st.integers(0, 12), st.binary(max_size=6)), max_size=5))
def test_a_damaged_file_gives_a_fold_or_one_line(name: str, edits: list[tuple[int, int, bytes]]) -> None:
    data = bytearray(WHOLE[name])
    for at, length, put in edits:
        data[at : at + length] = put
    with contextlib.suppress(FlamesliceError):
        check(READERS[name].fold(source(bytes(data))))


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@given(data=BYTES)
def test_bytes_of_another_kind_give_a_fold_or_one_line(reader: ModuleType, data: bytes) -> None:
    with contextlib.suppress(FlamesliceError):
        check(reader.fold(source(data)))


@given(data=BYTES)
def test_detection_gives_a_reader_or_one_line(data: bytes) -> None:
    try:
        assert collectors.detect(source(data)) in (*collectors.READERS, collectors.PERF_DATA)
    except FlamesliceError as error:
        line = str(error)
    else:
        return
    assert line.startswith("file: ")
    assert "\n" not in line
