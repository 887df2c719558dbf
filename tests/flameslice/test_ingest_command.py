"""`flameslice ingest` from outside: what is kept equals the file, twice adds nothing, and nothing breaks it."""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import os
import random
import signal
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import zstandard

from analyzers import flame_graph
from analyzers.render import collapsed
from collectors import READERS
from flameslice import ingest
from flameslice.commands.options import Asked
from flameslice.inputs import fold_input
from pipeline.errors import FlamesliceError
from pipeline.store.catalog import Catalog
from pipeline.store.place import open_place

ROOT = Path(__file__).resolve().parents[2]
STACK = b"\t7f12 main+0x1 (/bin/app)\n\t7f13 start (/bin/app)\n\n"

# a file of each format that flameslice reads, and of each way of compressing
PERF = (
    b"app 7/8 [001] 12.345678: 250000 cpu-clock:\n" + STACK + b":9 9/9 [000] 12.345700: 3 page-faults:\n" + STACK
    + b"b \xff;c 9/9 [000] 12.345800: 250000 cpu-clock:\n\tffffffff81000000 read;\\x5c\x01 ([kernel.kallsyms])\n\n"
)  # fmt: skip
FILES: dict[str, bytes] = {
    "perf_script": PERF,
    "perf_script gz": gzip.compress(PERF, mtime=0),
    "perf_script zst": zstandard.compress(PERF),
    "perf_script xz": lzma.compress(PERF),
    "perf_script without times": b"app  7 cpu-clock: \n" + STACK + b"app  7 cpu-clock: \n" + STACK,
    "perf_script tracepoints": (
        b"a 1 [000] 1.000000: sched:sched_switch: prev_comm=a prev_pid=1 prev_prio=120 prev_state=S ==> "
        b"next_comm=b next_pid=2 next_prio=120\n" + STACK
        + b"b 2 [000] 1.500000: sched:sched_switch: prev_comm=b prev_pid=2 prev_prio=120 prev_state=S ==> "
        b"next_comm=a next_pid=1 next_prio=120\n" + STACK
    ),
    "ftrace": (
        b"# clock: mono\n"
        b"             app-8       [001] d..2. 12.345678: sched_waking: comm=b\\ \xff pid=9 prio=120\n"
        b"             app-8       [001] d..2. 12.345679: <stack trace>\n => __schedule\n => schedule\n"
        b"           <...>-9       [000] ..... 12.345700: sys_write(fd: 1, buf: 0x7f, count: 2)\n"
        b"           b\\ \xff-9       [000] ..... 12.345701: sys_write -> 0x2\nCPU:1 [LOST 5 EVENTS]\n"
    ),
    "collapsed": b"app;main;read_[k] 12\napp;main 3.5\n# comment\nb \xff\\n;main 4\n",
    "py_spy_raw": b"<module> (a.py:1);f (a.py:2) 3\n0x7f (libc.so.6);<module> (a.py:1) 4\n",
    "speedscope": (
        b'{"$schema": "https://www.speedscope.app/file-format-schema.json", "shared": {"frames": [{"name": "f"},'
        b' {"name": "g", "file": "a.py", "line": 3}]}, "profiles": [{"type": "sampled", "name": "t", "unit":'
        b' "seconds", "startValue": 0, "endValue": 2, "samples": [[0], [0, 1]], "weights": [0.5, 1]}]}'
    ),
    "chrome_trace": (
        b'[{"ph": "B", "name": "f", "ts": 1, "pid": 1, "tid": 1}, {"ph": "X", "name": "g", "ts": 2, "dur": 3,'
        b' "pid": 1, "tid": 1}, {"ph": "E", "name": "f", "ts": 9, "pid": 1, "tid": 1}]'
    ),
}  # fmt: skip


def drawn(argument: str, data: str | None = None, event: str | None = "all") -> bytes:
    """Return the folded stacks of a file or of a stored capture."""
    fold = fold_input(argument, Asked(), forced_format=None, workers=1, data=data)
    graph = flame_graph.from_fold(fold, event=event, weight="period", title="", filters=())
    return collapsed.render(graph)


def ingested(path: Path, data: Path) -> str:
    """Ingest a file in this process; return the capture's id."""
    (one,) = ingest.ingest([str(path)], data=str(data), now_realtime_ns=1)
    return one.capture


# ------------------------------------------------------------------ what is kept is what the file says


def test_the_files_at_hand_are_of_every_format() -> None:
    assert {name.partition(" ")[0] for name in FILES} == set(READERS) - {"perf_data"}


