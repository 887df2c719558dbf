"""py-spy beside a recording: the real one, on a program that tells when it did what."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collectors.py_spy_record import PySpy, find_py_spy
from pipeline.errors import WorkError

PROGRAM = """
import time
def rest():
    end = time.monotonic() + 0.6
    while time.monotonic() < end: sum(range(100))
def work():
    end = time.monotonic() + 0.6
    while time.monotonic() < end: sum(range(100))
rest()
print(time.monotonic_ns(), flush=True)
work()
time.sleep(30)
"""
RATE_HZ = 200


@pytest.fixture(autouse=True)
def needs_py_spy() -> None:
    try:
        find_py_spy()
    except WorkError as error:
        pytest.skip(str(error))


def test_the_start_of_its_times_lies_within_what_is_stated(tmp_path: Path) -> None:
    output = tmp_path / "py-spy.json"
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE) as program:
        py_spy = PySpy(program.pid, output, RATE_HZ)
        assert program.stdout is not None
        work_ns = int(program.stdout.readline())
        time.sleep(0.8)
        try:
            stamped = py_spy.stop()
        except WorkError as error:
            pytest.skip(f"py-spy may not look here: {error.remedy}")
        finally:
            program.kill()
    (began,) = [
        one["ts"] for one in json.loads(output.read_text()) if (one["name"], one["ph"]) == ("work", "B")
    ]
    seen_ns = stamped.start_ns + began * 1000
    late_ns = 4 * 10**9 // RATE_HZ  # the sample after; on a machine with other work it comes late
    assert work_ns - stamped.uncertainty_ns <= seen_ns <= work_ns + stamped.uncertainty_ns + late_ns
    assert 0 < stamped.uncertainty_ns < 1_000_000_000


def test_what_is_no_python_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "30"]) as program:
        py_spy = PySpy(program.pid, tmp_path / "py-spy.json", RATE_HZ)
        time.sleep(0.5)
        with pytest.raises(WorkError, match="py-spy recorded nothing"):
            py_spy.stop()
        program.kill()
    assert list(tmp_path.iterdir()) == []
    assert not any(Path(f"/proc/{pid}").exists() for pid in py_spy.pids if pid != os.getpid())
