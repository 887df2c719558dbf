"""Readings of GPUs and servers hold no times, but where they do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from collectors import source_clocks
from pipeline.clock_domains import SourceClocks

Clocks = Callable[[str], SourceClocks]


@pytest.fixture
def clocks(tmp_path: Path) -> Clocks:
    def read(text: str) -> SourceClocks:
        path = tmp_path / "file"
        path.write_text(text)
        return source_clocks.of(path, name="file")

    return read


def test_prometheus_text_has_no_times_unless_it_has(clocks: Clocks) -> None:
    head = "# HELP up is it up\n# TYPE up gauge\n"
    assert clocks(head + 'up{gpu="0",a="x} 5 6"} 97\nup 1\n') == SourceClocks(
        "file", "", notes=("it holds no times",)
    )
    found = clocks(head + 'up{gpu="0"} 97 1796097220690\nup 1 1796097220000\nup 2\n')
    assert (found.clock, found.first, found.last) == (
        "realtime",
        1_796_097_220_000_000_000,
        1_796_097_220_690_000_000,
    )


ROWS = (
    "timestamp, name, utilization.gpu [%]\n"
    "2026/12/01 12:00:00.123, NVIDIA H200, 97 %\n"
    "2026/12/01 12:00:01.125, NVIDIA H200, 98 %\n"
    "[Not Supported], NVIDIA H200, 98 %\n"
)


def test_the_csv_of_nvidia_smi_counts_from_its_first_row(clocks: Clocks) -> None:
    found = clocks(ROWS)
    assert (found.clock, found.first, found.last) == ("relative", 0, 1_002_000_000)
    assert "2026/12/01 12:00:00.123" in found.notes[0]
    assert "--wall-start" in found.notes[0]


@pytest.mark.parametrize("rows", ["2026/13/01 12:00:00.123, NVIDIA H200, 97 %\n", "\n", "soon, a, b\n"])
def test_a_csv_without_a_usable_time_has_no_clock(clocks: Clocks, rows: str) -> None:
    assert clocks("timestamp, name, utilization.gpu [%]\n" + rows).clock == ""


def test_when_nvidia_smi_printed_is_a_note(clocks: Clocks) -> None:
    found = clocks(
        '<?xml version="1.0"?>\n<nvidia_smi_log>\n<timestamp>Mon Apr 24 16:22:39 2023</timestamp>\n'
    )
    assert (found.clock, found.first) == ("", None)
    assert "printed at Mon Apr 24 16:22:39 2023, local time" in found.notes[0]


def test_real_readings(corpus: Path) -> None:
    for path in [*(corpus / "nvml/prom").iterdir(), corpus / "nvml/dcgm/dcgm-exporter-l40s-595.58.03.prom"]:
        assert source_clocks.of(path).notes == ("it holds no times",)
    for path in (corpus / "nvml/nvidia-smi-xml").iterdir():
        assert "printed at" in source_clocks.of(path).notes[0]
