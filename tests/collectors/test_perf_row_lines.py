"""Where a second recording begins in a text of perf script: the exact line, however the text is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import perf_pieces, perf_script
from collectors.source import Source
from pipeline.tables import Tables

RunCli = Callable[..., Any]


def block(time_ns: int, frames: int = 2, cpu: int = 0) -> str:
    """Return a sample; a frame's line may hold what looks like a time."""
    stack = "".join(f"\t 40{at:04x} f{at} (/bin/a 12.000000001:)\n" for at in range(frames))
    return f"app 1/2 [{cpu:03}] {time_ns // 10**9}.{time_ns % 10**9:09}:  250000 cpu-clock:\n{stack}\n"


def recording(start_ns: int, rows: int, frames: int = 2) -> str:
    return "".join(block(start_ns + at * 250_000, frames) for at in range(rows))


HEADER = (
    "# ========\n# captured on    : Tue Dec  1 03:53:41 2026\n# hostname : web-1\n"
    "# clockid: {} (1)\n# ========\n#\n"
)


def read(path: Path, text: str) -> Tables:
    path.write_text(text)
    with Source.open_path(str(path)) as source:
        return perf_script.read(source)


def line_of_second(tables: Tables) -> int | None:
    assert tables.order.kind == "sessions"
    return tables.order.sessions[1].line


