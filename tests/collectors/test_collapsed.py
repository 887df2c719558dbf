"""Collapsed stacks: every line's count lands on its stack, exactly; what is no stack is counted and located."""

from __future__ import annotations

import io
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import collapsed
from collectors.source import Source
from pipeline.errors import InputError
from pipeline.folds import Fold
from pipeline.losses import LossLedger
from pipeline.text import decode, encode


def fold_of(text: bytes) -> Fold:
    return collapsed.fold(Source("stacks", io.BytesIO(text)))


def counts(fold: Fold) -> dict[bytes, int]:
    """Return the folded lines again: stack -> count."""
    out: Counter[bytes] = Counter()
    for (event, comm, node), (samples, period) in fold.weights.items():
        assert (event, comm) == ("samples", "")
        assert samples == period
        out[encode(";".join(frame.symbol for frame in fold.trie.path(node)))] += samples
    return dict(out)


def losses(ledger: LossLedger) -> dict[str, tuple[int, int | None]]:
    return {loss.reason: (loss.count, loss.first_line) for loss in ledger.as_tuple()}


def test_equal_stacks_add_up() -> None:
    fold = fold_of(b"a;b;c 1\na;b;c 1\na;b;d 4\na;b;c 3\na;b 5")
    assert counts(fold) == {b"a;b;c": 5, b"a;b;d": 4, b"a;b": 5}
    assert fold.rows == 5
    assert fold.events["samples"].samples == 14
    assert not fold.events["samples"].has_period
    assert fold.is_folded
    assert losses(fold.losses) == {}


@pytest.mark.parametrize(
    ("line", "stack", "count"),
    [
        (b"app;<Vec<T> as SpecExtend<T, I>>::from_iter;memcpy@GLIBC_2.2.5 3", None, 3),
        (b"app;[T; _]::default 19", None, 19),
        (b"my app;a b c   12", b"my app;a b c", 12),
        (b"tabs;before\t7", b"tabs;before", 7),
        (b"a;b 5 \t", b"a;b", 5),
        (b"a;b 5\r", b"a;b", 5),
        (b"12345 90", b"12345", 90),
        (b"a;;b 2", None, 2),
        (b"caf\xc3\xa9;\xff\xfe 2", None, 2),
        (b"#pragma;omp 4", None, 4),
        (b"a 18446744073709551616", None, 2**64),
        (b"a 99999999999999999999999999999999999999", None, 10**38 - 1),
        (b"a;b 0", None, 0),
        (b"a;b 007", b"a;b", 7),
        (b"a;b 6.", b"a;b", 6),
        (b"a;b 6.000", b"a;b", 6),
    ],
)
def test_a_line_is_a_stack_and_its_last_number(line: bytes, stack: bytes | None, count: int) -> None:
    fold = fold_of(line + b"\n")
    assert counts(fold) == {line.rpartition(b" ")[0] if stack is None else stack: count}
    assert losses(fold.losses) == {}


def test_fractions_are_added_exactly_and_rounded_half_up_once() -> None:
    fold = fold_of(b"a;b 0.1\na;b .2\na;b 0.2\nc 1.49\nd 2\nd 0.25\nd 0.75\n")
    # 0.1 + 0.2 + 0.2 is a half, exactly; no binary fraction says so
    assert counts(fold) == {b"a;b": 1, b"c": 1, b"d": 3}
    assert losses(fold.losses) == {"rounded_weight": (2, None)}
    assert fold.losses.lost_rows == 0


def test_bad_lines_are_counted_and_located() -> None:
    fold = fold_of(b"# a comment 12\na;b 31\n\nNO COUNT AT ALL\na;b 12V.43\n17\na;b -5\na;b 1e5\na;b 4\n")
    assert counts(fold) == {b"a;b": 35}
    assert losses(fold.losses) == {"unreadable_line": (4, 4), "bad_weight": (1, 7)}
    assert fold.rows == 7
    assert fold.losses.lost_rows == 5


