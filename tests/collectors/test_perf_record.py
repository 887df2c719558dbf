"""Recordings with the real perf: what is in them, and that the recorder keeps out of the picture."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zstandard

RunCli = Callable[..., Any]

# spins, yields, sleeps, writes, forks and reads a file: one of each kind of event that the latency preset takes
WORK = """
import os, time, threading
def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        os.sched_yield()
spin(0.3)
for _ in range(20):
    time.sleep(0.002)
os.write(1, b"done")
if os.fork() == 0:
    spin(0.05)
    os._exit(0)
os.wait()
"""
HEAD = re.compile(
    r"^ *(.+?) +(-?\d+)/(-?\d+) +\[(\d+)\] +(\d+\.\d{9}): +(?:(PERF_RECORD_\w+)|(\d+) +(\S+):\s)(.*)$", re.M
)


@dataclass(frozen=True)
class Captured:
    """A capture that was recorded, its text and what the command said."""

    directory: Path
    manifest: dict[str, Any]
    text: str
    stderr: str

    def heads(self) -> list[tuple[str, ...]]:
        """Return (comm, pid, tid, cpu, time, record, period, event, rest) of each sample and record."""
        return HEAD.findall(self.text)

    def events(self) -> Counter[str]:
        """Return how many of each event there are."""
        return Counter(head[7] for head in self.heads() if head[7])


def record(run_cli: RunCli, directory: Path, *args: str, command: tuple[str, ...] = ()) -> Captured:
    ran = run_cli("record", "-o", directory, "--max-events-per-s", "10000000", *args, *command)
    assert ran.status == 0, ran.stderr
    packed = (directory / "perf.script.zst").read_bytes()
    text = zstandard.ZstdDecompressor().decompressobj().decompress(packed).decode()
    manifest = json.loads((directory / "capture.json").read_text())
    return Captured(directory, manifest, text, ran.stderr)


@pytest.fixture(scope="module")
def latency_command() -> tuple[str, ...]:
    return ("--", sys.executable, "-S", "-c", WORK)


def test_the_latency_preset_holds_everything_and_the_recorder_nowhere(
    tmp_path: Path, run_cli: RunCli, perf_root: str, latency_command: tuple[str, ...]
) -> None:
    got = record(run_cli, tmp_path / "c.capture", command=latency_command)
    events = got.events()
    for name in ("cpu-clock", "raw_syscalls:sys_enter", "raw_syscalls:sys_exit", "sched:sched_switch",
                 "sched:sched_waking", "sched:sched_process_exec", "irq:softirq_entry"):  # fmt: skip
        assert events[name] > 0, name
    assert dict(events) == got.manifest["sources"][0]["events"]
    assert got.manifest["sources"][0]["default_event"] == "cpu-clock"
    assert got.manifest["status"] == "complete"
    assert "PERF_RECORD_SWITCH_CPU_WIDE" in got.text

    # one clock, in order
    times = [head[4].replace(".", "") for head in got.heads()]
    assert [int(time) for time in times] == sorted(int(time) for time in times)
    start_ns = got.manifest["segments"][0]["start_monotonic_ns"]
    assert start_ns <= int(times[0]) < start_ns + 5_000_000_000

    # perf: neither samples nor system calls nor turns with idle
    own = set(map(str, got.manifest["recorder"]["pids"]))
    target_events = ("cpu-clock", "raw_syscalls:sys_enter", "raw_syscalls:sys_exit")
    assert not [head for head in got.heads() if head[1] in own and head[7] in target_events]
    for head in got.heads():
        turn = re.findall(r"(?:prev|next)_pid=(\d+)", head[8]) if head[7] == "sched:sched_switch" else []
        assert not turn or not set(turn) <= own | {"0"}


def test_system_calls_are_the_targets_and_its_childrens_without_sched_yield(
    tmp_path: Path, run_cli: RunCli, perf_root: str, latency_command: tuple[str, ...]
) -> None:
    got = record(run_cli, tmp_path / "c.capture", command=latency_command)
    calls = [head for head in got.heads() if head[7] == "raw_syscalls:sys_enter"]
    numbers = {re.match(r"NR (\d+)", head[8].strip())[1] for head in calls}  # type: ignore[index]
    if got.manifest["arch"] == "x86_64":
        assert "24" not in numbers  # sched_yield, of which there were hundreds of thousands
        assert {"1", "59", "231"} <= numbers  # write, execve, exit_group
    assert len({head[1] for head in calls}) == 2  # the command, and the child that it forked later
    # the target's own switches stay, also to and from perf
    pid = Counter(head[1] for head in calls).most_common(1)[0][0]
    switches = [head[8] for head in got.heads() if head[7] == "sched:sched_switch"]
    assert any(f"prev_pid={pid} " in rest for rest in switches)
    assert any(f"next_pid={pid} " in rest for rest in switches)


def test_a_tracepoints_arguments_end_where_they_end(
    tmp_path: Path, run_cli: RunCli, perf_root: str, latency_command: tuple[str, ...]
) -> None:
    got = record(run_cli, tmp_path / "c.capture", command=latency_command)
    waking = [head[8].strip() for head in got.heads() if head[7] == "sched:sched_waking"]
    assert all(re.fullmatch(r"comm=.* pid=\d+ prio=\d+ target_cpu=\d+", rest) for rest in waking)
    exits = [head[8].strip() for head in got.heads() if head[7] == "raw_syscalls:sys_exit"]
    assert all(re.fullmatch(r"NR -?\d+ = -?\d+", rest) for rest in exits)


def test_the_recorder_tells_its_own_share(
    tmp_path: Path, run_cli: RunCli, perf: str, latency_command: tuple[str, ...]
) -> None:
    got = record(run_cli, tmp_path / "c.capture", "--preset", "cpu", command=latency_command)
    recorder = got.manifest["recorder"]
    assert recorder["cpu_ns"] > 0
    assert recorder["start_cpu_ns"] > 0
    assert recorder["wall_ns"] > 300_000_000
    share = 100 * recorder["cpu_ns"] / recorder["wall_ns"]
    assert recorder["cpu_share_percent"] == pytest.approx(share, abs=0.01)
    assert f"recorder: {recorder['cpu_share_percent']:g} % of one CPU" in got.stderr


def test_a_process_that_runs_is_recorded_until_it_ends(tmp_path: Path, run_cli: RunCli, perf: str) -> None:
    busy = "import time\nend = time.monotonic() + 4\nwhile time.monotonic() < end: pass"
    with subprocess.Popen([sys.executable, "-c", busy]) as target:
        got = record(run_cli, tmp_path / "c.capture", "--preset", "cpu", "--pid", str(target.pid))
    assert got.events()[got.manifest["sources"][0]["default_event"]] > 50
    assert got.manifest["segments"][0]["why_ended"] == "target_ended"
    assert {head[1] for head in got.heads() if head[7]} == {str(target.pid)}


def test_samples_of_perf_are_left_out_of_a_whole_machine(
    tmp_path: Path, run_cli: RunCli, perf_root: str
) -> None:
    got = record(run_cli, tmp_path / "c.capture", "--all", "--for", "500ms", "--preset", "latency")
    own = set(map(str, got.manifest["recorder"]["pids"]))
    samples = [head for head in got.heads() if head[7] == "cpu-clock"]
    assert samples
    assert not [head for head in samples if head[1] in own]
    assert not any("syscalls" in name for name in got.events())


def test_perf_leaves_nothing_in_the_home_folder(tmp_path: Path, run_cli: RunCli, perf: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    ran = run_cli("record", "-o", "c.capture", "--preset", "cpu", "--", "true", env={"HOME": str(home)})
    assert ran.status == 0
    assert list(home.iterdir()) == []


def test_jit_names_and_their_map_come_into_the_capture(tmp_path: Path, run_cli: RunCli, perf: str) -> None:
    # a page of code that only the map names: at its start a loop over rcx, then ret
    jit = """
