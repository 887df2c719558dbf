"""--source: one file of a stored capture, where its files do not go together."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FOLDED = "main;wait 4\nmain;work 3\n"
PERF = """server 10/10 [000] 100.000000: 1000000 cpu-clock:
\t55d000010000 work (/usr/bin/server)

server 10/10 [000] 100.001000: 2000000 cpu-clock:
\t55d000030000 wait (/usr/bin/server)

"""
RunCli = Callable[..., Any]


@pytest.fixture
def mixed(run_cli: RunCli, tmp_path: Path) -> RunCli:
    (tmp_path / "a.folded").write_text(FOLDED)
    (tmp_path / "perf.txt").write_text(PERF)
    assert run_cli("ingest", "a.folded", "perf.txt", "--capture", "mixed").status == 0
    return run_cli


def test_files_that_count_different_things_are_drawn_one_by_one(mixed: RunCli) -> None:
    both = mixed("flamegraph", "mixed", "--format", "folded")
    assert both.status == 1
    assert "--source" in both.stderr
    one = mixed("flamegraph", "mixed", "--format", "folded", "--source", "a.folded")
    assert (one.status, one.stdout.decode()) == (0, FOLDED)
    other = mixed("flamegraph", "mixed", "--format", "folded", "--source", "perf.txt")
    assert (other.status, other.stdout.decode()) == (0, "server;wait 2000000\nserver;work 1000000\n")


def test_a_source_is_named_by_the_beginning_of_its_sha256_too(mixed: RunCli) -> None:
    digest = hashlib.sha256(FOLDED.encode()).hexdigest()
    one = mixed("flamegraph", "mixed", "--format", "folded", "--source", digest[:12])
    assert (one.status, one.stdout.decode()) == (0, FOLDED)


def test_slices_of_one_source(mixed: RunCli) -> None:
    table = mixed("slices", "mixed", "--source", "perf.txt")
    assert table.status == 0
    assert len(table.stdout.splitlines()) > 2


def test_what_is_no_source_is_told_with_those_that_are(mixed: RunCli) -> None:
    none = mixed("flamegraph", "mixed", "--source", "nope")
    assert none.status == 2
    assert "a.folded, perf.txt" in none.stderr
    file = mixed("flamegraph", "a.folded", "--source", "a.folded")
    assert file.status == 2
    assert "stored capture" in file.stderr
