"""`flameslice flamegraph` from outside: formats, filters, what is said, exit statuses, refusals."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import xml.dom.minidom
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import RunCli  # type: ignore[import-not-found]

ROOT = Path(__file__).resolve().parents[2]
STACK = "\t    401010 inner+0x10 (/bin/a)\n\t    401000 main+0x1 (/bin/a)\n\n"
CAPTURE = "".join(
    f"{comm} {pid}/{tid} [00{cpu}] {second}.000000: {period} {event}: \n{STACK}"
    for comm, pid, tid, cpu, second, period, event in [
        ("app", 1, 1, 0, 10, 5, "cpu-clock"),
        ("app", 1, 2, 1, 11, 7, "cpu-clock"),
        ("db x", 3, 3, 0, 12, 11, "cpu-clock"),
        ("db x", 3, 3, 0, 13, 1, "page-faults"),
    ]
)


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "perf.txt"
    path.write_text(CAPTURE)
    return path


def test_folded_lines_of_the_first_sample_s_event(run_cli: RunCli, capture: Path) -> None:
    ran = run_cli("flamegraph", capture, "--format", "folded")
    assert (ran.status, ran.stdout) == (0, b"app;main;inner 12\ndb_x;main;inner 11\n")
    assert ran.stderr.count("\n") == 1
    assert "cpu-clock (3 samples)" in ran.stderr
    assert "page-faults (1 samples)" in ran.stderr


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (["--event", "page-faults"], b"db_x;main;inner 1\n"),
        (["--weight", "samples", "--event", "cpu-clock"], b"app;main;inner 2\ndb_x;main;inner 1\n"),
        (["--pid", "1"], b"app;main;inner 12\n"),
        (["--tid", "2", "--tid", "3", "--event", "cpu-clock"], b"app;main;inner 7\ndb_x;main;inner 11\n"),
        (["--cpu", "0", "--pid", "1"], b"app;main;inner 5\n"),
        (["--comm", "db x", "--event", "cpu-clock"], b"db_x;main;inner 11\n"),
        (["--from", "1s", "--to", "2s"], b"app;main;inner 7\n"),
        (["--from", "11", "--to", "12"], b"app;main;inner 7\n"),
        (["--from=-2s", "--event", "cpu-clock"], b"app;main;inner 7\ndb_x;main;inner 11\n"),
        (["--event", "all"], b"app;main;inner 12\ndb_x;main;inner 12\n"),
    ],
)
def test_filters_and_weights(run_cli: RunCli, capture: Path, options: list[str], lines: bytes) -> None:
    ran = run_cli("flamegraph", capture, "--format", "folded", *options)
    assert (ran.status, ran.stdout) == (0, lines), ran.stderr


def test_standard_input_and_compression_read_the_same(run_cli: RunCli, capture: Path) -> None:
    plain = run_cli("flamegraph", capture, "--format", "folded").stdout
    assert run_cli("flamegraph", "-", "--format", "folded", stdin=CAPTURE.encode()).stdout == plain
    packed = gzip.compress(CAPTURE.encode(), mtime=0)
    assert run_cli("flamegraph", "-", "--format", "folded", stdin=packed).stdout == plain
    ranged = run_cli("flamegraph", "-", "--format", "folded", "--from", "1s", "--to", "2s", stdin=packed)
    assert ranged.stdout == b"app;main;inner 7\n", ranged.stderr


@pytest.mark.parametrize("name", ["x.svg", "x.folded", "x.speedscope.json", "x.json", "x.txt"])
def test_the_suffix_tells_the_format(run_cli: RunCli, capture: Path, tmp_path: Path, name: str) -> None:
    ran = run_cli("flamegraph", capture, "-o", tmp_path / name)
    assert (ran.status, ran.stdout) == (0, b""), ran.stderr
    written = (tmp_path / name).read_bytes()
    if name.endswith(".svg"):
        assert xml.dom.minidom.parseString(written).documentElement.tagName == "svg"
    elif name.endswith(".json"):
        document = json.loads(written)
        assert document.get("schema_version") or "speedscope" in document["$schema"]
    else:
        assert written == b"app;main;inner 12\ndb_x;main;inner 11\n"
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == sorted([capture.name, name])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"\n\n  \n", "blank"),
        (b"perf-exec 22291   880.326636: PERF_RECORD_LOST lost 2\n", "no samples"),
        (b"# cmdline : perf record\n# nrcpus online : 4\n", "not a capture"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'></svg>", "SVG"),
        (b"hello world, this is prose\nand more of it\n", "text of an unknown kind"),
        (bytes(range(256)) * 20, "binary"),
    ],
)
def test_nothing_to_draw_is_one_line(run_cli: RunCli, tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "odd"
    path.write_bytes(content)
    ran = run_cli("flamegraph", path, "-o", tmp_path / "x.svg")
    assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (1, b"", 1), ran.stderr
    assert said in ran.stderr
    assert str(path) in ran.stderr
    assert not (tmp_path / "x.svg").exists()


def test_nothing_left_after_the_filters_is_one_line(run_cli: RunCli, capture: Path) -> None:
    ran = run_cli("flamegraph", capture, "--pid", "99")
    assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (1, b"", 1), ran.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--event", "nope"],
        ["--weight", "x"],
        ["--from", "later"],
        ["--from", "2s", "--to", "1s"],
        ["-o", "x.unknown"],
        ["--nope"],
        ["--workers", "0"],
    ],
)
def test_wrong_usage_is_one_line_and_status_2(run_cli: RunCli, capture: Path, options: list[str]) -> None:
    ran = run_cli("flamegraph", capture, *options)
    assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (2, b"", 1), ran.stderr


def test_loss_beyond_the_bound_is_status_3(run_cli: RunCli, tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_text(CAPTURE + "\n\nrubbish\n\n" + CAPTURE)
    assert run_cli("flamegraph", path, "--format", "folded").status == 3  # 1 of 9 rows
    ran = run_cli("flamegraph", path, "--format", "folded", "--max-loss", "20")
    assert ran.status == 0
    assert f"first at line {CAPTURE.count(chr(10)) + 3}: 'rubbish'" in ran.stderr


def test_a_closed_pipe_is_silent(capture: Path) -> None:
    ours = f"{sys.executable} -m flameslice flamegraph {capture} --event cpu-clock"
    command = f"{ours} | head -c 10; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=60
    )
    assert (len(done.stdout), done.stderr) == (10, b"")


def test_an_unreadable_name_does_not_reach_the_terminal(run_cli: RunCli, tmp_path: Path) -> None:
    ran = run_cli("flamegraph", tmp_path / "no\x1b[31m\nsuch")
    assert (ran.status, ran.stderr.count("\n")) == (1, 1)
    assert "\x1b" not in ran.stderr


def test_a_kind_that_was_not_captured_is_said(run_cli: RunCli, capture: Path) -> None:
    ran = run_cli("flamegraph", capture, "--kind", "off_cpu")
    assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (1, b"", 1)
    assert "off_cpu was not captured" in ran.stderr


def test_the_corpus_is_read_or_refused_in_one_line(run_cli: RunCli, corpus: Path) -> None:
    odd = []
    for path in sorted(corpus.rglob("*")):
        if not path.is_file() or path.stat().st_size > 3 << 20:
            continue
        ran = run_cli("flamegraph", path, "--format", "folded")
        is_read = ran.status in (0, 3) and ran.stdout
        is_refused = ran.status == 1 and not ran.stdout and ran.stderr.count("\n") == 1
        if not (is_read or is_refused) or "Traceback" in ran.stderr or "flameslice failed" in ran.stderr:
            odd.append((path.name, ran.status, ran.stderr[:200]))
    assert odd == []