import ctypes, mmap, os
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex("4889f948ffc975fbc3"))  # mov rcx, rdi; dec rcx; jnz -5; ret
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
with open(f"/tmp/perf-{os.getpid()}.map", "w") as out:
    out.write(f"{address:x} 9 jitted_loop\\n")
ctypes.CFUNCTYPE(None, ctypes.c_long)(address)(400_000_000)
"""
    if "x86_64" not in __import__("platform").machine():
        pytest.skip("the machine code in this test is for x86_64")
    got = record(
        run_cli, tmp_path / "c.capture", "--preset", "cpu", command=("--", sys.executable, "-c", jit)
    )
    maps = [Path(one["file"]) for one in got.manifest["sources"] if one["format"] == "perf_map"]
    for path in maps:
        Path("/tmp", path.name).unlink()
    assert len(maps) == 1
    assert "jitted_loop" in (got.directory / maps[0]).read_text()
    assert "jitted_loop" in got.text


def test_a_clock_that_tracepoints_refuse_is_perfs_line(
    tmp_path: Path, run_cli: RunCli, perf_root: str
) -> None:
    ran = run_cli("record", "-o", "c.capture", "--clock", "realtime", "--", "true")
    assert ran.status == 1
    assert "wrong clockid" in ran.stderr
    assert "use --clock monotonic" in ran.stderr
    assert not (tmp_path / "c.capture").exists()


def test_a_killed_recording_can_still_be_read(tmp_path: Path, run_cli: RunCli, perf: str) -> None:
    script = (
        "import os, signal, subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-m', 'flameslice', 'record', '--preset', 'cpu', '-o', 'c.capture',"
        " '--', 'sh', '-c', 'while :; do :; done'])\n"
        "while not os.path.exists('c.capture/clocks.jsonl'): time.sleep(0.02)\n"
        "time.sleep(1)\n"
        "children = open(f'/proc/{p.pid}/task/{p.pid}/children').read().split()\n"
        "p.kill(); p.wait()\n"
        "perf = [c for c in children if 'perf' in open(f'/proc/{c}/comm').read()]\n"
        "sh = [int(c) for c in children if c not in perf]\n"
        "while any(os.path.exists(f'/proc/{c}') for c in perf): time.sleep(0.02)\n"
        "[os.kill(pid, signal.SIGKILL) for pid in sh]\n"
    )
    root = Path(__file__).resolve().parents[2]
    env = {"PYTHONPATH": str(root), "PATH": __import__("os").environ["PATH"]}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=env, check=True, timeout=100)
    assert json.loads((tmp_path / "c.capture/capture.json").read_text())["status"] == "receiving"
    ran = subprocess.run(
        [perf, "script", "-f", "-i", tmp_path / "c.capture/perf.data", "-F", "comm,event"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("cpu-clock") > 20
