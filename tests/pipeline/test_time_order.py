"""Which order times have: what perf prints, what other options make of it, and files put together."""

from __future__ import annotations

from itertools import accumulate, pairwise

import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pipeline import time_order
from pipeline.time_order import Session, TimeOrder

MS = 1_000_000
START_NS = 840_099_479_047


def judge(times: list[int | None], cpus: list[int] | None = None, tids: list[int] | None = None) -> TimeOrder:
    columns = [None if one is None else pl.Series(one, dtype=pl.Int32) for one in (cpus, tids)]
    return time_order.judge(pl.Series(times, dtype=pl.Int64), *columns)


def recording(start_ns: int, rows: int, step_ns: int = MS) -> list[int | None]:
    return [start_ns + at * step_ns for at in range(rows)]


def test_nothing_has_no_order() -> None:
    assert judge([]).kind == judge([None, None]).kind == "untimed"


def test_perfs_own_times_are_ordered() -> None:
    assert judge(recording(START_NS, 100)) == TimeOrder("ordered")


def test_equal_times_are_in_order() -> None:
    assert judge([START_NS, START_NS, START_NS]).kind == "ordered"


def test_other_cpus_may_be_late() -> None:
    times = recording(START_NS, 100)
    times[40], times[41] = times[41], times[40]
    order = judge(times, cpus=[0] * 40 + [1] + [0] * 59)
    assert order == TimeOrder(
        "unordered", False, 1, 0, words="1 of 100 events are earlier than the one before them"
    )


def test_what_is_late_on_its_own_cpu_is_counted() -> None:
    times = recording(START_NS, 100)
    times[40], times[41] = times[41], times[40]
    assert judge(times, cpus=[0] * 100).steps_back_on_a_cpu == 1
    assert judge(times, tids=[7] * 100).steps_back_on_a_cpu == 1


def test_a_shuffled_file_is_one_recording() -> None:
    assert judge([START_NS + at * 7919 % 304 * MS for at in range(304)]).kind == "unordered"


# --reltime


def test_times_from_zero_are_relative() -> None:
    assert judge(recording(0, 50)) == TimeOrder("ordered", is_relative=True)


def test_a_zero_later_on_is_not() -> None:
    assert not judge([5, *recording(MS, 5)]).is_relative


# --deltatime

DELTAS_US = [
    0,
    3690,
    18,
    3979,
    8016,
    3975,
    7997,
    4033,
    1995,
    2023,
    2002,
    2022,
    1955,
    1984,
    2002,
    3267,
    1998,
    144,
]


def test_differences_between_events_are_no_times() -> None:
    order = judge([us * 1000 for us in DELTAS_US])
    assert (order.kind, order.is_relative) == ("deltas", True)
    assert order.words == "its times are differences between events, as perf script --deltatime prints them"


def test_a_few_of_them_are_enough() -> None:
    assert judge([0, 3690, 18, 3979]).kind == "deltas"


def test_their_beginning_may_be_cut_off() -> None:
    assert judge([us * 1000 for us in (DELTAS_US[2:] * 3)], cpus=[0] * 48).kind == "deltas"


@given(st.lists(st.integers(0, 10**7), min_size=20, max_size=300), st.data())
def test_differences_of_any_recording_are_told_from_its_times(
    steps_ns: list[int], data: st.DataObject
) -> None:
    cpus = data.draw(st.lists(st.integers(0, 3), min_size=len(steps_ns) + 1, max_size=len(steps_ns) + 1))
    backs = sum(after < before for before, after in pairwise(steps_ns))
    assume(backs * 5 >= len(steps_ns))
    assert judge([0, *steps_ns], cpus).kind == "deltas"
    relative = judge(list(accumulate([0, *steps_ns])), cpus)
    assert (relative.kind, relative.is_relative) == ("ordered", True)
    absolute = judge(list(accumulate([START_NS, *steps_ns])), cpus)
    assert (absolute.kind, absolute.is_relative) == ("ordered", False)


# two recordings in one file


