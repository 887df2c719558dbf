"""`flameslice clocks`, and slices over several inputs."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

SECOND = 1_000_000_000
HEADER = "# hostname : web-1\n# event : name = cpu-clock, use_clockid = 1, clockid = 1\n"
MONOTONIC = HEADER + (
    "# clockid: monotonic (1)\n"
    "# reference time: 2026-12-01 03:53:40.690226 = 1796097220.690226 (TOD) = 840.000000000 (monotonic)\n"
)
WALL_AT_841_NS = 1_796_097_221_690_226_000


def sample(time_ns: int, comm: str = "a", event: str = "cpu-clock") -> str:
    seconds, ns = divmod(time_ns, SECOND)
    return f"{comm} 7/7 [000] {seconds}.{ns:09d}:    1000 {event}: \n\t401000 main+0x1 (/bin/a)\n\n"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    texts = {
        "mono.txt": MONOTONIC + "".join(sample(841 * SECOND + n * 50_000) for n in range(40)),
        "perf.txt": "# hostname : web-1\n# event : name = cpu-clock, freq = 1\n"
        + "".join(sample(900 * SECOND + n * 50_000, "b") for n in range(40)),
        "plain.txt": "".join(sample(900 * SECOND + n * 50_000, "c") for n in range(40)),
        "relative.txt": "".join(sample(n * 50_000, "d") for n in range(40)),
        "deltas.txt": "".join(sample((n % 3) * 5_000, "e") for n in range(40)),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return {name: tmp_path / name for name in texts}


def sliced(stdout: bytes) -> pl.DataFrame:
    return pl.read_csv(io.BytesIO(stdout))


def test_one_time_is_converted_and_its_uncertainty_said(run_cli: Any, files: dict[str, Path]) -> None:
    ran = run_cli("clocks", files["mono.txt"], "--convert", "monotonic:841000000000", "--to", "realtime")
    value, uncertainty = ran.stdout.decode().split(" +-")
    assert int(value) == WALL_AT_841_NS
    assert 3_000 <= int(uncertainty) <= 6_000  # the pair is read one after the other, in whole microseconds
    back = run_cli("clocks", files["mono.txt"], "--convert", f"realtime:{value}", "--to", "mono")
    assert back.stdout.decode().startswith("841000000000 +-")
    body = json.loads(
        run_cli("clocks", files["mono.txt"], "--convert", "monotonic:0", "--to", "monotonic", "--json").stdout
    )
    assert body == {"schema_version": "1.0", "value": 0, "uncertainty": 0, "unit": "ns"}


def test_the_graph_is_shown_and_says_the_same_as_json(run_cli: Any, files: dict[str, Path]) -> None:
    ran = run_cli("clocks", files["mono.txt"], files["plain.txt"])
    text = ran.stdout.decode()
    assert "monotonic@web-1 -> realtime@web-1" in text
    assert "names no host: taken to be web-1" in text
    assert "plain.txt names no clock: taken to be perf" in text
    assert "not placed: nothing relates perf@web-1 to monotonic@web-1" in text
    body = json.loads(run_cli("clocks", files["mono.txt"], files["plain.txt"], "--json").stdout)
    assert body["schema_version"] == "1.0"
    assert [source["uncertainty_ns"] for source in body["sources"]] == [0, None]
    assert body["relations"][0]["anchors"] == 1
    assert body["graph"] in text


def test_slices_of_two_inputs_need_a_relation_and_take_the_users(
    run_cli: Any, files: dict[str, Path]
) -> None:
    inputs = (files["mono.txt"], files["perf.txt"])
    refused = run_cli("slices", *inputs)
    assert refused.status == 1
    assert "nothing relates perf@web-1 to monotonic@web-1" in refused.stderr
    assert "--anchor" in refused.stderr
    # perf's clock is 59 s ahead
    anchors = ("--anchor", f"perf:{900 * SECOND}=monotonic:{841 * SECOND}")
    anchors += ("--anchor", f"perf:{901 * SECOND}=monotonic:{842 * SECOND}")
    ran = run_cli("slices", *inputs, *anchors)
    assert ran.status == 0
    table = sliced(ran.stdout)
    assert table["start_ns"].min() == 841 * SECOND - 100_000
    assert "clock graph" in ran.stderr
    assert "as --anchor says" in ran.stderr
    # the time of one thread counts once, by the first that shows it
    assert "40 intervals of " in ran.stderr
    assert table["busy_ns"].sum() == 40 * 1000


def test_a_wide_bound_is_refused_with_the_numbers_unless_accepted(
    run_cli: Any, files: dict[str, Path]
) -> None:
    inputs = (files["mono.txt"], files["perf.txt"])
    lone = ("--anchor", f"perf:{800 * SECOND}=monotonic:{741 * SECOND}")
    refused = run_cli("slices", *inputs, *lone)
    assert refused.status == 1
    assert "more than a slice of 100000 ns" in refused.stderr
    ran = run_cli("slices", *inputs, *lone, "--accept-uncertainty")
    assert ran.status == 0
    assert "+-50" in ran.stderr  # 100 s at 500 ppm


def test_relative_times_alone_have_their_own_axis_and_beside_others_need_an_offset(
    run_cli: Any, files: dict[str, Path]
) -> None:
    alone = run_cli("slices", files["relative.txt"])
    assert alone.status == 0
    assert sliced(alone.stdout)["start_ns"].min() in (-100_000, 0)
    assert "relative@" in run_cli("clocks", files["relative.txt"]).stdout.decode()
    inputs = (files["mono.txt"], files["relative.txt"])
    refused = run_cli("slices", *inputs)
    assert refused.status == 1
    assert "--offset" in refused.stderr
    placed = run_cli("slices", *inputs, "--offset", "relative.txt=+1ms", "--event", "cpu-clock")
    assert placed.status == 0
    assert "begins 1000000 ns after the first event of the others" in placed.stderr


def test_differences_are_refused_and_wall_clock_ranges_are_found(
    run_cli: Any, files: dict[str, Path]
) -> None:
    refused = run_cli("slices", files["deltas.txt"])
    assert refused.status == 1
    assert "--deltatime" in refused.stderr
    ran = run_cli("slices", files["mono.txt"], "--from", "03:53:41.691226")  # 1 ms after the first
    assert sliced(ran.stdout)["start_ns"].min() == 841 * SECOND + 1_000_000
    folded = ("flamegraph", "--format", "folded", "--weight", "samples", files["mono.txt"])
    later = run_cli(*folded, "--from", "2026-12-01T03:53:41.691226Z")
    assert later.stdout == b"a;main 20\n"
    unknown = run_cli("slices", files["perf.txt"], "--from", "03:53:41")
    assert unknown.status == 2
    assert "nothing ties this capture to the wall clock" in unknown.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--convert", "monotonic:1"), "belong together"),
        (("--convert", "mono", "--to", "tsc"), "is no time of a clock"),
        (("--convert", "sundial:1", "--to", "tsc"), "is no clock"),
        (("--convert", "monotonic:99999999999999999999", "--to", "perf"), "does not fit 64 bits"),
        (("--anchor", "perf:1"), "is no pair"),
        (("--offset", "other.txt=1ms"), "names no input"),
        (("--offset", "mono.txt=soon"), "is not a time"),
        (("--wall-start", "mono.txt=5"), "is no instant"),
        (("--clock", "sundial"), "is no clock"),
        (("--wall-clocks-within", "0"), "is not a duration"),
    ],
)
def test_wrong_words_are_told_in_one_line(
    run_cli: Any, files: dict[str, Path], options: tuple[str, ...], words: str
) -> None:
    ran = run_cli("clocks", files["mono.txt"], *options)
    assert ran.status == 2
    assert words in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_a_stored_capture_says_the_same_of_its_clocks(
    run_cli: Any, files: dict[str, Path], tmp_path: Path
) -> None:
    data = ("--data", tmp_path / "data")
    run_cli("ingest", files["mono.txt"], files["relative.txt"], "--capture", "both", *data)
    text = run_cli("clocks", "both", *data).stdout.decode()
    assert "both/mono.txt: monotonic@web-1" in text
    assert "both/relative.txt: relative@both/relative.txt" in text
    refused = run_cli("slices", "both", *data)
    assert refused.status == 1
    assert "--offset" in refused.stderr
    placed = run_cli("slices", "both", *data, "--offset", "both/relative.txt=0ms")
    assert placed.status == 0
    folded = ("flamegraph", "both", "--format", "folded", "--weight", "samples", *data)
    mixed = run_cli(*folded, "--from", "1ms")
    assert (mixed.status, "on different clocks" in mixed.stderr) == (1, True)
    by_wall = ("--source", "mono.txt", "--from", "2026-12-01T03:53:41.691226Z")
    assert run_cli(*folded, *by_wall).stdout == b"a;main 20\n"
    alone = run_cli("slices", "both", "--source", "mono.txt", *data)
    assert alone.stdout == run_cli("slices", files["mono.txt"]).stdout


def test_a_perf_data_that_the_installed_perf_cannot_read_still_shows_its_clocks(
    run_cli: Any, files: dict[str, Path], corpus: Path
) -> None:
    newer = corpus / "perf/perfdata/hotspot/perf.data.PerfFormatLost"  # perf 6.6, with TIME_CONV
    text = run_cli("clocks", newer, files["mono.txt"]).stdout.decode()
    assert "perf's own formula" in text
    assert "not placed: nothing relates monotonic@web-1 to perf@huginn" in text
    ran = run_cli("clocks", newer, "--convert", "tsc:1000000000000", "--to", "perf")
    assert ran.stdout.decode().endswith(" +-0\n")
