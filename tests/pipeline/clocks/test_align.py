"""Where sources lie on one timeline, and what is said, assumed or refused on the way."""

from __future__ import annotations

import polars as pl
import pytest

from pipeline.align import Alignment, align
from pipeline.clock_assumptions import Told
from pipeline.clock_domains import RELATIVE, SESSION, Domain, Reading, Snapshot, SourceClocks, TimeConversion
from pipeline.errors import InputError

SECOND = 1_000_000_000
WALL = 1_796_000_000 * SECOND
HOST = {"host": "web-1", "boot_id": "b1"}


def domain(clock: str, host: str = "web-1", boot_id: str = "b1") -> Domain:
    return Domain(clock, host, boot_id)


def snapshots(*clocks: tuple[str, int], count: int = 5, first: int = 0) -> tuple[Snapshot, ...]:
    """Return a snapshot a second, of monotonic and of clocks that are ahead of it by so much."""
    made = []
    for number in range(first, first + count):
        now = number * SECOND
        readings = [Reading(domain("monotonic"), now)]
        readings += [Reading(domain(clock), now + ahead, 50) for clock, ahead in clocks]
        made.append(Snapshot(tuple(readings), f"clocks.jsonl: snapshot {number}"))
    return tuple(made)


def source(name: str, clock: str, first: int = 0, last: int = 4 * SECOND, **more: object) -> SourceClocks:
    return SourceClocks(name, clock, first=first, last=last, **{**HOST, **more})  # type: ignore[arg-type]


def on_timeline(alignment: Alignment, number: int, *values: int) -> list[int]:
    return alignment.sources[number].to_timeline(pl.Series(values, dtype=pl.Int64)).values.to_list()


def test_sources_on_one_clock_stay_as_they_are() -> None:
    found = align([source("a.txt", "perf"), source("b.txt", "perf", 7)])
    assert found.timeline == domain("perf")
    assert on_timeline(found, 1, 7) == [7]
    assert found.uncertainty_ns == 0
    found.check(100_000)


def test_perf_and_monotonic_without_anchors_are_refused_with_the_way_out() -> None:
    found = align([source("a.txt", "perf"), source("b.txt", "monotonic")])
    with pytest.raises(InputError, match="nothing relates perf@web-1/b1 to monotonic@web-1/b1") as refused:
        found.check(100_000)
    assert refused.value.path == "a.txt"
    assert "--anchor" in refused.value.remedy


def test_snapshots_place_perf_and_wall_clock_on_ktime() -> None:
    marks = snapshots(("perf", 1_250_000), ("realtime", WALL))
    sources = [
        source("a.txt", "perf", snapshots=marks),
        source("b.txt", "monotonic"),
        source("c.json", "realtime", WALL, WALL + SECOND),
    ]
    found = align(sources)
    assert found.timeline == domain("monotonic")
    assert on_timeline(found, 0, 1_250_000 + 17) == [17]
    assert on_timeline(found, 2, WALL + 99) == [99]
    found.check(100_000)
    assert 0 < found.uncertainty_ns < 1_000


def test_a_join_that_is_less_certain_than_a_slice_is_refused_with_the_numbers() -> None:
    lone = snapshots(("perf", 0), count=1)
    found = align([source("a.txt", "perf", snapshots=lone), source("b.txt", "monotonic")])
    # one anchor, up to 4 s away, at NTP's 500 ppm
    with pytest.raises(
        InputError, match=r"a.txt \(\+-2000050 ns\) and .* 2000050 ns apart, .* slice of 100000 ns"
    ):
        found.check(100_000)
    found.check(100_000, is_accepted=True)
    found.check(10_000_000)


def test_a_late_snapshot_changes_the_hash_and_the_answer_but_no_data() -> None:
    sources = [
        source("a.txt", "perf", snapshots=snapshots(("perf", 500), count=1)),
        source("b.txt", "monotonic"),
    ]
    before = align(sources)
    late = align(sources, extra=snapshots(("perf", 500), count=1, first=4))
    assert before.digest != late.digest
    assert late.uncertainty_ns < before.uncertainty_ns
    assert align(sources).digest == before.digest