def test_going_back_far_and_on_from_there_is_a_second_recording() -> None:
    order = judge([*recording(START_NS, 30), *recording(12_000_000_000, 5)])
    assert order == TimeOrder(
        "sessions",
        False,
        1,
        1,
        (Session(0, 30), Session(30, 5)),
        "it holds 2 recordings one behind the other",
    )


def test_a_short_recording_twice_is_two() -> None:
    once = recording(START_NS, 30, step_ns=100)  # 3 us in all
    assert judge(once + once).sessions == (Session(0, 30), Session(30, 30))


def test_relative_recordings_are_told_from_differences() -> None:
    order = judge(recording(0, 30) + recording(0, 20) + recording(0, 10))
    assert (order.kind, order.is_relative) == ("sessions", True)
    assert order.sessions == (Session(0, 30), Session(30, 20), Session(50, 10))
    assert judge([0, 1, 2, 0, 1, 2]).kind != "deltas"


def test_one_late_event_is_no_recording() -> None:
    times = recording(START_NS, 100, step_ns=50 * MS)
    times[60] = times[3]
    assert judge(times).kind == "unordered"
    times[60], times[99] = START_NS + 3_000_000_000, START_NS - MS
    assert judge(times).kind == "unordered"


def test_late_events_in_a_row_of_under_a_second_are_no_recording() -> None:
    times = recording(START_NS, 400)
    burst = times[100:120]
    assert judge(times[:100] + times[120:300] + burst + times[300:]).kind == "unordered"


def test_cpu_after_cpu_is_one_recording_in_another_order() -> None:
    times = recording(START_NS, 3000) * 2
    assert judge(times, cpus=[0] * 3000 + [1] * 3000).kind == "unordered"
    assert judge(times, cpus=[0, 1] * 3000).kind == "sessions"


def test_other_cpus_an_hour_before_are_another_recording() -> None:
    times = recording(START_NS, 30) + recording(START_NS - 3600 * 10**9, 30)
    assert judge(times, cpus=[0] * 30 + [1] * 30).sessions == (Session(0, 30), Session(30, 30))


def test_what_the_file_itself_says_counts_also_where_time_goes_on() -> None:
    times = pl.Series(recording(START_NS, 30) + recording(START_NS + 10**12, 10))
    order = time_order.judge(times, starts=[30], line_of={30: 412, 31: 7})
    assert order.sessions == (Session(0, 30), Session(30, 10, line=412))


def test_rows_without_times_keep_their_numbers() -> None:
    times = [None, *recording(START_NS, 20), None, *recording(5, 20), None]
    assert judge(times).sessions == (Session(0, 22), Session(22, 21))


@given(
    st.lists(st.tuples(st.integers(8, 60), st.integers(1, 10**6)), min_size=1, max_size=5),
    st.integers(10**10, 10**15),
)
def test_recordings_go_back_to_where_they_were_joined(parts: list[tuple[int, int]], start_ns: int) -> None:
    times: list[int | None] = []
    first_rows = []
    for number, (rows, step_ns) in enumerate(parts):
        first_rows.append(len(times))
        times += recording(start_ns - number * 10**9, rows, step_ns)
    assume(len(times) >= 10 * (len(parts) - 1))
    order = judge(times)
    if len(parts) == 1:
        assert order == TimeOrder("ordered")
    else:
        assert [one.first_row for one in order.sessions] == first_rows
        assert sum(one.rows for one in order.sessions) == len(times)


@given(st.lists(st.one_of(st.none(), st.integers(0, 1 << 62)), max_size=60))
def test_any_times_have_an_order(times: list[int | None]) -> None:
    order = judge(times, cpus=[0] * len(times))
    assert order.kind in time_order.KINDS
    if order.sessions:
        assert sum(one.rows for one in order.sessions) == len(times)
        assert len(order.sessions) > 1


@pytest.mark.parametrize("kind", time_order.KINDS)
def test_every_kind_can_be_reached(kind: str) -> None:
    examples = {
        "untimed": [],
        "ordered": recording(1, 3),
        "unordered": [2, 1, 3],
        "sessions": [5 * 10**9, 6 * 10**9, 1, 2],
        "deltas": [0, 2, 1],
    }
    assert judge(examples[kind]).kind == kind
