"""What this machine allows to record: one check per thing, each tried where trying is harmless.

A check answers `ok`, `no` (with its remedy) or `unknown` (it could not look, and says why): never one for
another.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Status = Literal["ok", "no", "unknown"]

_TRY_SECONDS = 30
_CONNECT_SECONDS = 3
_BROKER = re.compile(r"(?:kafka://)?\[?([^\[\]/]+?)\]?:(\d{1,5})/?")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that recording may need, and whether it is there."""

    name: str
    status: Status
    detail: str
    remedy: str = ""
    needed_for: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """Where to look: tests hand in a folder of their own for /proc and /sys."""

    root: Path = Path("/")
    log: str = ""

    def text(self, path: str) -> str:
        """Return what a file says; OSError where it cannot be read."""
        return (self.root / path).read_text(errors="replace").strip()


def inspect(look: Look | None = None) -> list[Check]:
    """Return every check; a broker is looked for only where one is named."""
    where = Look() if look is None else look
    return [check(where) for name, check in CHECKS.items() if name != "broker" or _names_broker(where.log)]


def _names_broker(log: str) -> bool:
    """Return whether a log needs a broker; SQLite's is a file."""
    return bool(log) and not log.startswith("sqlite:")


def _perf(look: Look) -> Check:
    needed = "flameslice record, reading perf.data"
    perf = shutil.which("perf")
    if perf is None:
        remedy = (
            "apt-get install linux-perf (Debian), linux-tools-generic (Ubuntu), dnf install perf (Fedora)"
        )
        return Check("perf", "no", "not on PATH", remedy, needed)
    ran = _try([perf, "--version"])
    if isinstance(ran, str):
        return Check("perf", "unknown", ran, "run perf --version", needed)
    if ran.returncode != 0:
        remedy = "install the perf that belongs to this kernel"
        return Check("perf", "no", f"{perf} does not run: {_last_line(ran.stderr)}", remedy, needed)
    return Check("perf", "ok", ran.stdout.strip(), needed_for=needed)


def _paranoid(look: Look) -> Check:
    name, needed = "perf_event_paranoid", "recording other users' processes, the kernel and the whole machine"
    try:
        level = int(look.text("proc/sys/kernel/perf_event_paranoid"))
    except (OSError, ValueError) as error:
        return Check(name, "unknown", f"cannot read it: {error}", "is perf_event in this kernel?", needed)
    if level <= -1 or _may_record_all(look):
        who = "this process may record all the same" if level > -1 else "everybody may record everything"
        return Check(name, "ok", f"{level}: {who}", needed_for=needed)
    return Check(name, "no", str(level), "sudo sysctl kernel.perf_event_paranoid=-1, or run as root", needed)


def _may_record_all(look: Look) -> bool:
    """Return whether this process has CAP_PERFMON or CAP_SYS_ADMIN; root in a container may not."""
    match = re.search(r"^CapEff:\s*([0-9a-f]+)", look.text("proc/self/status"), re.MULTILINE)
    return match is not None and bool(int(match[1], 16) & (1 << 38 | 1 << 21))


def _kptr(look: Look) -> Check:
    name, needed = "kptr_restrict", "names of kernel functions"
    try:
        level = int(look.text("proc/sys/kernel/kptr_restrict"))
        shows = any(int(line.split(None, 1)[0], 16) for line in _first_lines(look.root / "proc/kallsyms", 50))
    except (OSError, ValueError, IndexError) as error:
        return Check(name, "unknown", f"cannot read it: {error}", "look at /proc/kallsyms as root", needed)
    if shows:
        return Check(name, "ok", f"{level}: kernel addresses are shown", needed_for=needed)
    # at level 0 the kernel still hides them from who may not profile it
    knob = "kernel.kptr_restrict=0" if level else "kernel.perf_event_paranoid=1"
    remedy = f"sudo sysctl {knob}, or run as root"
    return Check(name, "no", f"{level}: /proc/kallsyms shows only zeros", remedy, needed)


def _mlock(look: Look) -> Check:
    name, needed = "mlock_limit", "perf's buffers: small ones lose events"
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limit = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft >> 10} KiB"
    try:
        kernel_kib = int(look.text("proc/sys/kernel/perf_event_mlock_kb"))
    except (OSError, ValueError) as error:
        return Check(
            name, "unknown", f"cannot read perf_event_mlock_kb: {error}", "is perf_event there?", needed
        )
    detail = f"perf_event_mlock_kb {kernel_kib} KiB per CPU, RLIMIT_MEMLOCK {limit}"
    # a buffer of 128 pages and its head page is what record asks for without root
    if kernel_kib >= 516 or soft == resource.RLIM_INFINITY or os.geteuid() == 0:
        return Check(name, "ok", detail, needed_for=needed)
    return Check(
        name, "no", detail, "sudo sysctl kernel.perf_event_mlock_kb=516, or ulimit -l unlimited", needed
    )


