"""What a sample stands for, and which event CPU time comes from."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from pipeline import cpu_time, schema


def events(*rows: dict[str, Any]) -> pl.DataFrame:
    base: dict[str, Any] = dict.fromkeys(schema.PERF_EVENTS.names())
    base |= {"cpu": 0, "tid": 1, "event": "cycles", "clock": "perf", "stack_id": 0}
    return pl.DataFrame([base | row for row in rows], schema=schema.PERF_EVENTS)


def spans(table: pl.DataFrame) -> list[tuple[int, int]]:
    return list(zip(table["raw_start"], table["raw_end"], strict=True))


@pytest.mark.parametrize("event", ["cpu-clock", "cpu-clock:u", "task-clock:uhH"])
def test_a_clock_sample_stands_for_its_period(event: str) -> None:
    table = cpu_time.intervals(events({"event": event, "period": 250, "raw_time": 1000}), event)
    assert spans(table) == [(750, 1000)]
    assert (table["kind"][0], table["events"][0], table["period"][0]) == ("cpu", 1, 250)


def test_other_events_stand_for_the_gap_up_to_the_nominal_interval() -> None:
    times = [100, 110, 120, 500]  # the median gap is 10
    table = cpu_time.intervals(events(*({"raw_time": at, "period": 7} for at in times)), "cycles")
    assert spans(table) == [(90, 100), (100, 110), (110, 120), (490, 500)]
    known = cpu_time.intervals(events(*({"raw_time": at} for at in times)), "cycles", nominal_ns=50)
    assert spans(known)[-1] == (450, 500)


def test_gaps_are_told_by_cpu_and_thread() -> None:
    rows = [
        {"raw_time": at, "cpu": cpu, "tid": tid}
        for at, cpu, tid in [(100, 0, 1), (101, 1, 2), (110, 0, 1), (113, 1, 2)]
    ]
    assert spans(cpu_time.intervals(events(*rows), "cycles"))[2:] == [(100, 110), (103, 113)]


@pytest.mark.parametrize(
    ("counts", "default", "asked", "chosen"),
    [
        ({"cpu-clock": 1}, "cpu-clock", None, "cpu-clock"),
        (
            {"sched:sched_switch": 9, "page-faults": 4, "cpu-clock:u": 1},
            "sched:sched_switch",
            None,
            "cpu-clock:u",
        ),
        ({"page-faults": 4, "cpu_core/cycles/": 1}, "page-faults", None, "cpu_core/cycles/"),
        ({"page-faults": 4, "context-switches": 2}, "page-faults", None, None),
        ({"cycles": 4, "cpu-clock": 2}, "cycles", "cpu-clock", "cpu-clock"),
        ({"cycles": 4}, "cycles", "instructions", None),
        ({"instructions": 4}, "instructions", None, None),
    ],
)
def test_the_event_of_cpu_time(
    counts: dict[str, int], default: str, asked: str | None, chosen: str | None
) -> None:
    assert cpu_time.choose(counts, default, asked) == chosen
