"""Anchors found in the data: the same context switches in two files, and requests between two hosts."""

from __future__ import annotations

import random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import clock_policy, schema
from pipeline.clock_domains import Domain, Reading
from pipeline.clocks import ClockGraph
from pipeline.event_anchors import Switches, apart, request_pairs, requests, same_switches

PERF, MONOTONIC, TSC = (Domain(clock, "web-1") for clock in ("perf", "monotonic", "tsc"))
SECOND = 1_000_000_000


def switches(rows: list[tuple[int, int, int, int]], clock: str) -> pl.DataFrame:
    """Return sched_switch rows of (cpu, time, prev, next)."""
    table = pl.DataFrame(
        {
            "cpu": [row[0] for row in rows],
            "raw_time": [row[1] for row in rows],
            "args": [
                f"prev_comm=a prev_pid={row[2]} prev_state=S ==> next_comm=b next_pid={row[3]} next_prio=120"
                for row in rows
            ],
        },
        schema_overrides={"cpu": pl.Int32, "raw_time": pl.Int64},
    ).with_columns(event=pl.lit("sched:sched_switch"), clock=pl.lit(clock))
    missing = {name: dtype for name, dtype in schema.PERF_EVENTS.items() if name not in table.columns}
    return table.with_columns(pl.lit(None, dtype).alias(name) for name, dtype in missing.items())


def a_run(seed: int, count: int = 2000) -> list[tuple[int, int, int, int]]:
    """Return switches of two CPUs at irregular times, as a machine with some forty threads makes them."""
    rng = random.Random(seed)
    now, running, rows = 5 * SECOND, [0, 0], []
    for _ in range(count):
        now += rng.randint(2_000, 4_000_000)
        cpu = rng.randrange(2)
        following = rng.choice([thread for thread in range(40) if thread not in running] + [0])
        rows.append((cpu, now, running[cpu], following))
        running[cpu] = following
    return rows


@pytest.mark.parametrize(
    ("domain", "rate", "ahead"), [(MONOTONIC, 1.0000004, -1_761_745), (TSC, 2.596134, 9 * 10**13)]
)
def test_two_tracers_of_one_run_are_tied(domain: Domain, rate: float, ahead: int) -> None:
    rows = a_run(1)
    rng = random.Random(2)
    other = [
        (cpu, round(time * rate) + ahead + rng.randint(0, 700), prev, following)
        for cpu, time, prev, following in rows[100:]  # it began later
        if rng.random() > 0.02  # and lost some
    ]
    found = same_switches(
        Switches("a.txt", PERF, switches(rows, "perf")),
        Switches("b.txt", domain, switches(other, domain.clock)),
    )
    assert len(found) > 50
    (edge,) = clock_policy.edges_of(found)
    assert edge.known.dropped == ()  # type: ignore[union-attr]
    graph = ClockGraph([edge])
    middle = rows[1000][1]
    converted = graph.convert_one(middle, PERF, domain)
    assert converted is not None
    assert abs(converted[0] - (round(middle * rate) + ahead)) <= converted[1] < 10_000


def test_two_runs_are_not_tied() -> None:
    one, other = (Switches(name, PERF, switches(a_run(seed), "perf")) for name, seed in (("a", 1), ("b", 7)))
    assert same_switches(one, Switches("b", MONOTONIC, other.events)) == []
    assert apart(one, other) is None


def test_a_machine_that_only_idles_is_not_tied_by_chance() -> None:
    """Two threads that take turns look alike everywhere, so nothing is unmistakable."""
    turns = [(0, 1_000_000 * n, 5 * (n % 2), 5 - 5 * (n % 2)) for n in range(3000)]
    shifted = [(cpu, time + 77_000_000, prev, following) for cpu, time, prev, following in turns]
    found = same_switches(
        Switches("a", PERF, switches(turns, "perf")), Switches("b", MONOTONIC, switches(shifted, "monotonic"))
    )
    assert found == []


def test_two_clocks_that_pass_for_one_are_told() -> None:
    rows = a_run(3)
    late = [(cpu, time + 1_247_388, prev, following) for cpu, time, prev, following in rows]
    one, other = Switches("a", PERF, switches(rows, "perf")), Switches("b", PERF, switches(late, "perf"))
    assert apart(one, other) == 1_247_388
    assert apart(one, one) == 0


# requests between hosts

CLIENT, SERVER = Domain("realtime", "web-1"), Domain("realtime", "gpu-1")


def test_a_request_by_hand() -> None:
    # sent at 1000, back at 1100; the server says 5020 to 5060: in the middle it was 5040, +-(100 - 40) / 2 and rounding
    (found,) = requests(CLIENT, SERVER, [(1000, 1100, 5020, 5060)])
    assert found.readings == (Reading(CLIENT, 1050), Reading(SERVER, 5040, 32))


def test_a_server_span_that_outlives_its_client_bounds_nothing() -> None:
    assert requests(CLIENT, SERVER, [(1000, 1100, 5000, 5900), (1100, 1000, 5, 6), (1000, 1100, 6, 5)]) == []


@given(st.data())
def test_the_true_offset_is_inside_the_bound(data: st.DataObject) -> None:
    """Whatever the delays: asymmetric, long, with clocks 50 ppm apart."""
    offset = data.draw(st.integers(-(10**15), 10**15))
    ppm = data.draw(st.integers(-50, 50))

    def server(now: int) -> int:
        return now + offset + now * ppm // 1_000_000

    spans, worst_trip, now = [], 0, data.draw(st.integers(0, 10**12))
    for _ in range(data.draw(st.integers(1, 10))):
        there, work, back = (data.draw(st.integers(0, 50_000_000)) for _ in range(3))
        spans.append((now, now + there + work + back, server(now + there), server(now + there + work)))
        worst_trip = max(worst_trip, there + back)
        now += there + work + back + data.draw(st.integers(1, SECOND))
    (edge,) = clock_policy.edges_of(requests(CLIENT, SERVER, spans))
    graph = ClockGraph([edge])
    for sent, *_ in spans:
        converted = graph.convert_one(sent, CLIENT, SERVER)
        assert converted is not None
        assert abs(converted[0] - server(sent)) <= converted[1] + 1


def test_pairs_are_found_in_a_table_of_spans() -> None:
    table = pl.DataFrame(
        {
            "trace_id": ["t", "t", "t", "u"],
            "span_id": ["1", "2", "3", "2"],
            "parent_id": [None, "1", "1", "1"],
            "kind": ["client", "server", "server", "server"],
            "host": ["web-1", "gpu-1", "web-1", "gpu-1"],
            "raw_start": [10, 520, 12, 7],
            "raw_end": [90, 560, 13, 8],
        }
    )
    assert request_pairs(table) == {("web-1", "gpu-1"): [(10, 90, 520, 560)]}