def test_the_tsc_goes_through_perfs_own_conversion_to_ktime() -> None:
    sources = [
        source("trace.txt", "tsc", 2_000, 9_200_000_000),
        source("perf.data", "perf", conversion=TimeConversion(1, 1, 0), snapshots=snapshots(("perf", 10))),
        source("b.txt", "monotonic"),
    ]
    found = align(sources)
    assert on_timeline(found, 0, 2_000) == [990]
    assert any("constant rate" in words for words in found.assumptions)


def test_a_tsc_that_nothing_ties_is_refused() -> None:
    found = align([source("trace.txt", "tsc")])
    with pytest.raises(InputError, match="nothing relates tsc@web-1/b1 to monotonic"):
        found.check(100_000)


# what no clock says


def test_a_relative_source_alone_has_its_own_axis() -> None:
    found = align([SourceClocks("spy.json", RELATIVE, first=0, last=SECOND)])
    assert str(found.timeline) == "relative@spy.json"
    found.check(100_000)


def test_a_relative_source_beside_others_needs_an_offset() -> None:
    sources = [
        source("a.txt", "monotonic", 5 * SECOND),
        SourceClocks("spy.json", RELATIVE, first=0, last=SECOND),
    ]
    with pytest.raises(InputError, match="count from its own start") as refused:
        align(sources).check(100_000)
    assert "--offset spy.json=" in refused.value.remedy
    placed = align(sources, Told(offsets_ns={"spy.json": 1_500_000}))
    placed.check(100_000)
    assert on_timeline(placed, 1, 0, 7) == [5 * SECOND + 1_500_000, 5 * SECOND + 1_500_007]
    assert any("--offset" in words for words in placed.assumptions)


def test_a_wall_start_places_a_relative_source() -> None:
    sources = [
        source("a.txt", "monotonic", snapshots=snapshots(("realtime", WALL))),
        SourceClocks("spy.json", RELATIVE, first=0, last=SECOND),
    ]
    placed = align(sources, Told(wall_starts={"spy.json": (WALL + 2 * SECOND, 500)}))
    placed.check(100_000)
    assert on_timeline(placed, 1, 5) == [2 * SECOND + 5]
    assert placed.sources[1].uncertainty_ns >= 500


def test_users_name_clocks_and_anchors() -> None:
    sources = [source("a.txt", "perf", 0, 10), source("b.txt", "monotonic", 0, 10)]
    told = Told(anchors=((("perf", 100), ("monotonic", 40)), (("perf", 2_100), ("monotonic", 2_040))))
    found = align(sources, told)
    assert on_timeline(found, 0, 100, 1_100) == [40, 1_040]
    assert len(found.assumptions) == 2
    assert align(sources, Told(clocks={"a.txt": "monotonic"})).timeline == domain("monotonic")
    with pytest.raises(InputError, match="'perf@db-1' is no clock here"):
        align(sources, Told(anchors=((("perf@db-1", 1), ("monotonic", 1)),)))


def test_a_file_that_names_no_host_is_taken_for_the_only_one_and_that_is_said() -> None:
    found = align([SourceClocks("a.txt", "monotonic", first=0, last=1), source("b.txt", "monotonic")])
    assert found.timeline == domain("monotonic")
    assert "a.txt names no host: taken to be web-1, like what came with it" in found.assumptions


def test_two_hosts_are_not_the_same_clock() -> None:
    sources = [source("a.txt", "realtime", WALL, WALL), source("b.txt", "realtime", WALL, WALL, host="db-1")]
    with pytest.raises(InputError, match="nothing relates"):
        align(sources).check(100_000)
    agreed = align(sources, Told(wall_clocks_within_ns=40_000))
    agreed.check(100_000)
    assert agreed.uncertainty_ns >= 40_000
    assert any("agree within 40000 ns" in words for words in agreed.assumptions)


# what clocks do


def with_readings(clock: str, values: list[tuple[int, int]]) -> list[SourceClocks]:
    made = tuple(
        Snapshot((Reading(domain("monotonic"), at), Reading(domain(clock), value, 50)), f"snapshot {number}")
        for number, (at, value) in enumerate(values)
    )
    return [source("a.txt", clock, values[0][1], values[0][1], snapshots=made), source("b.txt", "monotonic")]


def seconds(count: int) -> range:
    return range(0, count * SECOND, SECOND)