@pytest.mark.parametrize("name", FILES)
def test_folded_stacks_of_what_is_kept_are_those_of_the_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(FILES[name])
    data = tmp_path / "kept"
    capture = ingested(path, data)
    for event in ("all", None):
        expected = drawn(str(path), event=event)
        assert expected
        assert drawn(capture, str(data), event) == expected
    assert drawn("capture:file", str(data)) == drawn(str(path))


def test_every_command_gives_the_same_for_what_is_kept(kept: Any, demo: Path, tmp_path: Path) -> None:
    assert kept.ingest(demo, "--capture", "server") == [kept.listed()[0]["id"]]
    for options in (
        ["flamegraph", "--format", "folded"],
        ["flamegraph", "--format", "folded", "--event", "all", "--weight", "samples"],
        ["flamegraph", "--format", "folded", "--event", "cpu-clock", "--from", "200ms", "--to", "700ms", "--cpu", "1"],
        ["flamegraph", "--format", "folded", "--kind", "off_cpu"],
        ["flamegraph", "--format", "speedscope", "--event", "cpu-clock", "--title", "t"],
        ["slices", "--width", "20ms"],
        ["slices", "--from", "100ms", "--to", "130ms"],
    ):  # fmt: skip
        command, *rest = options
        of_file = kept(command, demo, *rest)
        assert of_file.status == 0
        assert len(of_file.stdout) > 200
        assert kept(command, "server", *rest).stdout == of_file.stdout, options
    as_columns = [tmp_path / "file.parquet", tmp_path / "kept.parquet"]
    for argument, path in zip((demo, "capture:server"), as_columns, strict=True):
        assert kept("slices", argument, "-o", path).status == 0
    assert as_columns[0].read_bytes() == as_columns[1].read_bytes()


def test_a_recorded_capture_and_an_archive_of_it(kept: Any, perf: str, tmp_path: Path) -> None:
    command = ["sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"]
    directory = tmp_path / "r.capture"
    assert kept.run("record", "-o", directory, "--label", "of=record", "--", *command).status == 0
    (capture,) = kept.ingest(directory, "--label", "of=ingest", "--label", "more=1")
    shown = kept.shown(capture)
    manifest = json.loads((directory / "capture.json").read_text())
    assert (shown["id"], shown["name"]) == (manifest["id"], manifest["name"])
    assert shown["labels"] == {"of": "ingest", "more": "1"}
    assert {one["format"] for one in shown["sources"]} == {"perf_script", "clock_snapshots"}
    assert kept.folded(capture) == kept.folded(directory)
    assert kept("slices", capture).stdout == kept("slices", directory).stdout
    assert kept.table(capture, "clock_snapshots")["boot_id"].unique().to_list() == [manifest["boot_id"]]

    before = kept.tree()
    archive = tmp_path / "r.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(directory, "r.capture")
    packed = tmp_path / "r.tar.zst"
    packed.write_bytes(zstandard.compress(archive.read_bytes()))
    for path in (archive, packed):  # the same capture: its labels stay, nothing is added
        assert kept.ingest(path, "--label", "of=ingest", "--label", "more=1") == [capture]
    assert kept.tree() == before
    # perf.data alone, through perf script
    (loose,) = kept.ingest(directory / "perf.data", "--capture", "loose")
    assert kept.folded(loose) == kept.folded(directory / "perf.data")


def test_standard_input_and_a_pipe_with_a_name(kept: Any, tmp_path: Path) -> None:
    (capture,) = kept.ingest("-", stdin=PERF)
    assert kept.shown(capture)["name"] == "stdin"
    assert (
        kept.folded(capture)
        == kept("flamegraph", "-", "--format", "folded", "--event", "all", stdin=PERF).stdout
    )
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(FILES["perf_script xz"],))
    writer.start()
    (through_pipe,) = kept.ingest(pipe)
    writer.join()
    assert kept.folded(through_pipe) == kept.folded(capture)


def test_loose_files_are_one_capture_and_the_same_file_twice_is_one_source(kept: Any, tmp_path: Path) -> None:
    texts = {"a": b"a;f 1\n", "b": b"a;f 2\nb;g 5\n", "c": b"a;f 1\n"}
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a").write_bytes(b"c;h 7\n")  # the same name, other content
    (capture,) = kept.ingest("a", "b", "c", tmp_path / "a", "x/a", "--capture", "three")
    shown = kept.shown(capture)
    assert len(shown["sources"]) == 3
    names = [one["file"] for one in shown["sources"]]
    assert "a" in names
    assert sorted(path.name for path in (kept.folder(capture) / "raw").iterdir()) == sorted(
        [*names, "capture.json"]
    )
    assert sorted(kept.folded(capture).splitlines()) == [b"a;f 3", b"b;g 5", b"c;h 7"]
    # in another order the same capture
    assert kept.ingest("x/a", "b", "a", "--capture", "three") == [capture]