@given(
    rows=st.tuples(st.integers(10, 400), st.integers(10, 400)),
    frames=st.tuples(st.integers(0, 30), st.integers(0, 30)),
    feed_bytes=st.integers(4_000, 40_000),
    is_same=st.booleans(),
)
def test_the_line_is_that_of_the_first_sample(
    tmp_path_factory: pytest.TempPathFactory,
    rows: tuple[int, int],
    frames: tuple[int, int],
    feed_bytes: int,
    is_same: bool,
) -> None:
    first = recording(840 * 10**9, rows[0], frames[0])
    second = first if is_same else recording(12 * 10**9, rows[1], frames[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(perf_pieces, "FEED_BYTES", feed_bytes)
        tables = read(tmp_path_factory.mktemp("lines") / "x.txt", first + second)
    assert [one.rows for one in tables.order.sessions] == [rows[0], rows[0] if is_same else rows[1]]
    assert line_of_second(tables) == first.count("\n") + 1


def test_a_header_block_begins_a_recording_also_where_time_goes_on(tmp_path: Path) -> None:
    first = HEADER.format("monotonic") + recording(840 * 10**9, 20)
    second = HEADER.format("monotonic_raw") + recording(878 * 10**9, 20)
    tables = read(tmp_path / "x.txt", first + second)
    assert line_of_second(tables) == first.count("\n") + 1
    assert tables.clock == "monotonic"
    # no blank line before it
    assert line_of_second(read(tmp_path / "y.txt", first.removesuffix("\n") + second)) == first.count("\n")


def test_a_header_without_its_rules_counts_from_its_first_field(tmp_path: Path) -> None:
    first = recording(840 * 10**9, 20)
    tables = read(tmp_path / "x.txt", first + HEADER.format("tai").partition("\n")[2] + first)
    assert line_of_second(tables) == first.count("\n") + 1


def test_one_header_is_one_recording(tmp_path: Path) -> None:
    assert read(tmp_path / "x.txt", HEADER.format("tai") + recording(10**9, 20)).order.kind == "ordered"
    assert read(tmp_path / "y.txt", recording(10**9, 20) + "# captured\n# note : x\n").order.kind == "ordered"


def test_three_recordings_have_three_lines(tmp_path: Path) -> None:
    parts = [recording(start_ns * 10**9, 40) for start_ns in (900, 500, 501)]
    parts[2] = HEADER.format("monotonic") + parts[2]
    tables = read(tmp_path / "x.txt", "".join(parts))
    assert [one.line for one in tables.order.sessions] == [
        None,
        parts[0].count("\n") + 1,
        (parts[0] + parts[1]).count("\n") + 1,
    ]


def test_late_events_before_it_do_not_move_the_line(tmp_path: Path) -> None:
    late = block(839 * 10**9) + block(838 * 10**9)
    first = recording(840 * 10**9, 300) + late + recording(841 * 10**9, 300)
    tables = read(tmp_path / "x.txt", first + recording(100 * 10**9, 300))
    assert line_of_second(tables) == first.count("\n") + 1
    assert len(tables.order.sessions) == 2


# the command line


def test_slices_name_the_line_and_how_to_split(run_cli: RunCli, tmp_path: Path) -> None:
    first = recording(840 * 10**9, 20)
    (tmp_path / "x.txt").write_text(first + recording(12 * 10**9, 20))
    said = (
        ":81: a second recording begins here, and nothing relates its times to those of the first: split the file"
        " (head -n 80, tail -n +81) and give the parts one by one; flameslice flamegraph draws it as it is\n"
    )
    for command in (["slices", "x.txt"], ["chart", "x.txt", "-o", "x.html"]):
        ran = run_cli(*command)
        assert (ran.status, ran.stdout, ran.stderr) == (1, b"", "x.txt" + said)
    ran = run_cli("slices", "-", stdin=(tmp_path / "x.txt").read_bytes())
    assert (ran.status, ran.stdout, ran.stderr) == (1, b"", "<stdin>" + said)
    # both parts are what the words say
    lines = (tmp_path / "x.txt").read_text().splitlines(keepends=True)
    for part in (lines[:80], lines[80:]):
        assert run_cli("slices", "-", stdin="".join(part).encode()).status == 0
    assert run_cli("flamegraph", "x.txt", "-o", "x.folded").status == 0
    assert (tmp_path / "x.folded").read_text() == "app;f1;f0 10000000\n"


def test_slices_refuse_differences_between_events(run_cli: RunCli, tmp_path: Path) -> None:
    steps_ns = [0, 3_690_000, 18_000, 3_979_000, 8_016_000, 3_975_000]
    (tmp_path / "delta.txt").write_text("".join(map(block, steps_ns)))
    ran = run_cli("slices", "delta.txt")
    assert (ran.status, ran.stdout) == (1, b"")
    assert ran.stderr == (
        "delta.txt: its times are differences between events, as perf script --deltatime prints them:"
        " print it again without --deltatime; flameslice flamegraph draws it as it is\n"
    )
    assert run_cli("flamegraph", "delta.txt", "-o", "x.folded").status == 0


def test_relative_times_are_cut_on_their_own_axis(run_cli: RunCli, tmp_path: Path) -> None:
    (tmp_path / "rel.txt").write_text(HEADER.format("monotonic") + recording(0, 20))
    ran = run_cli("slices", "rel.txt")
    assert ran.status == 0, ran.stderr
    ran = run_cli("flamegraph", "rel.txt", "--format", "json")
    assert b'"clock": "relative clock"' in ran.stdout


def test_a_stored_capture_is_judged_too(run_cli: RunCli, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text(recording(840 * 10**9, 20) + recording(12 * 10**9, 20))
    (tmp_path / "rel.txt").write_text(recording(0, 20))
    for name in ("x", "rel"):
        ran = run_cli("ingest", f"{name}.txt", "--capture", name)
        assert ran.status == 0, ran.stderr
    ran = run_cli("slices", "capture:x")
    assert ran.status == 1
    assert "capture:x: a second recording begins after 20 events, and nothing relates" in ran.stderr
    assert run_cli("slices", "capture:rel").status == 0
    ran = run_cli("flamegraph", "capture:rel", "--format", "json")
    assert b'"clock": "relative clock"' in ran.stdout


def test_the_corpus_prints_times_in_three_ways(corpus: Path) -> None:
    kinds = {}
    for path in sorted((corpus / "perf/local").glob("fp_*.txt")):
        with Source.open_path(str(path)) as source:
            kinds[path.name] = perf_script.read(source).order.kind
    assert kinds.pop("fp_deltatime.txt") == "deltas"
    assert set(kinds.values()) == {"ordered"}