def test_a_step_of_the_wall_clock_is_said_and_handled_on_both_sides() -> None:
    found = align(
        with_readings("realtime", [(at, WALL + at + (at > 3 * SECOND) * SECOND) for at in seconds(8)])
    )
    assert found.warnings == (
        f"realtime@web-1/b1: was set forward by {SECOND} ns between monotonic {3 * SECOND} and {4 * SECOND}",
    )
    assert on_timeline(found, 0, WALL + SECOND, WALL + 6 * SECOND) == [SECOND, 5 * SECOND]


def test_a_clock_set_back_is_said() -> None:
    found = align(
        with_readings("realtime", [(at, WALL + at - (at > 3 * SECOND) * SECOND) for at in seconds(8)])
    )
    assert "was set back by 1000000000 ns" in found.warnings[0]
    assert on_timeline(found, 0, WALL + SECOND, WALL + 6 * SECOND) == [SECOND, 7 * SECOND]


def test_a_suspend_is_told_from_a_step() -> None:
    found = align(
        with_readings("boottime", [(at, at + (at > 3 * SECOND) * 60 * SECOND) for at in seconds(8)])
    )
    assert "the host was suspended for 60000000000 ns" in found.warnings[0]
    assert on_timeline(found, 0, 66 * SECOND) == [6 * SECOND]


def test_a_reset_of_the_tsc_is_said_and_both_sides_convert() -> None:
    old = 9_000_000 * SECOND
    found = align(
        with_readings("tsc", [(at, 2 * at + (old if at < 4 * SECOND else -7 * SECOND)) for at in seconds(8)])
    )
    assert "tsc@web-1/b1: was reset or stood still" in found.warnings[0]
    assert on_timeline(found, 0, old + 2 * SECOND, 5 * SECOND) == [SECOND, 6 * SECOND]


def test_a_smeared_leap_second_is_followed_and_said() -> None:
    # raw runs on; the timekeeper is slowed by 11.574 ppm from 100 s on
    values = [(s * SECOND - max(0, s - 100) * 11_574, s * SECOND) for s in range(0, 200, 5)]
    found = align(with_readings("monotonic_raw", values))
    assert "changes by 11.6 ppm" in found.warnings[0] or "changes by 11.5 ppm" in found.warnings[0]
    raw = 150 * SECOND
    assert on_timeline(found, 0, raw) == [raw - 50 * 11_574]


def test_a_reboot_is_said_and_its_clock_is_another_one() -> None:
    before = [(at, WALL + at) for at in range(100 * SECOND, 104 * SECOND, SECOND)]
    after = [(at, WALL + 500 * SECOND + at) for at in seconds(4)]
    found = align(with_readings("realtime", [*before, *after])[:1])
    assert any("the host was booted in between" in words for words in found.warnings)
    assert not any("was set" in words for words in found.warnings)


def test_a_contradicting_snapshot_is_named() -> None:
    values = [(at, WALL + at + (at == 3 * SECOND) * 5_000_000) for at in seconds(8)]
    found = align(with_readings("realtime", values))
    assert found.warnings == ("snapshot 3: realtime@web-1/b1 contradicts its neighbours and is left out",)


def session(name: str, wall_at_start: int) -> SourceClocks:
    start = Reading(Domain(SESSION, name), 0)
    wall = Reading(domain("realtime"), wall_at_start, 1_000)
    return source(name, SESSION, snapshots=(Snapshot((start, wall), name),))


def test_sessions_of_one_host_are_clocks_of_their_own() -> None:
    alignment = align([session("a.sqlite", WALL), session("b.sqlite", WALL + 7)])
    assert alignment.timeline == domain("realtime")
    assert [on_timeline(alignment, number, 0, 5) for number in (0, 1)] == [
        [WALL, WALL + 5],
        [WALL + 7, WALL + 12],
    ]


def test_a_session_is_as_sure_as_its_start_and_its_hosts_clock() -> None:
    alignment = align([session("a.sqlite", WALL), source("spans.json", "realtime", WALL, WALL + 1)])
    # 4 s after the start, at the 500 ppm by which NTP may slew: 2 ms
    assert 2_001_000 <= alignment.sources[0].uncertainty_ns <= 2_011_000


def test_a_session_without_a_boot_is_moved_with_its_wall_clock_and_stays_its_own() -> None:
    lone = session("a.sqlite", WALL)
    alignment = align([lone, source("run.txt", "monotonic", snapshots=snapshots(("realtime", WALL)))])
    assert alignment.sources[0].domain == Domain(SESSION, "a.sqlite")
    assert on_timeline(alignment, 0, 3) == [3]