def test_captures_and_loose_files_in_one_run(kept: Any, tmp_path: Path) -> None:
    for number in (1, 2):
        directory = tmp_path / f"c{number}"
        directory.mkdir()
        (directory / "f.txt").write_bytes(f"x;y {number}\n".encode())
        sources = [{"file": "f.txt", "format": "collapsed"}]
        body = {
            "schema_version": "1.0",
            "id": f"id-{number}",
            "name": "n",
            "status": "complete",
            "sources": sources,
        }
        (directory / "capture.json").write_text(json.dumps(body))
    (tmp_path / "loose").write_bytes(b"x;y 3\n")
    found = kept.ingest(tmp_path / "c1", "loose", tmp_path / "c2")
    assert found[:2] == ["id-1", "id-2"]
    assert [kept.folded(one) for one in found] == [b"x;y 1\n", b"x;y 2\n", b"x;y 3\n"]


def test_an_input_format_may_be_forced(kept: Any, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"f (a.py:2) 3\n")
    ids = {
        kept.ingest("f", "--input-format", kind, "--capture", kind)[0] for kind in ("collapsed", "py_spy_raw")
    }
    assert {kept.shown(one)["sources"][0]["format"] for one in ids} == {"collapsed", "py_spy_raw"}


def test_every_capture_of_the_corpus_is_kept_as_it_is_drawn(corpus: Path, tmp_path: Path) -> None:
    """What flamegraph draws of a real file, it draws of the stored one: byte for byte."""
    files = sorted(
        path for path in (corpus / "perf").rglob("*") if path.is_file() and path.stat().st_size < 6 << 20
    )
    # there are hundreds of folded stacks, alike but for their numbers
    others = [path for path in files if "oracle" not in path.parts and "results" not in path.parts]
    alike = [path for path in files if path not in others]
    data, seen = tmp_path / "kept", 0
    for path in others + random.Random(3).sample(alike, min(len(alike), 25)):
        try:
            expected = drawn(str(path))
        except FlamesliceError:
            continue
        assert drawn(ingested(path, data), str(data)) == expected, path
        seen += 1
    assert seen > 100


# ------------------------------------------------------------------ again, stopped, at once


def test_twice_adds_nothing(kept: Any, demo: Path) -> None:
    (capture,) = kept.ingest(demo)
    tables, parts = kept.tables(capture), kept.parts(capture)
    assert (
        tables["perf_events"].height
        == kept.shown(capture)["sources"][0]["table_rows"]["perf_events"]
        > 10_000
    )
    assert kept.ingest(demo) == [capture]
    kept.work()
    assert kept.parts(capture) == parts
    assert kept.holds_the_same(capture, tables)
    assert kept.shown(capture)["status"] == "complete"
    assert len(kept.listed()) == 1


# what a run has made when it is killed
MOMENTS = [
    "log.sqlite",
    "captures/*/raw/*",
    "captures/*/facts/*",
    "captures/*/perf_events/part-*",
    "captures/*/manifest.json",
]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_that_is_killed_is_run_again(kept: Any, tmp_path: Path, perf_text: Any, moment: str) -> None:
    path = tmp_path / "perf.txt"
    path.write_bytes(perf_text(40_000))
    for seed in range(2):
        with ingest_process(path, kept.data) as process:
            deadline = time.monotonic() + 60
            while not list(kept.data.glob(moment)) and process.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.002)
            time.sleep(random.Random(f"{moment} {seed}").uniform(0.0, 0.4))
            process.send_signal(signal.SIGKILL)
    for one in kept.listed():
        assert one["status"] in ("receiving", "complete")
    (capture,) = kept.ingest(path)
    check_whole(kept, capture, path)


def test_a_killed_run_is_finished_by_a_worker_as_far_as_it_came(
    kept: Any, tmp_path: Path, perf_text: Any
) -> None:
    path = tmp_path / "perf.txt"
    path.write_bytes(perf_text(40_000))
    with ingest_process(path, kept.data) as process:
        while not list(kept.data.glob("captures/*/perf_events/part-*")) and process.poll() is None:
            time.sleep(0.002)
        process.kill()
    kept.work()
    (one,) = kept.listed()
    assert one["status"] in ("receiving", "complete")
    assert kept.ingest(path) == [one["id"]]
    check_whole(kept, one["id"], path)


