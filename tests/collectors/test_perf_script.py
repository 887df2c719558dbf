"""perf script text: every layout by hand, the corpus against its oracles, and the laws of the tokenizer."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers import flame_graph
from analyzers.render import collapsed
from collectors import perf_header, perf_pieces, perf_script
from collectors.perf_fold import Counting, unite
from collectors.perf_tokens import Tokens
from collectors.source import Source
from pipeline.errors import InputError
from pipeline.filters import EVERYTHING, SampleFilter
from pipeline.folds import Fold
from pipeline.tables import Tables


def fold_text(text: bytes, keep: SampleFilter = EVERYTHING) -> Fold:
    layout = perf_header.learn(text)
    assert layout is not None
    counting = Counting(Tokens(layout), keep)
    losses = counting.piece(0, [text])
    fold = Fold()
    unite([counting.result()], fold)
    fold.losses.merge(losses)
    return fold


def folded(fold: Fold, event: str | None = None) -> list[bytes]:
    return collapsed.render(flame_graph.from_fold(fold, event=event)).splitlines()


def fold_lines(text: bytes, event: str | None = None) -> list[bytes]:
    return folded(fold_text(text), event)


def fold_file(path: Path, workers: int | None = None) -> Fold:
    with Source.open_path(str(path)) as source:
        return perf_script.fold(source, workers=workers)


def read_file(path: Path) -> Tables:
    with Source.open_path(str(path)) as source:
        return perf_script.read(source)


STACK = b"\t    401010 inner+0x10 (/bin/a)\n\t    401000 main+0x1 (/bin/a)\n\n"


@pytest.mark.parametrize(
    ("header", "line"),
    [
        (b"app 12 1.000001: 5 cpu-clock: ", b"app;main;inner 5"),
        (b"app 12/34 [003] 1.000001:          5 cpu-clock:u: ", b"app;main;inner 5"),
        (b"app 12 [003] 1.000001: cpu-clock: ", b"app;main;inner 1"),
        (b"app 12 K [003] 1.000001: 5 cpu-clock: ", b"app;main;inner 5"),
        (b"app 12 [003] U 1.000001: 5 cpu-clock: ", b"app;main;inner 5"),
        (b"app 12 2026-12-01 03:53:40.731304 1.000001: 5 cpu-clock: ", b"app;main;inner 5"),
        (b"app\t12 [003] 1.5:\t\t5 task-clock:u:", b"app;main;inner 5"),
        (b"app 12 cycles:", b"app;main;inner 1"),
        (b"app 12    7 cycles: ", b"app;main;inner 7"),
        (b"  1.000001: cpu-clock: ", b"[unknown];main;inner 1"),
        (b"app   1.000001: 5 cpu-clock: ", b"app;main;inner 5"),
        (b"app 12 1796097222.914413153: 5 cpu-clock: ", b"app;main;inner 5"),
        (b"t 12 1.000001: 5 cpu-clock: ", b"t;main;inner 5"),
        (b"my app (x) 12 1.000001: 5 cpu-clock: ", b"my_app_(x);main;inner 5"),
        (b"a b: c 12/34 56 1.000001: 5 cpu-clock: ", b"a_b:_c_12/34;main;inner 5"),
        (b"12345 678 56 1.000001: 5 cpu-clock: ", b"12345_678;main;inner 5"),
        (b"[kworker/0] 56 1.000001: 5 cpu-clock: ", b"[kworker/0];main;inner 5"),
        (b"cpu-clock:u: 56 1.000001: 5 cpu-clock: ", b"cpu-clock:u:;main;inner 5"),
        (b"tab\tname 56 1.000001: 5 cpu-clock: ", b"tab\tname;main;inner 5"),
        (b"\xff\xfebin 56 1.000001: 5 cpu-clock: ", b"\xff\xfebin;main;inner 5"),
        (b"nl\nname 56 1.000001: 5 cpu-clock: ", b"nl\\nname;main;inner 5"),
        (b"a 1 2.000000: 56 1.000001: 5 cpu-clock: ", b"a_1_2.000000:;main;inner 5"),
        (b"semi;colon 56 1.000001: 5 cpu-clock: ", b"semi:colon;main;inner 5"),
        (b"app 12 1.000001: 5 cpu_core/cycles:ppp/: ", b"app;main;inner 5"),
        (b"app 12 1.000001: 5 page-faults:      7ffc1234 ", b"app;main;inner 5"),
        (b"app 12 1.000001: 99999999999999999999 cycles: ", b"app;main;inner 99999999999999999999"),
    ],
)
def test_reads_every_sample_line(header: bytes, line: bytes) -> None:
    # three times, so that layout learning has more than one line and the remembered texts are used
    assert fold_lines((header + b"\n" + STACK) * 3) == [
        line.rpartition(b" ")[0] + b" %d" % (3 * int(line.rpartition(b" ")[2]))
    ]


@pytest.mark.parametrize(
    ("stack", "frames"),
    [
        (b"\t 401010 f+0x10 (/bin/a)", b"f"),
        (b"\t 401010 ns::f<int (int)>(char) const+0x10 (/bin/a)", b"ns::f<int (int)>"),
        (b"\t 401010 net/http.(*Client).Do+0x10 (/bin/go)", b"net/http.(*Client).Do"),
        (b"\t 401010 (anonymous namespace)::f(int)+0x1 (/bin/a)", b"(anonymous namespace)::f"),
        (b"\t 401010 [unknown] (/usr/lib/libstdc++.so.6)", b"[libstdc++.so.6]"),
        (b"\t 401010 [unknown] (/memfd:jit cache (deleted))", b"[memfd:jit cache (deleted)]"),
        (b"\t 401010 [unknown] ([vdso])", b"[[vdso]]"),
        (b"\t 401010 [unknown] ([unknown])", b"[unknown]"),
        (b"\t 401010  (/lib/libc-2.15.so)", b" "),
        (b"\t 401010 leaf", b"leaf"),
        (b"\t 401010 operator()", b"operator"),
        (b"\t 401010 std::unique_ptr<a>::operator->() const+0x4 (/bin/a)", b"std::unique_ptr<a>::operator->"),
        (b"\t 401010 La;::f->Lb;::g (/tmp/perf-1.map)", b"La:::f;Lb:::g_[i]"),
        (b"\t 401010 inl1+0x27 (inlined)", b"inl1"),
        (b"\t 401010 _ZN4core3fmt5write17h0123456789abcdefE+0x1 (/bin/r)", b"core::fmt::write"),
        (b"\t 401010 _$LT$T$u20$as$u20$a..B$GT$::f::h0123456789abcdef+0x1 (/bin/r)", b"<T as a::B>::f"),
        (b"\t 401010 _ZNSt6vectorIiE4sizeEv+0x1 (/bin/a)", b"_ZNSt6vectorIiE4sizeEv"),
        (b"        401010\tLock::unlock() (/system/lib/libc.so)", b"Lock::unlock"),
        (b"401010 f ([kernel.kallsyms])", b"f"),
        (b"\t 401010 start_thread (/lib/x86_64-linux-gnu", b"start_thread"),
        (b"\t 401010 f (/bin/a)\n  /src/a.c:21\n\t 401000 g (/bin/a)\n  a.c:4 (inlined)", b"g;f"),
        (b"\t 401010 f (/bin/a)\n  libc.so.6[ff04e]", b"f"),
        (b"\t 401010 f (/bin/a)\n\n\t 401000 g (/bin/a)", b"g;f"),
        (b"\t 401010 f (/bin/a)\n            7ffc12345678 ", b"f"),
        (b"\t 401010 (bash) (/bin/a)", b""),
    ],
)
def test_reads_every_stack_line(stack: bytes, frames: bytes) -> None:
    text = (b"app 1 1.000001: 5 cpu-clock: \n" + stack + b"\n\n") * 2
    assert fold_lines(text) == [b"app" + (b";" + frames if frames else b"") + b" 10"]


def test_a_sample_line_always_starts_a_sample() -> None:
    one = b"app 1 1.000001: 5 cpu-clock: \n\t 401010 f (/bin/a)\n"
    two = b"dd 29776 2.000000: 7 cpu-clock: \n\t 401010 g (/bin/dd)"
    assert fold_lines(one + two) == [b"app;f 5", b"dd;g 7"]
    # a name of hexadecimal letters, at the start of a line, is not a stack line
    assert fold_lines(one.replace(b"app", b"ab") + two) == [b"ab;f 5", b"dd;g 7"]


def test_tracepoints_fold_to_the_process_and_keep_their_arguments() -> None:
    text = (
        b"            perf 1/1 [000] 1.000001: sched:sched_switch: prev_comm=a\nb prev_pid=1 ==> next_comm=x\n"
        b"            nl\nname 7/8 [000] 1.000002: sched:sched_switch: prev_comm=c prev_pid=2\n"
    )
    fold = fold_text(text)
    assert folded(fold) == [b"nl\\nname 1", b"perf 1"]
    assert fold.losses.as_tuple() == ()


def test_events_stay_apart_and_the_first_is_drawn() -> None:
    text = b"".join(
        b"app 1 1.00000%d: %d %s: \n\t 401010 f (/bin/a)\n\n" % (at, period, event)
        for at, (period, event) in enumerate([(3, b"cpu-clock:u"), (1, b"page-faults"), (5, b"cpu-clock")])
    )
    fold = fold_text(text)
    assert list(fold.events) == ["cpu-clock:u", "page-faults", "cpu-clock"]
    assert folded(fold) == [b"app;f 3"]
    assert folded(fold, "cpu-clock") == [b"app;f 5"]
    assert folded(fold, "all") == [b"app;f 9"]


def test_every_unreadable_line_is_a_located_loss() -> None:
    text = (
        b"app 1 1.000001: 5 cpu-clock: \n\t 401010 f (/bin/a)\n\t   WEIRD\n\nnonsense here\n\n"
        b"app 1 2.0: 5 cpu-clock: \n"
    )
    losses = {loss.reason: loss for loss in fold_text(text).losses.as_tuple()}
    assert (losses["unreadable_frame"].first_line, losses["unreadable_frame"].example) == (3, "WEIRD")
    assert (losses["unreadable_line"].first_line, losses["unreadable_line"].example) == (5, "nonsense here")


def test_records_are_used_or_counted() -> None:
    text = (
        b"app 1 1.000001: PERF_RECORD_COMM exec: server:77/77\n"
        b"app 1 1.000001: PERF_RECORD_LOST lost 40\n"
        b"app 1 1.000002: PERF_RECORD_NAMESPACES 1/1 - nr_namespaces: 7\n\t\t[0/net: 4/0xf0000098]\n"
        b"app 1 1.000003: PERF_RECORD_SWITCH OUT preempt\n"
        b":77 77 1.000004: 5 cpu-clock: \n\t 401010 f (/bin/a)\n\n"
    )
    fold = fold_text(text)
    assert folded(fold) == [b"server;f 5"]
    assert {loss.reason: loss.count for loss in fold.losses.as_tuple()} == {
        "kernel_lost": 40,
        "skipped_record": 1,
    }


FILTERED = b"".join(
    b"%s %d/%d [00%d] %d.000000: 1 cpu-clock: \n\t 401010 f (/bin/a)\n\n" % row
    for row in [(b"a", 1, 1, 0, 1), (b"a", 1, 2, 1, 2), (b"b c", 3, 3, 0, 3), (b"d", 4, 4, 1, 4)]
)


@pytest.mark.parametrize(
    ("keep", "lines"),
    [
        (SampleFilter(pids=frozenset({1})), [b"a;f 2"]),
        (SampleFilter(tids=frozenset({2, 4})), [b"a;f 1", b"d;f 1"]),
        (SampleFilter(cpus=frozenset({0})), [b"a;f 1", b"b_c;f 1"]),
        (SampleFilter(comms=frozenset({"b c"})), [b"b_c;f 1"]),
        (SampleFilter(comms=frozenset({"b_c"})), [b"b_c;f 1"]),
        (SampleFilter(from_ns=2 * 10**9, to_ns=4 * 10**9), [b"a;f 1", b"b_c;f 1"]),
        (SampleFilter(pids=frozenset({1}), cpus=frozenset({1})), [b"a;f 1"]),
    ],
)
def test_filters_combine(keep: SampleFilter, lines: list[bytes]) -> None:
    assert folded(fold_text(FILTERED, keep)) == lines


def test_nothing_left_is_refused() -> None:
    with pytest.raises(InputError, match="no samples"):
        folded(fold_text(FILTERED, SampleFilter(pids=frozenset({99}))))


# laws

_names = st.sampled_from([b"app", b"my app (x)", b"nl\nname", b"12345 678", b"dd", b"\xff\xfe"])
_stacks = st.lists(
    st.sampled_from([b"\t 401010 f+0x1 (/a)", b"\t 402020 g (/b c)", b"\t 1 [unknown] ([unknown])"]),
    max_size=4,
)


@st.composite
def captures(draw: st.DrawFn) -> bytes:
    out = []
    for second in range(draw(st.integers(2, 8))):
        header = b"%s %d [000] %d.000000: %d cpu-clock: " % (
            draw(_names),
            draw(st.integers(1, 3)),
            second,
            draw(st.integers(1, 9)),
        )
        out.append(b"\n".join([header, *draw(_stacks)]) + draw(st.sampled_from([b"\n", b"\n\n", b"\n\n\n"])))
    return b"".join(out)


@given(captures(), st.data())
def test_feeding_in_parts_reads_the_same(text: bytes, data: st.DataObject) -> None:
    layout = perf_header.learn(text)
    assert layout is not None
    ends = [at + 1 for at, byte in enumerate(text) if byte == 0x0A]
    cuts = sorted(data.draw(st.sets(st.sampled_from(ends), max_size=6)))
    parts = [
        text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True) if start < end
    ]
    whole, split = Counting(Tokens(layout), SampleFilter()), Counting(Tokens(layout), SampleFilter())
    whole.piece(0, [text])
    split.piece(0, parts)
    one, other = Fold(), Fold()
    unite([whole.result()], one)
    unite([split.result()], other)
    assert folded(one) == folded(other)


@given(captures(), st.integers(0, 400))
def test_pieces_cut_at_borders_add_up(text: bytes, near: int) -> None:
    layout = perf_header.learn(text)
    assert layout is not None
    border = perf_pieces.find_border(text[near:], layout)
    if border is None:
        return
    whole, first, second = (Counting(Tokens(layout), SampleFilter()) for _ in range(3))
    whole.piece(0, [text])
    first.piece(0, [text[: near + border]])
    second.piece(1, [text[near + border :]])
    one, other = Fold(), Fold()
    unite([whole.result()], one)
    unite([first.result(), second.result()], other)
    assert folded(one) == folded(other)
    assert list(one.events) == list(other.events)


@given(st.binary(max_size=400))
def test_no_bytes_stop_the_reader(noise: bytes) -> None:
    text = b"app 1 1.000001: 5 cpu-clock: \n\t 401010 f (/bin/a)\n\n" + noise
    assert fold_text(text).events


def test_forgetting_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    text = FILTERED * 50
    expected = fold_lines(text)
    layout = perf_header.learn(text)
    assert layout is not None
    counting = Counting(Tokens(layout), SampleFilter())
    counting.tokens._remember_bytes = 1
    counting.piece(0, perf_pieces.feeds(text))
    fold = Fold()
    unite([counting.result()], fold)
    assert folded(fold) == expected


def test_processes_count_what_one_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "big.txt"
    path.write_bytes(b"# clockid: monotonic (1)\n" + FILTERED * 400 + b"\n\nrubbish\n\n" + FILTERED)
    monkeypatch.setattr(perf_pieces, "PIECE_BYTES", 20_000)
    alone = fold_file(path, workers=1)
    together = fold_file(path, workers=3)
    assert folded(alone) == folded(together) == [b"a;f 802", b"b_c;f 401", b"d;f 401"]
    assert alone.losses.as_tuple() == together.losses.as_tuple()
    assert alone.losses.as_tuple()[0].first_line == 1 + 400 * 12 + 3
    assert (alone.rows, alone.clock) == (together.rows, together.clock) == (1605, "monotonic")


# the corpus


def oracle_rows(corpus: Path) -> list[dict[str, str]]:
    with (corpus / "perf/oracle/SUMMARY.tsv").open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


def corpus_file(corpus: Path, name: str) -> Path:
    path = corpus / "perf" / name
    return path if path.exists() else path.with_name(path.name + ".gz")


def test_corpus_folds_as_the_oracles_say(corpus: Path) -> None:
    checked = 0
    for row in oracle_rows(corpus):
        suffix = {"same": "perl", "BOTH-WRONG": "truth"}.get(row["cmp"])
        if suffix is None:
            continue
        oracle = corpus / "perf/oracle" / f"{row['file'].replace('/', '__')}.{suffix}.folded"
        fold = fold_file(corpus_file(corpus, row["file"]))
        assert folded(fold) == sorted(oracle.read_bytes().splitlines()), row["file"]
        checked += 1
    assert checked > 25


# (file, lines, total) by a plain reading: docs/formats/perf.md says which peer errs, and why
PLAIN_READINGS = [
    ("inferno/collapse-perf/empty-line.txt", 1, 500000),
    ("inferno/collapse-perf/single-line-stacks.txt", 1, 1),
    ("firefox-profiler/simple-perf.txt.gz", 127, 163000000),
    ("firefox-profiler/test.perf.gz", 26, 587515833),
    ("local/a_default_cpu.txt", 105, 1040200875),
    ("local/a_pidtid_cpu.txt", 105, 1040200875),
    ("local/clockid_mono_tod.txt", 8, 16032064),
    ("local/fp_default.txt", 88, 755511016),
    ("local/fp_nodso_pidonly.txt", 88, 377),
    ("local/fp_noip.txt", 10, 377),
    ("local/fp_timeonly_nocomm.txt", 34, 377),
    ("local/nocallgraph_inline_ip.txt", 24, 454909816),
    ("local/derived/crlf_java.txt", 34, 46),
    ("local/derived/multimember_java_dd.txt.gz", 34, 46),
    ("local/derived/one_xx.txt", 10, 44088176),
]


@pytest.mark.parametrize(("name", "lines", "total"), PLAIN_READINGS)
def test_corpus_where_the_peers_differ(corpus: Path, name: str, lines: int, total: int) -> None:
    got = folded(fold_file(corpus_file(corpus, name)))
    assert (len(got), sum(int(line.rpartition(b" ")[2]) for line in got)) == (lines, total)


@pytest.mark.parametrize(
    ("text", "truth"), [("fp_ns.txt", "fp.json.gz"), ("clockid_mono.header_ns.txt", "k_mono.json.gz")]
)
def test_table_equals_what_perf_says_elsewhere(corpus: Path, text: str, truth: str) -> None:
    tables = read_file(corpus / "perf/local" / text)
    with gzip.open(corpus / "perf/local/expected" / truth) as file:
        samples = json.load(file)["samples"]
    events = tables.perf_events.head(len(samples))
    assert (
        events["raw_time"].to_list()[: len(samples)]
        == [sample["timestamp"] for sample in samples][: events.height]
    )
    assert events["tid"].to_list() == [sample["tid"] for sample in samples][: events.height]
    depth = dict(tables.stacks.select("stack_id", "depth").iter_rows())
    for stack_id, sample in zip(events["stack_id"], samples, strict=False):
        assert depth[stack_id] == len(sample["callchain"])


def test_table_and_fold_agree(corpus: Path) -> None:
    for name in ("fp_default.txt", "multi_events.txt", "sched_default.txt.gz", "switch_events.txt"):
        path = corpus / "perf/local" / name
        if not path.exists():
            continue
        fold = fold_file(path)
        events = read_file(path).perf_events
        for event, totals in fold.events.items():
            rows = events.filter(events["event"] == event)
            assert rows.height == totals.samples
            assert int(rows["period"].sum()) == totals.period or not totals.has_period


@pytest.mark.parametrize("piece", [b"1.5: ", b"1 ", b"(", b")", b"->", b" ", b"[1] ", b"1/"])
def test_lines_of_a_megabyte_take_no_time_to_speak_of(piece: bytes) -> None:
    # quadratic work on 1 MB would take minutes, and the suite's own limit would end it
    filler = piece * (1_000_000 // len(piece))
    sample = b"app 1 1.000001: 5 cpu-clock: \n\t 401010 f (/bin/a)\n\n"
    fold = fold_text(
        sample + filler + b"\n" + sample + b"app 1 " + filler + b" 1.0: 5 c: \n\t 401010 " + filler + b"\n"
    )
    assert fold.events["cpu-clock"].samples == 2


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"app 1 [000] 5.000001: 99999999999999999999999 cpu-clock: ", "bad_number"),
        (b"app 99999999999 [000] 5.000001: 5 cpu-clock: ", "bad_number"),
        (b"app 1 [99999999999] 5.000001: 5 cpu-clock: ", "bad_number"),
        (b"app 1 [000] 99999999999999999999.000001: 5 cpu-clock: ", "no_time"),
    ],
)
def test_numbers_that_no_column_holds_are_losses_of_tables(tmp_path: Path, line: bytes, reason: str) -> None:
    path = tmp_path / "odd.txt"
    path.write_bytes(line + b"\n\t 401010 f (/bin/a)\n\n")
    tables = read_file(path)
    assert tables.perf_events.height == 1
    assert [loss.reason for loss in tables.losses] == [reason]


def test_a_stack_of_a_hundred_thousand_frames_is_read(tmp_path: Path) -> None:
    path = tmp_path / "deep.txt"
    lines = b"".join(b"\t %x f (/bin/a)\n" % at for at in range(100_000))
    path.write_bytes(b"app 1 5.000001: 5 cpu-clock: \n" + lines + b"\n")
    assert read_file(path).stacks["depth"].max() == 100_000