def _tracefs(look: Look) -> Check:
    name, needed = "tracefs", "presets latency and full"
    for folder in ("sys/kernel/tracing", "sys/kernel/debug/tracing"):
        path = look.root / folder
        try:
            if (path / "events").is_dir() and any((path / "events").iterdir()):
                return Check(name, "ok", f"mounted at /{folder} and readable", needed_for=needed)
            if path.is_dir() and any(path.iterdir()):
                break
        except PermissionError:
            remedy = f"run as root, or sudo mount -o remount,mode=755 /{folder}"
            return Check(name, "no", f"/{folder} may not be read", remedy, needed)
        except OSError as error:
            return Check(name, "unknown", f"cannot look at /{folder}: {error}", "look as root", needed)
    return Check(name, "no", "not mounted", "sudo mount -t tracefs nodev /sys/kernel/tracing", needed)


def _tracepoints(look: Look) -> Check:
    remedy = "run as root: tracepoints of the whole machine need it (or CAP_PERFMON and a readable tracefs)"
    options = ["-a", "-e", "sched:sched_switch"]
    return _try_to_record("sched_tracepoints", options, remedy, "presets latency and full")


def _cpu_clock(look: Look) -> Check:
    return _try_to_record(
        "cpu_clock", ["-e", "cpu-clock"], "allow perf_event (see above)", "CPU flame graphs"
    )


def _cycles(look: Look) -> Check:
    name, needed = "cycles", "--cpu-event cycles, --call-graph lbr (cpu-clock does without)"
    perf = shutil.which("perf")
    if perf is None:
        return Check(name, "unknown", "perf is not installed", "install perf", needed)
    ran = _try([perf, "stat", "-x,", "-e", "cycles:u", "--", "true"])
    if isinstance(ran, str):
        return Check(name, "unknown", ran, "run perf stat -e cycles true", needed)
    counted = next((line for line in ran.stderr.splitlines() if "cycles" in line), "")
    if ran.returncode == 0 and counted[:1].isdigit():
        return Check(name, "ok", "the CPU counts cycles", needed_for=needed)
    if "<not supported>" in counted:
        remedy = "nothing to do: virtual machines often hide the counters; record uses cpu-clock"
        return Check(name, "no", "this CPU, or its hypervisor, offers no cycles counter", remedy, needed)
    return Check(name, "unknown", counted or _last_line(ran.stderr), "run perf stat -e cycles true", needed)


def _ptrace(look: Look) -> Check:
    name, needed = "ptrace_scope", "py-spy on processes that run already"
    try:
        level = int(look.text("proc/sys/kernel/yama/ptrace_scope"))
    except FileNotFoundError:
        return Check(name, "ok", "no Yama in this kernel: own processes may be read", needed_for=needed)
    except (OSError, ValueError) as error:
        return Check(name, "unknown", f"cannot read it: {error}", "look as root", needed)
    if level == 0 or (level < 3 and os.geteuid() == 0):
        return Check(name, "ok", str(level), needed_for=needed)
    remedy = "sudo sysctl kernel.yama.ptrace_scope=0, or run as root"
    if level >= 3:
        remedy = (
            "level 3 stays until the next boot: change kernel.yama.ptrace_scope in /etc/sysctl.d and reboot"
        )
    return Check(name, "no", str(level), remedy, needed)


def _seccomp(look: Look) -> Check:
    name, needed = "seccomp", "perf_event_open and process_vm_readv inside containers"
    try:
        status = look.text("proc/self/status")
    except OSError as error:
        return Check(name, "unknown", f"cannot read /proc/self/status: {error}", "look at it by hand", needed)
    match = re.search(r"^Seccomp:\s*(\d)", status, re.MULTILINE)
    if match is None:
        return Check(name, "unknown", "this kernel does not tell", "none: CONFIG_SECCOMP may be off", needed)
    if match[1] == "0":
        return Check(name, "ok", "no filter on this process", needed_for=needed)
    remedy = "docker run --cap-add PERFMON --cap-add SYS_PTRACE --security-opt seccomp=unconfined"
    return Check(name, "no", "system calls of this process are filtered", remedy, needed)