def test_two_runs_at_once(kept: Any, tmp_path: Path, perf_text: Any) -> None:
    paths = [tmp_path / name for name in ("a.txt", "a.txt", "b.txt")]
    for path in paths:
        path.write_bytes(perf_text(20_000, comm=path.name[0]))
    processes = [ingest_process(path, kept.data) for path in paths]
    outcomes = [(process.communicate(timeout=120), process.returncode) for process in processes]
    assert [status for _, status in outcomes] == [0, 0, 0], outcomes
    ids = [out.decode().strip() for (out, _), _ in outcomes]
    assert ids[0] == ids[1] != ids[2]
    for capture, path in zip(ids, paths, strict=True):
        check_whole(kept, capture, path)


def ingest_process(path: Path, data: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "flameslice", "ingest", str(path), "--data", str(data)]
    env = os.environ | {"PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(data.parent / "config")}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def check_whole(kept: Any, capture: str, path: Path) -> None:
    """Fail unless a capture is kept whole, each row once."""
    found = Catalog(open_place(str(kept.data))).get(capture)
    assert found is not None
    assert found.status == "complete"
    assert drawn(capture, str(kept.data)) == drawn(str(path))
    fresh = type(kept)(kept.run, kept.data.parent / f"fresh-{path.name}")
    assert fresh.holds_the_same(ingested(path, fresh.data), kept.tables(capture))


# ------------------------------------------------------------------ reprocessing


def test_what_came_in_is_kept_and_gives_the_same_again(kept: Any, demo: Path, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a;f 1\n")
    captures = kept.ingest(demo, "--label", "k=v", "--capture", "server") + kept.ingest("f", tmp_path / "f")
    again = type(kept)(kept.run, tmp_path / "again")
    for capture in captures:
        assert again.ingest(kept.folder(capture) / "raw") == [capture]
        assert again.holds_the_same(capture, kept.tables(capture))
        assert again.folded(capture) == kept.folded(capture)
        ours, theirs = again.shown(capture), kept.shown(capture)
        assert ours == theirs
    raw = kept.folder(captures[0]) / "raw" / demo.name
    assert hashlib.sha256(raw.read_bytes()).digest() == hashlib.sha256(demo.read_bytes()).digest()


def test_a_raw_file_that_changed_is_refused(kept: Any, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a;f 1\n")
    (capture,) = kept.ingest("f")
    raw = kept.folder(capture) / "raw"
    (raw / "f").write_bytes(b"a;f 2\n")
    ran = kept.run("ingest", raw, "--data", tmp_path / "again")
    assert (ran.status, ran.stderr.count("\n")) == (1, 1)
    assert "SHA-256" in ran.stderr


def test_on_kafka_a_new_store_reads_everything_again(kept_on_kafka: Any, demo: Path, tmp_path: Path) -> None:
    kept = kept_on_kafka
    (tmp_path / "f").write_bytes(b"a;f 1\n")
    (capture,) = kept.ingest(demo)
    (gone,) = kept.ingest("f")
    assert {one["status"] for one in kept.listed()} == {"receiving"}
    kept.work()
    assert kept.folded(capture) == kept.folded(demo)
    tables = kept.tables(capture)
    assert kept("captures delete", gone, "--yes").status == 0

    again = type(kept)(kept.run, tmp_path / "again", kept.log)
    again.work()
    assert again.holds_the_same(capture, tables)
    assert [one["id"] for one in again.listed()] == [capture]
    assert not list(again.data.glob(f"captures/capture={gone}/*/*"))
    # the same file again gets an id that was never deleted
    (anew,) = again.ingest("f")
    assert anew != gone
    kept.work()
    assert {one["id"]: one["status"] for one in kept.listed()} == {capture: "complete", anew: "complete"}
    assert kept.folded(anew) == b"a;f 1\n"


# ------------------------------------------------------------------ what is said


def test_json_and_labels(kept: Any, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a;f 1\nno number\n" + b"a;g 1\n" * 50)
    ran = kept("ingest", "f", "--json", "--label", "service=vllm", "--label", "empty=", "--label", "a=b=c")
    assert ran.status == 0
    body = json.loads(ran.stdout)
    assert body["schema_version"] == "1.0"
    (one,) = body["captures"]
    assert (one["name"], one["rows"]) == ("f", 52)
    assert [loss["count"] for loss in one["losses"]] == [1]
    assert kept.shown(one["id"])["labels"] == {"service": "vllm", "empty": "", "a": "b=c"}


def test_more_loss_than_allowed_is_status_3_and_kept(kept: Any, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a;f 1\na;f 1\na;g 1\nno number\n")
    (capture,) = kept.ingest("f", status=3)
    assert kept.ingest("f", "--max-loss", "50") == [capture]
    assert kept.shown(capture)["status"] == "complete"
    ran = kept("flamegraph", capture, "--format", "folded")
    assert (ran.status, ran.stdout) == (3, b"a;f 2\na;g 1\n")


def test_where_captures_are_kept(run_cli: Any, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a;f 1\n")
    for env, folder in (
        ({}, tmp_path / "data" / "flameslice"),
        ({"FLAMESLICE_DATA": str(tmp_path / "named")}, tmp_path / "named"),
    ):
        capture = run_cli("ingest", "f", env=env).stdout.decode().strip()
        assert (folder / "captures" / f"capture={capture}" / "manifest.json").exists()
        assert run_cli("flamegraph", "capture:f", "--format", "folded", env=env).stdout == b"a;f 1\n"
    assert oct((tmp_path / "named").stat().st_mode & 0o777) == "0o700"


# ------------------------------------------------------------------ names and inputs that are hostile

HOSTILE = ["../../x", "a\nb\x1b[31m", "n" * 5000, "\u202e", "capture:", " ", "-", "a/b", "q\udcff"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_capture_may_have_any_name(kept: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / "f").write_bytes(b"a;f 1\n")
    (capture,) = kept.ingest("f", "--capture", name)
    assert kept.shown(capture)["name"] == name
    assert kept.folded(f"capture:{name}") == b"a;f 1\n"
    for command in ("captures list", "captures show"):
        ran = kept(command, *([f"capture:{name}"] if command == "captures show" else []))
        assert ran.status == 0
        assert max(map(len, ran.stdout.splitlines())) < 400
        assert b"\x1b" not in ran.stdout
    inside = {path.name for path in tmp_path.iterdir()}
    assert inside <= {"f", "kept", "config", "data"}, "something was written elsewhere"


@pytest.mark.parametrize(
    "name", [b"odd\xff\xfe", b"nl\nx", b"capture.json", b".draft-x", b"\xe2\x80\xae", b"n" * 250]
)
def test_a_file_may_have_any_name(kept: Any, tmp_path: Path, name: bytes) -> None:
    (tmp_path / "x").mkdir()
    path = tmp_path / "x" / os.fsdecode(name)
    path.write_bytes(b"a;f 1\n")
    (capture,) = kept.ingest(path)
    assert kept.folded(capture) == b"a;f 1\n"
    ran = kept("captures show", capture)
    assert ran.status == 0
    assert ran.stdout.count(b"\n") == 6
    again = type(kept)(kept.run, tmp_path / "again")
    assert again.ingest(kept.folder(capture) / "raw") == [capture]
    assert again.folded(capture) == b"a;f 1\n"


def refused(ran: Any, *words: str, status: int = 1) -> None:
    assert ran.status == status, ran.stderr
    assert ran.stdout == b""
    assert ran.stderr.count("\n") == 1, ran.stderr
    assert "Traceback" not in ran.stderr
    for word in words:
        assert word in ran.stderr


@pytest.mark.parametrize("label", ["x", "=x", ""])
def test_a_label_is_a_key_and_a_value(kept: Any, tmp_path: Path, label: str) -> None:
    (tmp_path / "f").write_bytes(b"a;f 1\n")
    refused(kept("ingest", "f", "--label", label), "label", status=2)
    assert not kept.data.exists()


@pytest.mark.parametrize(
    ("argument", "word"),
    [("nowhere", "no such file"), ("folder", "capture.json"), ("empty", "empty"), ("text", "unknown kind")],
)
def test_what_cannot_be_read_is_refused_before_anything_is_written(
    kept: Any, tmp_path: Path, argument: str, word: str
) -> None:
    (tmp_path / "good").write_bytes(b"a;f 1\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_bytes(b"hello\n")
    refused(kept("ingest", "good", argument), argument, word)
    assert not kept.data.exists()


def test_a_place_that_cannot_be_written_is_one_line(run_cli: Any, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a;f 1\n")
    for data in ("f", "f/below", "/proc/flameslice"):
        refused(run_cli("ingest", "f", "--data", data), data)
    for command in (
        ["captures", "list"],
        ["captures", "show", "x"],
        ["worker", "--until-empty"],
        ["compact"],
    ):
        refused(run_cli(*command, "--data", "f"), "f")
    refused(run_cli("ingest", "f", "--data", "ftp://x/y"), "ftp", status=2)
    assert (tmp_path / "f").read_bytes() == b"a;f 1\n"


def test_a_folder_that_is_not_ours_to_write_is_one_line(run_cli: Any, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (tmp_path / "f").write_bytes(b"a;f 1\n")
    (tmp_path / "closed").mkdir(mode=0o500)
    refused(run_cli("ingest", "f", "--data", "closed/kept"), "permission")


def test_a_log_that_is_none_is_one_line(kept: Any, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a;f 1\n")
    (tmp_path / "bad.sqlite").write_bytes(b"this is no database " * 100)
    for command in [["ingest", "f"], ["worker", "--until-empty"], ["deadletter list"], ["captures list"]]:
        refused(kept(*command, "--log", "sqlite:bad.sqlite"), "bad.sqlite", "not a database")
        for log in ("foo://x", "sqlite:", "kafka://", "kafka://host", "nothing"):
            refused(kept(*command, "--log", log), status=2)
    refused(kept("ingest", "f", "--log-config", "f"), "Kafka", status=2)
    refused(
        kept("ingest", "f", "--log", "kafka://127.0.0.1:9", "--log-config", "nowhere.toml"), "nowhere.toml"
    )
    refused(kept("ingest", "f", "--log", "kafka://127.0.0.1:9", "--log-config", "f"), "TOML")
    refused(kept("ingest", "f", "--log", "sqlite:f/x"), "f/x")
    assert (tmp_path / "bad.sqlite").read_bytes() == b"this is no database " * 100
    assert list(kept.data.glob("captures/*")) == []


def test_a_broker_that_is_not_there_is_one_line(kept: Any, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a;f 1\n")
    refused(kept("ingest", "f", "--log", "kafka://127.0.0.1:9"), "127.0.0.1:9", "check the address")


def test_a_log_hands_over_to_one_store(kept: Any, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a;f 1\n")
    kept.ingest("f", "--log", "sqlite:l.sqlite")
    refused(
        kept.run("ingest", "f", "--data", tmp_path / "other", "--log", "sqlite:l.sqlite"), "another store"
    )
    assert not (tmp_path / "other" / "captures").exists()


# ------------------------------------------------------------------ a full disk


@pytest.mark.parametrize("limit_kib", [1, 64, 200, 400])
def test_files_that_may_not_grow_end_in_one_line(kept: Any, demo: Path, limit_kib: int) -> None:
    command = [sys.executable, "-m", "flameslice", "ingest", str(demo), "--data", str(kept.data)]
    env = {key: value for key, value in os.environ.items() if not key.startswith("FLAMESLICE_")}
    env |= {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "XDG_CONFIG_HOME": str(kept.data.parent)}
    limited = ["sh", "-c", f'trap "" XFSZ; ulimit -f {limit_kib * 2}; exec "$@"', "sh", *command]
    done = subprocess.run(limited, capture_output=True, env=env, timeout=60)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.count(b"\n") == 1
    assert list(kept.data.rglob(".draft*")) == []
    (capture,) = kept.ingest(demo)
    check_whole(kept, capture, demo)


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """Mounts a file system of so many KiB; the test is skipped where that is not allowed."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(size_kib: int, *options: str) -> Path:
        words = ",".join([f"size={size_kib}k", *options])
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", words, "tmpfs", str(folder)], capture_output=True
        )
        if done.returncode != 0:
            pytest.skip("mounting a small disk needs root")
        return folder

    yield mount
    subprocess.run(["umount", str(folder)], capture_output=True)


@pytest.mark.parametrize("size_kib", [32, 200, 600])
def test_a_full_disk_is_one_line_and_the_run_goes_on_later(
    kept: Any, demo: Path, small_disk: Any, size_kib: int
) -> None:
    folder = small_disk(size_kib)
    on_disk = type(kept)(kept.run, folder / "kept")
    ran = on_disk("ingest", demo)
    refused(ran)
    assert list(on_disk.data.rglob(".draft*")) == []
    small_disk(64 << 10, "remount")
    (capture,) = on_disk.ingest(demo)
    check_whole(on_disk, capture, demo)
