"""`flameslice doctor`: no and 'could not look' are never one another, and each no has its remedy."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flameslice import machine
from flameslice.machine import Check, Look

RunCli = Callable[..., Any]

ALLOWED = {
    "proc/sys/kernel/perf_event_paranoid": "-1",
    "proc/sys/kernel/kptr_restrict": "0",
    "proc/sys/kernel/perf_event_mlock_kb": "516",
    "proc/sys/kernel/yama/ptrace_scope": "0",
    "proc/kallsyms": "ffffffff81000000 T _text",
    "proc/self/status": "Name:\tx\nCapEff:\t0000000000000000\nSeccomp:\t0\n",
    "sys/kernel/tracing/events/enable": "0",
}


def check(name: str, root: Path, changes: dict[str, str | None], log: str = "") -> Check:
    """Run one check on a folder that stands for a machine."""
    for path, text in (ALLOWED | changes).items():
        if text is not None:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text + "\n")
    return machine.CHECKS[name](Look(root, log))


@pytest.fixture
def no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without rights, whoever runs the test."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


@pytest.mark.parametrize(
    ("name", "changes", "status", "words"),
    [
        ("perf_event_paranoid", {}, "ok", "-1"),
        ("perf_event_paranoid", {"proc/sys/kernel/perf_event_paranoid": "2"}, "no", "perf_event_paranoid=-1"),
        ("perf_event_paranoid", {"proc/sys/kernel/perf_event_paranoid": None}, "unknown", "cannot read"),
        ("perf_event_paranoid", {"proc/sys/kernel/perf_event_paranoid": "x"}, "unknown", "cannot read"),
        (
            "perf_event_paranoid",
            {
                "proc/sys/kernel/perf_event_paranoid": "2",
                "proc/self/status": "CapEff:\t0000004000000000\nSeccomp:\t0\n",  # CAP_PERFMON
            },
            "ok",
            "all the same",
        ),
        ("kptr_restrict", {}, "ok", "shown"),
        ("kptr_restrict", {"proc/kallsyms": "0000000000000000 T _text"}, "no", "paranoid=1"),
        (
            "kptr_restrict",
            {"proc/kallsyms": "0000000000000000 T _text", "proc/sys/kernel/kptr_restrict": "2"},
            "no",
            "kptr_restrict=0",
        ),
        ("kptr_restrict", {"proc/kallsyms": None}, "unknown", "cannot read"),
        ("tracefs", {}, "ok", "readable"),
        ("tracefs", {"sys/kernel/tracing/events/enable": None}, "no", "mount -t tracefs"),
        ("ptrace_scope", {}, "ok", "0"),
        ("ptrace_scope", {"proc/sys/kernel/yama/ptrace_scope": "1"}, "no", "ptrace_scope=0"),
        ("ptrace_scope", {"proc/sys/kernel/yama/ptrace_scope": "3"}, "no", "reboot"),
        ("ptrace_scope", {"proc/sys/kernel/yama/ptrace_scope": None}, "ok", "no Yama"),
        ("ptrace_scope", {"proc/sys/kernel/yama/ptrace_scope": "?"}, "unknown", "cannot read"),
        ("seccomp", {}, "ok", "no filter"),
        ("seccomp", {"proc/self/status": "Seccomp:\t2"}, "no", "--cap-add PERFMON"),
        ("seccomp", {"proc/self/status": "Name: x"}, "unknown", "does not tell"),
        ("mlock_limit", {"proc/sys/kernel/perf_event_mlock_kb": None}, "unknown", "cannot read"),
    ],
)
@pytest.mark.usefixtures("no_root")
def test_each_answer_fits_the_machine(
    tmp_path: Path, name: str, changes: dict[str, str | None], status: str, words: str
) -> None:
    found = check(name, tmp_path, changes)
    assert found.status == status
    assert words in f"{found.detail}: {found.remedy}"
    assert (found.status == "ok") == (not found.remedy)
    assert found.needed_for


def test_tracefs_that_may_not_be_read_is_a_no_and_not_a_missing_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.iterdir

    def refuse(path: Path) -> object:
        if "tracing" in path.parts:
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(Path, "iterdir", refuse)
    found = check("tracefs", tmp_path, {})
    assert (found.status, found.detail) == ("no", "/sys/kernel/tracing may not be read")


def fake_perf(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    perf = folder / "perf"
    perf.write_text(f"#!{sys.executable}\nimport sys\n{body}\n")
    perf.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.parametrize(
    ("name", "body", "status", "words"),
    [
        ("perf", "print('perf version 6.1.187')", "ok", "perf version 6.1.187"),
        ("perf", "sys.exit('WARNING: perf not found for kernel 6.9')", "no", "not found for kernel 6.9"),
        ("sched_tracepoints", "", "ok", "sched:sched_switch"),
        ("sched_tracepoints", "sys.exit('Error:\\nNo permission.')", "no", "No permission: run as root"),
        ("cpu_clock", "", "ok", "cpu-clock"),
        ("cycles", "sys.stderr.write('12345,,cycles:u,100,100.00,,\\n')", "ok", "counts cycles"),
        ("cycles", "sys.stderr.write('<not supported>,,cycles:u,0,100.00,,\\n')", "no", "cpu-clock"),
        ("cycles", "sys.stderr.write('<not counted>,,cycles:u,0,0.00,,\\n')", "unknown", "not counted"),
    ],
)
def test_perf_is_really_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, body: str, status: str, words: str
) -> None:
    fake_perf(tmp_path, body, monkeypatch)
    found = machine.CHECKS[name](Look())
    assert found.status == status
    assert words in f"{found.detail}: {found.remedy}"


def test_without_perf_one_answer_is_no_and_the_others_could_not_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    names = ("perf", "sched_tracepoints", "cpu_clock", "cycles", "ncu", "nsys")
    found = {name: machine.CHECKS[name](Look()).status for name in names}
    assert found == {
        "perf": "no", "sched_tracepoints": "unknown", "cpu_clock": "unknown", "cycles": "unknown",
        "ncu": "no", "nsys": "no",
    }  # fmt: skip


def test_a_perf_that_hangs_or_cannot_start_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_perf(tmp_path, "import time; time.sleep(60)", monkeypatch)
    monkeypatch.setattr(machine, "_TRY_SECONDS", 0.2)
    assert machine.CHECKS["cpu_clock"](Look()).status == "unknown"
    (tmp_path / "perf").write_text("#!/no/such/interpreter\n")
    assert machine.CHECKS["cpu_clock"](Look()).status == "unknown"


def test_a_broker_is_tried_only_where_one_is_named() -> None:
    assert "broker" not in {found.name for found in machine.inspect(Look(log="sqlite:/x/log.db"))}
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert machine.CHECKS["broker"](Look(log=f"kafka://127.0.0.1:{port}")).status == "ok"
        assert machine.CHECKS["broker"](Look(log=f"127.0.0.1:{port}")).status == "ok"
    assert machine.CHECKS["broker"](Look(log=f"kafka://127.0.0.1:{port}")).status == "no"
    assert machine.CHECKS["broker"](Look(log="kafka://host")).status == "unknown"
    assert machine.CHECKS["broker"](Look(log="kafka://127.0.0.1:99999")).status == "no"


# ------------------------------------------------------------------ the command


def test_json_is_one_document_with_every_check(run_cli: RunCli) -> None:
    ran = run_cli("doctor", "--json")
    assert ran.status == 0, ran.stderr
    body = json.loads(ran.stdout)
    assert body["schema_version"] == "1.0"
    assert [one["name"] for one in body["checks"]] == [name for name in machine.CHECKS if name != "broker"]
    for one in body["checks"]:
        assert set(one) == {"name", "status", "detail", "remedy", "needed_for"}
        assert one["status"] in ("ok", "no", "unknown")


def test_one_line_each(run_cli: RunCli, tmp_path: Path) -> None:
    ran = run_cli("doctor", env={"PATH": str(tmp_path)})
    lines = ran.stdout.decode().splitlines()
    assert ran.status == 0
    assert len(lines) == len(machine.CHECKS) - 1
    assert lines[0].startswith("no      perf ")
    assert "apt-get install linux-perf" in lines[0]


def test_what_is_required_decides_the_exit_status(run_cli: RunCli, tmp_path: Path) -> None:
    empty = {"PATH": str(tmp_path)}
    ran = run_cli("doctor", "--require", "perf,cpu_clock", env=empty)
    assert ran.status == 1
    assert ran.stderr.startswith("required: perf is no, cpu_clock is unknown: apt-get install")
    assert run_cli("doctor", "--require", "perff").status == 2
    assert run_cli("doctor", "--require", "broker").status == 2


def test_a_machine_that_may_record_is_said_to(run_cli: RunCli, perf_root: str) -> None:
    ran = run_cli("doctor", "--require", "perf,tracefs,sched_tracepoints,cpu_clock")
    assert ran.status == 0, ran.stderr
