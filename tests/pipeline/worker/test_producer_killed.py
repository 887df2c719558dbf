"""An ingest that is killed and run again adds only what was missing, on both logs."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from collectors import perf_script
from collectors.source import Source

ROOT = Path(__file__).resolve().parents[3]
KILLS = int(os.environ.get("FLAMESLICE_SOAK_KILLS", "5"))
SAMPLES = 60_000


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "perf.txt"
    with path.open("w") as out:
        for number in range(SAMPLES):
            out.write(
                f"server {100 + number % 7}/{100 + number % 50} [{number % 4:03d}] {1000 + number / 10_000:.6f}: "
                f"{1_000_000 + number} cpu-clock:\n"
                f"\t    55d0{number % 97:04x} work_{number % 31} (/usr/bin/server)\n"
                f"\t    55d0ffff main (/usr/bin/server)\n\n"
            )
    return path


@pytest.mark.parametrize("seed", range(KILLS))
def test_an_ingest_killed_at_random_loses_and_doubles_nothing(bench: Any, text: Path, seed: int) -> None:
    chance = random.Random(seed)
    command = [sys.executable, "-m", "flameslice", "ingest", str(text), "--log", bench.log_url]
    command += ["--data", str(bench.data), "--capture", "killed"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    for _ in range(2):
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
            time.sleep(chance.uniform(0.4, 2.0))
            process.kill()
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    if bench.log_url.startswith("kafka"):
        assert bench.run_worker() == 0
    capture = done.stdout.strip()
    assert bench.capture(capture).status == "complete"
    with Source.open_path(str(text)) as source:
        expected = pl.concat([batch.perf_events for batch in perf_script.Stream(source).batches()])
    stored = bench.stored(capture)
    assert stored["row"].to_list() == list(range(SAMPLES))
    assert stored.select(pl.exclude("capture", "source", "row", "clock")).equals(expected.drop("clock"))
