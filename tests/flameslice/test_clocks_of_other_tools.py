"""`flameslice clocks` over files whose samples are not read: GPU traces, spans, py-spy, readings of nvidia-smi."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

SECOND = 1_000_000_000
WALL_NS = 1_796_097_220_000_000_000  # where monotonic is 840 s
PERF = (
    "# hostname : gpu-7\n# clockid: monotonic (1)\n"
    "# reference time: 2026-12-01 03:53:40.000000 = 1796097220.000000 (TOD) = 840.000000000 (monotonic)\n"
    "app 7/7 [000] 841.000000000: 1000 cpu-clock:\n\t401000 main+0x1 (/bin/app)\n\n"
    "app 7/7 [000] 841.000000123: 1000 cpu-clock:\n\t401000 main+0x1 (/bin/app)\n\n"
)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    found = {
        name: tmp_path / name for name in ("perf.txt", "gpu.sqlite", "torch.json", "spans.json", "spy.json")
    }
    found["perf.txt"].write_text(PERF)
    base = sqlite3.connect(found["gpu.sqlite"])
    base.executescript(
        "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);"
        f"INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES ({WALL_NS});"
        "CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT);"
        "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('Hostname', 'gpu-7');"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER);"
        f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({SECOND}, {SECOND + 400});"
    )
    base.close()
    events = [{"ph": "X", "name": "op", "ts": 1.5, "dur": 2}]
    found["torch.json"].write_text(
        json.dumps(
            {
                "traceEvents": events,
                "distributedInfo": {},
                "baseTimeNanoseconds": WALL_NS,
                "host_name": "gpu-7",
            }
        )
    )
    span = {"startTimeUnixNano": str(WALL_NS + 5), "endTimeUnixNano": str(WALL_NS + 9)}
    resource = {"attributes": [{"key": "host.name", "value": {"stringValue": "gpu-7"}}]}
    found["spans.json"].write_text(
        json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]})
    )
    found["spy.json"].write_text(
        '[{"ph":"B","ts":0,"name":"f","cat":"py-spy"},{"ph":"E","ts":7,"name":"f","cat":"py-spy"}]'
    )
    return found


def converted(run_cli: Any, *words: object) -> tuple[int, int]:
    value, uncertainty = run_cli("clocks", *words).stdout.decode().split(" +-")
    return int(value), int(uncertainty)


def test_a_gpu_session_is_placed_by_its_start(run_cli: Any, files: dict[str, Path]) -> None:
    value, uncertainty_ns = converted(
        run_cli, files["gpu.sqlite"], "--convert", f"session:{SECOND}", "--to", "realtime"
    )
    assert value == WALL_NS + SECOND
    # a millisecond for the start, and what NTP may slew in a second: 500 ppm
    assert 1_500_000 <= uncertainty_ns <= 1_510_000


def test_all_of_a_host_lie_on_one_timeline(run_cli: Any, files: dict[str, Path]) -> None:
    placed = [files[name] for name in ("perf.txt", "gpu.sqlite", "torch.json", "spans.json")]
    body = json.loads(run_cli("clocks", *placed, "--json").stdout)
    assert body["timeline"] == "monotonic@gpu-7"
    assert [one["why_not"] for one in body["sources"]] == ["", "", "", ""]
    of_perf, of_gpu, of_torch, of_spans = (one["uncertainty_ns"] for one in body["sources"])
    assert of_perf == 0
    assert of_torch == of_spans < 10_000 < 1_500_000 < of_gpu
    value, _ = converted(run_cli, *placed, "--convert", f"session:{SECOND}", "--to", "monotonic")
    assert value == 841 * SECOND


def test_two_sessions_of_a_host_are_not_one_clock(
    run_cli: Any, files: dict[str, Path], tmp_path: Path
) -> None:
    other = tmp_path / "later.sqlite"
    other.write_bytes(files["gpu.sqlite"].read_bytes())
    base = sqlite3.connect(other)
    base.execute(f"UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = {WALL_NS + 60 * SECOND}")
    base.commit()
    base.close()
    both = (files["gpu.sqlite"], other)
    one, two = (
        converted(run_cli, *both, "--convert", f"session@{path}:0", "--to", "realtime")[0] for path in both
    )
    assert (one, two) == (WALL_NS, WALL_NS + 60 * SECOND)


def test_what_nothing_places_is_said_and_a_user_may_place_it(run_cli: Any, files: dict[str, Path]) -> None:
    both = (files["perf.txt"], files["spy.json"])
    text = run_cli("clocks", *both).stdout.decode()
    assert "not placed: its times count from its own start, and nothing says when that was" in text
    words = (*both, "--wall-start", "spy.json=2026-12-01T03:53:41.5Z")
    value, uncertainty_ns = converted(run_cli, *words, "--convert", "relative:7000", "--to", "monotonic")
    assert value == 841_500_007_000
    assert uncertainty_ns >= 10**8  # a tenth of a second was written


@pytest.mark.parametrize("command", ["flamegraph", "slices"])
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("gpu.sqlite", "an SQLite database"),
        ("torch.json", "a PyTorch profiler trace"),
        ("spans.json", "OpenTelemetry spans"),
    ],
)
def test_commands_that_need_samples_refuse_them_in_one_line(
    run_cli: Any, files: dict[str, Path], command: str, name: str, what: str
) -> None:
    ran = run_cli(command, files[name])
    (line,) = ran.stderr.splitlines()
    assert ran.status == 1
    assert f"{files[name]}: this is {what}" in line


def test_a_format_can_be_forced(run_cli: Any, files: dict[str, Path]) -> None:
    body = json.loads(
        run_cli("clocks", files["torch.json"], "--input-format", "chrome_trace", "--json").stdout
    )
    assert body["sources"][0]["first"] == WALL_NS + 1500
    body = json.loads(run_cli("clocks", files["torch.json"], "--input-format", "otlp_json", "--json").stdout)
    assert body["sources"][0]["clock"] == "no times"


def capture(directory: Path, files: dict[str, Path], *, start_ns: int) -> Path:
    directory.mkdir()
    sources = []
    for name, kind in (("perf.txt", "perf_script"), ("spy.json", "chrome_trace"), ("torch.json", "kineto")):
        (directory / name).write_bytes(files[name].read_bytes())
        sources.append({"file": name, "format": kind, "clock": "monotonic" if kind == "perf_script" else ""})
    sources[1] |= {"start_monotonic_ns": start_ns, "start_uncertainty_ns": 2_000}
    (directory / "capture.json").write_text(
        json.dumps(
            {
                "schema_version": "1.0",
                "id": "c20261201T054200Z-3f9a0c1d2e",
                "name": "run",
                "status": "complete",
                "host": "gpu-7",
                "boot_id": "3f2a",
                "sources": sources,
            }
        )
    )
    return directory


def test_the_start_that_the_recorder_stamped_places_a_captures_file(
    run_cli: Any, files: dict[str, Path], tmp_path: Path
) -> None:
    made = capture(tmp_path / "run.capture", files, start_ns=841 * SECOND)
    body = json.loads(run_cli("clocks", made, "--json").stdout)
    assert [one["source"] for one in body["sources"]] == [str(made), f"{made}/spy.json", f"{made}/torch.json"]
    assert [one["uncertainty_ns"] for one in body["sources"]][:2] == [0, 2_000]
    value, uncertainty_ns = converted(run_cli, made, "--convert", "relative:7000", "--to", "monotonic")
    assert (value, uncertainty_ns) == (841 * SECOND + 7_000, 2_000)


def test_without_a_stamp_a_captures_file_is_not_placed(
    run_cli: Any, files: dict[str, Path], tmp_path: Path
) -> None:
    made = capture(tmp_path / "run.capture", files, start_ns=0)
    body = json.loads(run_cli("clocks", made, "--json").stdout)
    assert "nothing says when that was" in body["sources"][1]["why_not"]