def test_a_count_of_a_thousand_digits_is_bad() -> None:
    fold = fold_of(b"a;b 1\na;b " + b"9" * 5000 + b"\n")
    assert counts(fold) == {b"a;b": 1}
    assert losses(fold.losses) == {"unreadable_line": (1, 2)}


def test_suffixes_tell_kinds_and_stay() -> None:
    fold = fold_of(b"java;run_[j];fast_[i];slow_[0];c1_[1];read_[k];[unknown] 3\n")
    (key,) = fold.weights
    assert [(frame.symbol, frame.kind) for frame in fold.trie.path(key[2])] == [
        ("java", "user"),
        ("run_[j]", "jit"),
        ("fast_[i]", "inlined"),
        ("slow_[0]", "jit"),
        ("c1_[1]", "jit"),
        ("read_[k]", "kernel"),
        ("[unknown]", "user"),
    ]


@pytest.mark.parametrize("text", [b"a;b 10 20\n", b"a;b 10 20\nc;d 0 7", b"a;b 1.5 2\n\nx 3 3\nc;d 4 5\n"])
def test_a_differential_is_refused_by_name(text: bytes) -> None:
    with pytest.raises(InputError, match=r"^stacks: two counts per line: this is a differential"):
        fold_of(text)


def test_a_name_that_ends_in_a_number_makes_no_differential() -> None:
    fold = fold_of(b"main;worker 3 10\nmain;idle 5\n")
    assert counts(fold) == {b"main;worker 3": 10, b"main;idle": 5}


@given(
    st.lists(
        st.tuples(
            st.lists(
                st.binary(min_size=1, max_size=6).filter(
                    lambda raw: raw.strip() == raw and not set(raw) & set(b";\n\r") and raw[:1] != b"#"
                ),
                min_size=1,
                max_size=6,
            ).map(b";".join),
            st.integers(0, 10**20),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_folded_to_trie_to_folded_is_the_identity(lines: list[tuple[bytes, int]]) -> None:
    expected: Counter[bytes] = Counter()
    for stack, count in lines:
        expected[stack] += count
    text = b"start;here 1\n" + b"".join(b"%s %d\n" % line for line in lines)
    expected[b"start;here"] += 1
    # a UTF-16 or CRLF look-alike would be decoded first: that is not what this is about
    source = Source("stacks", io.BytesIO(text))
    fold = collapsed.fold(source)
    assert source.notes == []
    assert counts(fold) == dict(expected)


@given(st.lists(st.decimals(0, 10**6, places=3), min_size=1, max_size=20))
def test_rounding_is_half_up_of_the_exact_sum(amounts: list[object]) -> None:
    fold = fold_of(b"x;y 0\n" + b"".join(f"a;b {amount}\n".encode() for amount in amounts))
    exact = sum((Fraction(str(amount)) for amount in amounts), Fraction(0))
    assert counts(fold)[b"a;b"] == (2 * exact + 1).__floor__() // 2


@pytest.mark.parametrize(
    ("head", "answer"),
    [
        (b"a;b;c 12\n", True),
        (b"a;b;c 12", None),  # the number may go on
        (b"# austin: 3.3.0\n# mode: wall\n\nP1;T1;f:3 10\n", True),
        (b"main 3\nidle 4\nother 5\n", True),
        (b"main 3\n", None),
        (b"\n\nthis\nis an unknown\nformat\n", None),
        (b"words without any number\n" * 40, False),
        (b"1 2 3\n4 5 6\n" * 10, None),
        (b"not this\na;b 1\nc;d 2\n", True),
    ],
)
def test_sniff(head: bytes, answer: bool | None) -> None:
    assert collapsed.sniff(head) is answer


def test_a_single_name_with_a_count_is_told_by_the_whole_text() -> None:
    assert collapsed.holds_only_stacks(b"main 12")
    assert not collapsed.holds_only_stacks(b"total 48\ndrwxr-xr-x root\n")
    assert not collapsed.holds_only_stacks(b"")


def test_names_keep_odd_bytes() -> None:
    fold = fold_of(b"\xffname;b 1\n")
    (key,) = fold.weights
    assert fold.trie.path(key[2])[0].symbol == decode(b"\xffname")
