"""What a new user runs first: three files, and three lines that say what they show."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.xdist_group("perf")
def test_demo_writes_three_files_and_tells_what_they_show() -> None:
    out = ROOT / "demo" / "out"
    for name in ("flamegraph.svg", "chart.html", "slices.parquet"):
        (out / name).unlink(missing_ok=True)
    command = [sys.executable, str(ROOT / "demo" / "run.py")]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert "</svg>" in (out / "flamegraph.svg").read_text()
    assert "</html>" in (out / "chart.html").read_text()
    assert (out / "slices.parquet").read_bytes()[:4] == b"PAR1"
    live, flame, chart, slices = ran.stdout.splitlines()[-4:]
    assert re.match(r"(no live recording: |recorded live into )\S", live)
    # the capture is the one that ships: threads multiply, and wait for a lock, a disk and their turn
    assert re.fullmatch(
        r"flamegraph\.svg: \d+% of the CPU time is in dot, most of it under .+ > feed_forward", flame
    )
    assert re.fullmatch(
        r"chart\.html: of the 10 ms from \d+ms on, decode-\d was off the CPU for \d+%: its worst", chart
    )
    assert re.fullmatch(
        r"slices\.parquet: of 1\.\d\ds, decode-\d was \d+% running, \d+% waiting for a CPU, \d+% blocked "
        r"\(\d+% for the disk\)",
        slices,
    )


def test_capture_tells_nothing_of_where_it_was_made() -> None:
    import zstandard

    [path] = (ROOT / "demo" / "capture").iterdir()
    with path.open("rb") as file:
        text = zstandard.ZstdDecompressor().stream_reader(file).read()
    assert path.stat().st_size < 1_500_000
    assert b"# hostname : demo\n" in text
    assert re.findall(rb"/work|/root|/home|/tmp|pyenv|memfd|tokio", text) == []
