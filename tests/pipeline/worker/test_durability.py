"""What a power cut leaves: the order of writes, fsyncs, links and commits, as the kernel saw it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CALLS = (
    "openat,open,write,pwrite64,fsync,fdatasync,link,linkat,rename,renameat,renameat2,close,unlink,unlinkat"
)
LINE = re.compile(r"^(?:\d+ +)?(?P<call>\w+)\((?P<args>.*)\) += (?P<result>-?\d+)(?P<shown><[^>]*>)?")


@pytest.fixture
def strace() -> str:
    path = shutil.which("strace")
    if path is None:
        pytest.skip("strace is not on PATH (apt-get install strace)")
    return path


def traced(bench, strace: str, tmp_path: Path) -> list[tuple[str, str]]:
    """Return (call, arguments with paths) of a worker's run, those that succeeded."""
    worker = Path(__file__).with_name("faulty_worker.py")
    out = tmp_path / "trace"
    command = [
        strace,
        "-f",
        "-y",
        "-s",
        "0",
        "-e",
        f"trace={CALLS}",
        "-o",
        str(out),
        sys.executable,
        str(worker),
    ]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    subprocess.run(
        [*command, bench.log_url, str(bench.data), "never", "1"], env=environment, check=True, timeout=120
    )
    return parsed(out.read_text(errors="replace"))


def parsed(text: str) -> list[tuple[str, str]]:
    """Join the halves of calls that another thread's interrupted."""
    found, halves = [], {}
    for line in text.splitlines():
        pid, _, rest = line.partition(" ")
        if rest.endswith("<unfinished ...>"):
            halves[pid] = rest.removesuffix("<unfinished ...>").strip()
            continue
        if " resumed>" in rest:
            rest = halves.pop(pid, "") + rest.partition(" resumed>")[2]
        match = LINE.match(rest.strip())
        if match is not None and not match["result"].startswith("-"):
            found.append((match["call"], match["args"]))
    return found


def test_parts_are_durable_before_the_log_forgets_their_messages(
    embedded, strace: str, tmp_path: Path
) -> None:
    bench = embedded
    bench.append()
    calls = traced(bench, strace, tmp_path)
    bench.check()
    log = str(tmp_path / "log.sqlite")
    parts = 0
    state: dict[str, str] = {}  # draft -> written, synced
    unsynced_folders: set[str] = set()
    for call, args in calls:
        paths = re.findall(r"<([^>]+)>", args)
        path = paths[0] if paths else ""
        if call in ("write", "pwrite64") and "/.draft-" in path:
            state[path] = "written"
        elif call in ("fsync", "fdatasync"):
            if "/.draft-" in path:
                state[path] = "synced"
            unsynced_folders.discard(path)
        elif call in ("link", "linkat") and "/perf_events" in path:
            draft = f"{path}/{re.findall(chr(34) + '([^' + chr(34) + ']+)' + chr(34), args)[0]}"
            assert state[draft] == "synced", "a part was published before its bytes were durable"
            unsynced_folders.add(path)
            parts += 1
        elif call in ("write", "pwrite64") and path.startswith(log):
            # the only thing that a worker writes to the log is a commit
            assert not unsynced_folders, "a commit was written before a part's name was durable"
    assert parts >= 10


def test_what_is_appended_is_synced_before_flush_returns(tmp_path: Path, strace: str) -> None:
    script = tmp_path / "append.py"
    script.write_text(
        "import os, sys\n"
        "from pathlib import Path\n"
        "from pipeline.log.embedded import EmbeddedLog\n"
        "from pipeline.log.protocol import Message\n"
        "log = EmbeddedLog(Path(sys.argv[1]))\n"
        "for number in range(5):\n"
        "    log.append([Message('flameslice.frames', b'k', b'v' * 5000)])\n"
        "    log.flush()\n"
        "    os.close(os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT))\n"
    )
    out, mark, log = tmp_path / "trace", tmp_path / "flushed", tmp_path / "log.sqlite"
    command = [
        strace,
        "-f",
        "-y",
        "-s",
        "0",
        "-e",
        f"trace={CALLS}",
        "-o",
        str(out),
        sys.executable,
        str(script),
    ]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    subprocess.run([*command, str(log), str(mark)], env=environment, check=True, timeout=60)
    unsynced, flushes = False, 0
    for call, args in parsed(out.read_text(errors="replace")):
        if call in ("write", "pwrite64") and f"<{log}-wal>" in args:
            unsynced = True
        elif call in ("fsync", "fdatasync") and f"<{log}-wal>" in args:
            unsynced = False
        elif call == "openat" and str(mark) in args:
            assert not unsynced, "flush returned before the log was durable"
            flushes += 1
    assert flushes == 5
