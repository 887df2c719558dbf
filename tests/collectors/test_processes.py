"""What /proc says, from folders made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors import processes
from pipeline.capture import Process

ID, OTHER = "0123456789abcdef" * 4, "fedcba9876543210" * 4
POD = "12345678-1234-1234-1234-123456789abc"


@pytest.mark.parametrize(
    ("cgroup", "container", "pod"),
    [
        ("0::/user.slice/session-1.scope\n", "", ""),
        (f"0::/system.slice/docker-{ID}.scope\n", ID, ""),
        (f"5:cpu:/docker/{ID}\n4:memory:/docker/{ID}\n", ID, ""),
        (f"0::/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-{ID}.scope", ID, POD),
        (f"4:memory:/kubepods/burstable/pod{POD}/{ID}\n", ID, POD),
        (f"0::/docker/{OTHER}/kubelet/pod{POD}/{ID}\n", ID, POD),
        (f"0::/build-{ID}0/job\n", "", ""),
    ],
)  # fmt: skip
def test_container_and_pod_are_read_from_the_cgroup(cgroup: str, container: str, pod: str) -> None:
    assert processes.container_ids(cgroup) == (container, pod)


def make(proc: Path, pid: int, children: str = "", comm: bytes = b"x\n", state: str = "S") -> None:
    (proc / f"{pid}/task/{pid}").mkdir(parents=True)
    (proc / f"{pid}/task/{pid}/children").write_text(children)
    (proc / f"{pid}/comm").write_bytes(comm)
    (proc / f"{pid}/cgroup").write_text(f"0::/docker/{ID}\n" if pid == 2 else "0::/\n")
    (proc / f"{pid}/stat").write_text(f"{pid} (a) Z (b) {state} 1 1")


def test_descendants_are_found_and_what_has_ended_is_not(tmp_path: Path) -> None:
    make(tmp_path, 1, "2 3 ")
    make(tmp_path, 2, "4 ")
    make(tmp_path, 4)
    assert set(processes.with_descendants([1, 99], tmp_path)) == {1, 2, 4}


def test_a_name_in_odd_bytes_is_kept_escaped(tmp_path: Path) -> None:
    make(tmp_path, 2, comm=b"\xffname \n\n")
    assert processes.describe(2, tmp_path) == Process(2, "\\xffname \n", ID, "")
    assert processes.describe(3, tmp_path) is None


def test_a_zombie_is_not_alive(tmp_path: Path) -> None:
    make(tmp_path, 1, state="Z")
    make(tmp_path, 2, state="R")
    assert [processes.is_alive(pid, tmp_path) for pid in (1, 2, 3)] == [False, True, False]


def test_only_processes_in_containers_are_listed_for_a_machine(tmp_path: Path) -> None:
    make(tmp_path, 1)
    make(tmp_path, 2)
    (tmp_path / "self").mkdir()
    assert [one.pid for one in processes.all_in_containers(tmp_path)] == [2]
