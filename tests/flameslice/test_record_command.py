"""`flameslice record` with a perf that misbehaves: what it says, what it leaves, and what it never does."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAKE = Path(__file__).with_name("fake_perf.py")
RunCli = Callable[..., Any]


@pytest.fixture
def fake(tmp_path: Path) -> dict[str, str]:
    """The environment in which `perf` is ours."""
    folder = tmp_path / "bin"
    folder.mkdir()
    perf = folder / "perf"
    perf.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {FAKE} "$@"\n')
    perf.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def manifest(directory: Path) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((directory / "capture.json").read_text())
    return body


def start(tmp_path: Path, env: dict[str, str], *args: str) -> subprocess.Popen[str]:
    """Start a recording into c.capture; return when it records."""
    command = [sys.executable, "-m", "flameslice", "record", "-o", "c.capture", *args]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(tmp_path)} | env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    give_up = time.monotonic() + 60
    while not _records(process, tmp_path / "c.capture", *args):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < give_up
        time.sleep(0.02)
    return process


def _records(process: subprocess.Popen[str], directory: Path, *args: str) -> bool:
    """Return whether the recording runs, and its command, if it has one: that begins after the first reading."""
    if not (directory / "clocks.jsonl").exists():
        return False
    if "--" not in args:
        return True
    name = args[args.index("--") + 1]
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return any(
        name in Path(f"/proc/{child}/comm").read_text()
        for child in children
        if Path(f"/proc/{child}").exists()
    )


# ------------------------------------------------------------------ what it leaves


def test_a_capture_lists_its_files_with_their_digests(
    tmp_path: Path, run_cli: RunCli, fake: dict[str, str]
) -> None:
    ran = run_cli("record", "-o", "c.capture", "--label", "service=x", "--", "sh", "-c", "exit 3", env=fake)
    assert ran.status == 0, ran.stderr
    body = manifest(tmp_path / "c.capture")
    assert body["status"] == "complete"
    assert body["command"] == ["sh", "-c", "exit 3"]
    assert body["command_status"] == 3
    assert body["labels"] == {"service": "x"}
    assert body["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert {one["file"]: one["format"] for one in body["sources"]} == {
        "perf.script.zst": "perf_script",
        "perf.data": "perf_data",
        "perf-system.data": "perf_data",
        "clocks.jsonl": "clock_snapshots",
    }
    for one in body["sources"]:
        raw = (tmp_path / "c.capture" / one["file"]).read_bytes()
        assert one["sha256"] == hashlib.sha256(raw).hexdigest()
        assert one["size_bytes"] == len(raw)
    assert body["sources"][0]["default_event"] == "cpu-clock"
    assert body["losses"] == [
        {"reason": "kernel_lost", "count": 14, "first_line": None, "example": "", "severity": "warning"}
    ]
    assert "recorder: " in ran.stderr
    assert " % of one CPU" in ran.stderr
    assert "the command ended with status 3" in ran.stderr
    assert "14 events that the kernel lost" in ran.stderr
    assert ran.stdout == b""


def test_clocks_are_read_at_the_start_and_at_the_end(
    tmp_path: Path, run_cli: RunCli, fake: dict[str, str]
) -> None:
    run_cli("record", "-o", "c.capture", "--", "sleep", "1.3", env=fake)
    lines = [json.loads(line) for line in (tmp_path / "c.capture/clocks.jsonl").read_text().splitlines()]
    assert [line["snapshot"] for line in lines] == list(range(len(lines)))
    assert len(lines) >= 3
    assert all(len(line["clocks"]) in (5, 2) for line in lines)  # two: what a tracer stamped


def test_the_environment_is_not_recorded_and_redaction_hides_host_and_arguments(
    tmp_path: Path, run_cli: RunCli, fake: dict[str, str]
) -> None:
    env = fake | {"SECRET_TOKEN": "token-in-the-environment"}
    command = ["--", "sh", "-c", "true", "secret-argument"]
    run_cli("record", "-o", "plain.capture", *command, env=env)
    run_cli("record", "-o", "c.capture", "--redact", *command, env=env)
    plain = (tmp_path / "plain.capture/capture.json").read_text()
    assert "secret-argument" in plain
    assert "token-in-the-environment" not in plain
    text = (tmp_path / "c.capture/capture.json").read_text()
    assert "secret-argument" not in text
    assert json.loads(text)["host"] == "<redacted>"
    assert json.loads(text)["command"] == ["sh", "<redacted>"]
    assert not list((tmp_path / "c.capture").glob("*.data"))
    assert (tmp_path / "c.capture/perf.script.zst").exists()


def test_json_on_standard_output_is_the_manifest(
    tmp_path: Path, run_cli: RunCli, fake: dict[str, str]
) -> None:
    ran = run_cli("record", "--json", "-o", "c.capture", "--", "true", env=fake)
    assert json.loads(ran.stdout) == manifest(tmp_path / "c.capture")


def test_an_existing_output_is_replaced_only_when_asked_and_only_if_it_is_a_capture(
    tmp_path: Path, run_cli: RunCli, fake: dict[str, str]
) -> None:
    (tmp_path / "c.capture").mkdir()
    (tmp_path / "c.capture/letter.txt").write_text("dear")
    for option in ([], ["--force"]):
        ran = run_cli("record", "-o", "c.capture", *option, "--", "true", env=fake)
        assert ran.status == 1
        assert (tmp_path / "c.capture/letter.txt").read_text() == "dear"
    run_cli("record", "-o", "d.capture", "--", "true", env=fake)
    first = manifest(tmp_path / "d.capture")["id"]
    assert "--force" in run_cli("record", "-o", "d.capture", "--", "true", env=fake).stderr
    assert run_cli("record", "-o", "d.capture", "--force", "--", "true", env=fake).status == 0
    assert manifest(tmp_path / "d.capture")["id"] != first
    assert sorted(path.name for path in tmp_path.glob("*d.capture*")) == ["d.capture"]


# ------------------------------------------------------------------ what goes wrong


@pytest.mark.parametrize("mode", ["refuse", "refuse_second"])
def test_a_refusal_is_perfs_line_and_leaves_nothing_and_the_command_never_runs(
    tmp_path: Path, run_cli: RunCli, fake: dict[str, str], mode: str
) -> None:
    ran = run_cli("record", "-o", "c.capture", "--", "touch", "ran", env=fake | {"FAKE_PERF": mode})
    assert ran.status == 1
    assert ran.stderr == "perf: wrong clockid (0): use --clock monotonic, which every event accepts\n"
    assert not (tmp_path / "c.capture").exists()
    assert not (tmp_path / "ran").exists()


def test_a_refusal_puts_back_what_was_to_be_replaced(
    tmp_path: Path, run_cli: RunCli, fake: dict[str, str]
) -> None:
    run_cli("record", "-o", "c.capture", "--", "true", env=fake)
    before = manifest(tmp_path / "c.capture")
    ran = run_cli("record", "-o", "c.capture", "--force", "--", "true", env=fake | {"FAKE_PERF": "refuse"})
    assert ran.status == 1
    assert manifest(tmp_path / "c.capture") == before


def test_no_perf_is_one_line_with_the_remedy(tmp_path: Path, run_cli: RunCli) -> None:
    ran = run_cli("record", "-o", "c.capture", "--", "/bin/true", env={"PATH": str(tmp_path)})
    assert ran.status == 1
    assert ran.stderr.startswith("perf is not installed: install linux-perf")
    assert ran.stderr.count("\n") == 1


def test_a_perf_that_dies_is_told_and_its_part_is_kept_and_the_command_ends_by_itself(
    tmp_path: Path, run_cli: RunCli, fake: dict[str, str]
) -> None:
    command = ["--", "sh", "-c", "sleep 1.5; touch ended"]
    ran = run_cli("record", "-o", "c.capture", *command, env=fake | {"FAKE_PERF": "die"})
    assert ran.status == 1
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("perf ended early: perf: no space for me: killed: what was recorded before is in")
    assert (tmp_path / "ended").exists()
    body = manifest(tmp_path / "c.capture")
    assert body["status"] == "partial"
    assert body["segments"][0]["why_ended"] == "perf_died"
    assert any(one["format"] == "perf_script" for one in body["sources"])


def test_a_perf_data_that_perf_cannot_print_stays_for_others(
    tmp_path: Path, run_cli: RunCli, fake: dict[str, str]
) -> None:
    ran = run_cli("record", "-o", "c.capture", "--", "true", env=fake | {"FAKE_PERF": "unreadable"})
    assert ran.status == 0
    body = manifest(tmp_path / "c.capture")
    assert body["status"] == "partial"
    assert {one["format"] for one in body["sources"]} == {"perf_data", "clock_snapshots"}
    assert "note: perf.data: perf: incompatible file format" in ran.stderr


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        ([], 2, "nothing to record"),
        (["--all"], 2, "--all needs an end"),
        (["--all", "--for", "1s", "--", "true"], 2, "more than one thing"),
        (["--all", "--for", "soon"], 2, "not a duration"),
        (["--pid", "x"], 2, "not a process id"),
        (["--pid", "4194999"], 1, "no process 4194999"),
        (["--max-bytes", "much", "--", "true"], 2, "not a size"),
        (["--label", "x", "--", "true"], 2, "not a label"),
        (["--cpu-event", "a,b/", "--", "true"], 2, "not the name of an event"),
        (["--", "no-such-command"], 1, "no command 'no-such-command'"),
    ],
)
def test_what_cannot_be_recorded_is_one_line(
    tmp_path: Path, run_cli: RunCli, fake: dict[str, str], args: list[str], status: int, words: str
) -> None:
    ran = run_cli("record", "-o", "c.capture", *args, env=fake)
    assert (ran.status, ran.stderr.count("\n")) == (status, 1)
    assert words in ran.stderr
    assert not (tmp_path / "c.capture").exists()


# ------------------------------------------------------------------ limits


def test_too_many_events_fall_back_to_a_lighter_preset_and_that_is_said(
    tmp_path: Path, run_cli: RunCli, fake: dict[str, str]
) -> None:
    options = ["-o", "c.capture", "--preset", "full", "--max-events-per-s", "5000"]
    env = fake | {"FAKE_PERF": "flood_heavy"}
    ran = run_cli("record", *options, "--", "sleep", "3", env=env)
    assert ran.status == 0, ran.stderr
    assert "preset full wrote over 5000 events a second: going on with latency" in ran.stderr
    assert "fell back to cpu" in ran.stderr
    body = manifest(tmp_path / "c.capture")
    assert body["status"] == "complete"
    assert (body["preset_asked"], body["preset_used"]) == ("full", "cpu")
    assert [one["why_ended"] for one in body["segments"]] == ["event_rate", "event_rate", "command_ended"]
    losses = {one["reason"]: one["count"] for one in body["losses"]}
    assert losses["dropped_event_rate"] == 2
    assert (tmp_path / "c.capture/perf-3.data").exists()


def test_bytes_are_bounded_whatever_the_preset_and_the_command_goes_on(
    tmp_path: Path, run_cli: RunCli, fake: dict[str, str]
) -> None:
    options = ["-o", "c.capture", "--max-bytes", "8M", "--max-events-per-s", "100000000"]
    command = ["--", "sh", "-c", "sleep 5; touch ended"]
    ran = run_cli("record", *options, *command, env=fake | {"FAKE_PERF": "flood"})
    assert ran.status == 0, ran.stderr
    assert "recording has ended" in ran.stderr
    assert (tmp_path / "ended").exists()
    body = manifest(tmp_path / "c.capture")
    assert body["status"] == "partial"
    assert body["segments"][-1]["why_ended"] == "max_bytes"
    # perf writes on while nobody looks: a quarter of a second of the fake's 25 MB/s in each of four stretches
    assert sum(one["size_bytes"] for one in body["sources"] if one["format"] == "perf_data") < 60 << 20


# ------------------------------------------------------------------ ends


def test_ctrl_c_ends_with_a_readable_capture(tmp_path: Path, fake: dict[str, str]) -> None:
    process = start(tmp_path, fake, "--", "sleep", "600")
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    body = manifest(tmp_path / "c.capture")
    assert body["status"] == "complete"
    assert body["segments"][0]["why_ended"] == "asked"
    assert body["command_status"] == -signal.SIGTERM


def test_a_killed_recorder_leaves_a_whole_manifest_and_no_running_perf(
    tmp_path: Path, fake: dict[str, str]
) -> None:
    process = start(tmp_path, fake, "--", "sleep", "5")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    perfs = [pid for pid in children if "record" in Path(f"/proc/{pid}/cmdline").read_text()]
    assert len(perfs) == 2
    process.kill()
    process.communicate()
    assert manifest(tmp_path / "c.capture")["status"] == "receiving"
    give_up = time.monotonic() + 30
    while any(_runs(pid) for pid in perfs):
        assert time.monotonic() < give_up
        time.sleep(0.02)


def _runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_recording_of_a_process_ends_with_it(tmp_path: Path, fake: dict[str, str]) -> None:
    with subprocess.Popen(["sleep", "600"]) as target:
        process = start(tmp_path, fake, "--pid", str(target.pid))
        target.terminate()
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    body = manifest(tmp_path / "c.capture")
    assert body["segments"][0]["why_ended"] == "target_ended"
    assert [one["comm"] for one in body["processes"]] == ["sleep"]


def test_time_is_up_for_the_machine(tmp_path: Path, run_cli: RunCli, fake: dict[str, str]) -> None:
    ran = run_cli("record", "-o", "c.capture", "--all", "--for", "100ms", env=fake)
    assert ran.status == 0, ran.stderr
    body = manifest(tmp_path / "c.capture")
    assert body["segments"][0]["why_ended"] == "time_up"
    assert [one["file"] for one in body["sources"] if one["format"] == "perf_data"] == ["perf.data"]


def test_a_process_that_ends_while_perf_starts_again_is_no_failure(
    tmp_path: Path, run_cli: RunCli, fake: dict[str, str]
) -> None:
    options = ["-o", "c.capture", "--max-events-per-s", "5000"]
    env = fake | {"FAKE_PERF": "flood_heavy_then_gone_once"}
    ran = run_cli("record", *options, "--", "sleep", "2", env=env)
    assert ran.status == 0, ran.stderr
    body = manifest(tmp_path / "c.capture")
    assert [one["why_ended"] for one in body["segments"]] == ["event_rate", "command_ended"]
    assert (tmp_path / "c.capture/refused-once").exists()
