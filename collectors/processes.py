"""What /proc says about processes: their descendants, names, and the container that they run in.

Lines of /proc/PID/cgroup, version 2 and 1:

    0::/system.slice/docker-<64 hexadecimal digits>.scope
    0::/kubepods.slice/kubepods-burstable-pod<uid with _>.slice/cri-containerd-<64>.scope
    4:memory:/kubepods/burstable/pod<uid with ->/<64>
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from pipeline.capture import Process
from pipeline.text import decode, escape

PROC = Path("/proc")
_CONTAINER = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")


def is_alive(pid: int, proc: Path = PROC) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        return (proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (OSError, IndexError):
        return False


def with_descendants(pids: Iterable[int], proc: Path = PROC) -> list[int]:
    """Return those of pids that live, and all their descendants; it looks at no other process."""
    found: dict[int, None] = {}
    todo = list(pids)
    while todo:
        pid = todo.pop()
        if pid in found or not is_alive(pid, proc):
            continue
        found[pid] = None
        for children in (proc / str(pid) / "task").glob("*/children"):
            try:
                todo += map(int, children.read_text().split())
            except OSError:
                continue  # the thread has ended meanwhile
    return list(found)


def describe(pid: int, proc: Path = PROC) -> Process | None:
    """Return a process's name and container, None where it has ended."""
    try:
        comm = (proc / str(pid) / "comm").read_bytes().removesuffix(b"\n")
        cgroup = (proc / str(pid) / "cgroup").read_text(errors="replace")
    except OSError:
        return None
    container, pod = container_ids(cgroup)
    return Process(pid, escape(decode(comm)), container, pod)


def container_ids(cgroup: str) -> tuple[str, str]:
    """Return (container id, pod uid) of a /proc/PID/cgroup, each empty where it shows none.

    Of nested containers the innermost counts: its id stands last in the path.
    """
    containers, pods = _CONTAINER.findall(cgroup), _POD.findall(cgroup)
    return containers[-1] if containers else "", pods[-1].replace("_", "-") if pods else ""


def all_in_containers(proc: Path = PROC) -> list[Process]:
    """Return every process of the machine that runs in a container."""
    pids = sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal())
    described = (describe(pid, proc) for pid in pids)
    return [one for one in described if one is not None and one.container_id]
