"""What perf's header lines say of clocks: lines written by hand, the corpus, and what perf prints here."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import perf_data_clocks, perf_header_clocks, perf_script
from collectors.source import Source
from pipeline.clock_domains import Domain, Reading, Snapshot, SourceClocks

REFERENCE = "2026-12-01 03:53:40.690226 = 1796097220.690226 (TOD) = 840.058400372 (monotonic)"
META = {
    "captured on": "Tue Dec  1 03:53:41 2026",
    "hostname": "web-1",
    "time of first sample": "840.099479",
    "time of last sample": "840.405520",
    "clockid frequency": "1000 MHz",
    "clockid": "monotonic (1)",
    "reference time": REFERENCE,
}


def snapshot(monotonic_uncertainty: int = 999, wall_uncertainty: int = 4_000) -> Snapshot:
    monotonic = Reading(Domain("monotonic", "web-1"), 840_058_400_372, monotonic_uncertainty)
    wall = Reading(Domain("realtime", "web-1"), 1_796_097_220_690_226_000, wall_uncertainty)
    return Snapshot((monotonic, wall), "run.txt: reference time")


def clocks(meta: dict[str, str], clock: str = "monotonic", resolution_ns: int = 1_000) -> SourceClocks:
    return perf_header_clocks.clocks_of(meta, "run.txt", clock, resolution_ns)


def test_the_reference_time_relates_the_clock_to_the_time_of_day() -> None:
    expected = SourceClocks(
        "run.txt", "monotonic", "web-1", "", (snapshot(),), None, 840_099_479_000, 840_405_520_000
    )
    assert clocks(META) == expected


def test_what_the_caller_knows_wins() -> None:
    found = perf_header_clocks.clocks_of(META, "run.txt", "monotonic", 1, host="db-2", boot_id="3f2a")
    assert found.domain == found.snapshots[0].readings[0].domain == Domain("monotonic", "db-2", "3f2a")


@pytest.mark.parametrize(("resolution_ns", "uncertainty"), [(1, 0), (1_000, 999), (1_000_000, 999_999)])
def test_digits_of_the_samples_that_are_not_printed_are_uncertain(
    resolution_ns: int, uncertainty: int
) -> None:
    assert clocks(META, resolution_ns=resolution_ns).snapshots == (snapshot(uncertainty),)


@pytest.mark.parametrize(
    ("reference", "uncertainties"),
    [
        ("x = 1796097220.690226 (TOD) = 840.058400 (monotonic)", (999, 4_000)),
        ("x = 1796097220.690 (TOD) = 840.058400372 (monotonic)", (0, 1_003_000)),
        (" = 1796097220.690226000 (TOD) = 840.058400372 (monotonic)", (0, 4_000)),
    ],
)
def test_digits_of_the_reference_that_are_not_printed_are_uncertain(
    reference: str, uncertainties: tuple[int, int]
) -> None:
    (found,) = clocks(META | {"reference time": reference}, resolution_ns=1).snapshots
    assert tuple(one.uncertainty for one in found.readings) == uncertainties


def test_a_coarse_clock_lags_by_up_to_a_step() -> None:
    # perf prints nanoseconds times 1000 and calls them MHz: steps of 4 ms are '4000000000 MHz'
    assert clocks(META | {"clockid frequency": "4000000000 MHz"}, resolution_ns=1).snapshots == (
        snapshot(3_999_999),
    )


@pytest.mark.parametrize(
    "told",
    [
        "",
        "disabled",
        "2026-12-01 = 1796097220 (TOD) = 840.058400372 (monotonic)",
        "x = 1796097220.690226 (TOD) = -1.5 (monotonic)",
        "x = 1796097220.690226 (TOD) = 840.058400372 (lamport)",
        "x = 99999999999999999999.1 (TOD) = 840.058400372 (monotonic)",
        REFERENCE[:-1],
        "\x1b[31m" + REFERENCE + " " * 500 + "x",
    ],
)
def test_a_line_that_is_not_understood_is_a_note(told: str) -> None:
    found = clocks(META | {"reference time": told})
    assert found.snapshots == ()
    (note,) = found.notes
    assert note.startswith("its header line is not understood: reference time: ")
    assert len(note) <= 200
    assert note.isprintable()


def test_a_time_of_a_sample_that_is_not_understood_is_a_note() -> None:
    found = clocks(META | {"time of first sample": "never"})
    assert (found.first, found.last) == (None, 840_405_520_000)
    assert found.notes == ("its header line is not understood: time of first sample: never",)


@given(st.dictionaries(st.sampled_from(sorted(META)), st.text(max_size=60)))
def test_any_text_in_any_line_is_survived(meta: dict[str, str]) -> None:
    found = clocks(META | meta, perf_header_clocks.clock_of(META | meta))
    assert all(one.value > 0 for one in found.snapshots for one in one.readings)


def test_without_header_there_is_only_the_clock() -> None:
    assert clocks({}, "perf") == SourceClocks("run.txt", "perf", is_assumed=True)


def test_the_wall_clock_beside_itself_relates_nothing() -> None:
    meta = META | {
        "clockid": "realtime (0)",
        "reference time": REFERENCE.replace("840.058400372 (monotonic", "1796097220.690228279 (realtime"),
    }
    assert clocks(meta, "realtime").snapshots == ()
    assert clocks(meta, "realtime").notes == ()


def test_times_that_count_from_their_own_beginning_keep_the_hosts_snapshot_and_say_so() -> None:
    found = clocks(META, "relative")
    assert str(found.domain) == "relative@run.txt"
    assert found.snapshots == (snapshot(0),)
    assert (found.first, found.last) == (None, None)
    assert found.notes == (
        "its times count from its own beginning, so the header's clock monotonic places none of them",
    )


def test_a_reference_that_is_about_another_clock_says_so() -> None:
    found = clocks(META | {"clockid": "boottime (7)"}, "boottime")
    assert found.snapshots == (snapshot(0),)
    assert found.notes == ("its reference time is about monotonic, which did not stamp it",)


@pytest.mark.parametrize(
    ("meta", "clock"),
    [
        ({}, "perf"),
        ({"clockid": "monotonic (1)"}, "monotonic"),
        ({"clockid": "monotonic_raw (4)"}, "monotonic_raw"),
        ({"clockid": "(not found) (2)"}, "relative"),
        ({"clockid": "rubbish"}, "relative"),
        # perf 4.1 to 5.8 says it only there, and leaves out what is 0
        ({"event": "name = cycles, , size = 112, use_clockid = 1, clockid = 1"}, "monotonic"),
        ({"event": "name = cycles, , size = 112, use_clockid = 1, ksymbol = 1"}, "realtime"),
        ({"event": "name = cycles, , size = 112, mmap2 = 1"}, "perf"),
    ],
)
def test_the_clock_of_a_text(meta: dict[str, str], clock: str) -> None:
    assert perf_header_clocks.clock_of(meta) == clock


@pytest.mark.parametrize(
    ("text", "data", "clock"),
    [
        ("mono", "mono", "monotonic"),
        ("raw", "raw", "monotonic_raw"),
        ("boottime", "boottime", "boottime"),
        ("realtime", "realtime", "realtime"),
    ],
)
def test_the_header_says_what_the_file_says(corpus: Path, text: str, data: str, clock: str) -> None:
    folder = corpus / "perf/local"
    with Source.open_path(str(folder / f"clockid_{text}.header_ns.txt")) as source:
        meta = perf_script.read(source).meta
    by_header = perf_header_clocks.clocks_of(meta, "run", clock, 1)
    by_file = perf_data_clocks.read(folder / f"perfdata/k_{data}.data", "run")
    assert by_header.clock == by_file.clock == perf_header_clocks.clock_of(meta) == clock
    assert [one.readings for one in by_header.snapshots] == [one.readings for one in by_file.snapshots]
    assert len(by_header.snapshots) == (clock != "realtime")
    assert by_header.host == by_file.host
    assert by_file.first is not None
    assert by_header.first == by_file.first // 1000 * 1000