def _py_spy(look: Look) -> Check:
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.is_file() else shutil.which("py-spy")
    if found is None:
        return Check("py_spy", "no", "not installed", "pip install py-spy", "Python stacks")
    ran = _try([found, "--version"])
    if isinstance(ran, str) or ran.returncode != 0:
        why = ran if isinstance(ran, str) else _last_line(ran.stderr)
        return Check("py_spy", "unknown", f"{found}: {why}", "run py-spy --version", "Python stacks")
    return Check("py_spy", "ok", ran.stdout.strip(), needed_for="Python stacks")


def _nvml(look: Look) -> Check:
    needed = "GPU and PCIe counters"
    try:
        import pynvml  # type: ignore[import-untyped]
    except ImportError:
        return Check("nvml", "no", "nvidia-ml-py is not installed", "pip install nvidia-ml-py", needed)
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Check(
            "nvml", "no", str(error), "install the NVIDIA driver; in a container, run with --gpus", needed
        )
    try:
        driver, devices = pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlDeviceGetCount()
        return Check("nvml", "ok", f"driver {driver}, {devices} GPUs", needed_for=needed)
    except pynvml.NVMLError as error:
        return Check("nvml", "unknown", str(error), "run nvidia-smi", needed)
    finally:
        pynvml.nvmlShutdown()


def _tool(command: str, name: str, needed: str) -> Callable[[Look], Check]:
    def check(look: Look) -> Check:
        found = shutil.which(command)
        if found:
            return Check(command, "ok", found, needed_for=needed)
        return Check(command, "no", "not on PATH", f"install {name} and add it to PATH", needed)

    return check


def _broker(look: Look) -> Check:
    needed = "the Kafka log"
    match = _BROKER.fullmatch(look.log)
    if match is None:
        return Check("broker", "unknown", f"{look.log} is no kafka://HOST:PORT", "correct it", needed)
    address = (match[1], int(match[2]))
    try:
        with socket.create_connection(address, timeout=_CONNECT_SECONDS):
            return Check("broker", "ok", f"{match[1]}:{match[2]} accepts connections", needed_for=needed)
    except (OSError, OverflowError) as error:
        why = f"{match[1]}:{match[2]}: {error}"
        return Check("broker", "no", why, "start the broker, or check its address", needed)


CHECKS: Mapping[str, Callable[[Look], Check]] = {
    "perf": _perf,
    "perf_event_paranoid": _paranoid,
    "kptr_restrict": _kptr,
    "mlock_limit": _mlock,
    "tracefs": _tracefs,
    "sched_tracepoints": _tracepoints,
    "cpu_clock": _cpu_clock,
    "cycles": _cycles,
    "ptrace_scope": _ptrace,
    "seccomp": _seccomp,
    "py_spy": _py_spy,
    "nvml": _nvml,
    "ncu": _tool("ncu", "Nsight Compute", "kernel metrics of GPUs"),
    "nsys": _tool("nsys", "Nsight Systems", "timelines of GPUs"),
    "broker": _broker,
}


def _try_to_record(name: str, options: list[str], remedy: str, needed: str) -> Check:
    """Really record a process that does nothing."""
    perf = shutil.which("perf")
    if perf is None:
        return Check(name, "unknown", "perf is not installed", "install perf", needed)
    with tempfile.TemporaryDirectory(prefix="flameslice-") as folder:
        ran = _try([perf, "record", "-q", "-N", "-o", f"{folder}/perf.data", *options, "--", "true"])
    if isinstance(ran, str):
        return Check(name, "unknown", ran, remedy, needed)
    if ran.returncode == 0:
        return Check(name, "ok", f"recorded with {' '.join(options)}", needed_for=needed)
    return Check(name, "no", _last_line(ran.stderr), remedy, needed)


def _try(command: list[str]) -> subprocess.CompletedProcess[str] | str:
    """Run a command; return how it went, or why it could not be run."""
    env = os.environ | {"LC_ALL": "C", "PERF_CONFIG": os.devnull}
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=env,
            timeout=_TRY_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"could not try: {error}"


def _last_line(stderr: str) -> str:
    from collectors.perf_process import error_line

    return error_line(stderr)


def _first_lines(path: Path, count: int) -> list[str]:
    with path.open(errors="replace") as lines:
        return [line for _, line in zip(range(count), lines, strict=False)]
