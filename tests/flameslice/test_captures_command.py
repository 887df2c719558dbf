"""`flameslice captures` from outside: what is listed, how captures are named, their statuses, and deletion."""

from __future__ import annotations

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline import control, schema
from pipeline.control import CaptureFact, SourceBegin, SourceFact
from pipeline.log.wire import Splitter

CUT_JSON = (
    b'{"$schema": "https://www.speedscope.app/file-format-schema.json", "shared": {"frames": [{"name": '
)


def refused(ran: Any, *words: str, status: int = 1) -> None:
    assert ran.status == status, ran.stderr
    assert (ran.stdout, ran.stderr.count("\n")) == (b"", 1), ran.stderr
    for word in words:
        assert word in ran.stderr


def capture_directory(folder: Path, status: str = "complete", **files: bytes) -> Path:
    """Make a capture directory by hand; its files are folded stacks."""
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_bytes(text)
    sources = [{"file": name, "format": "collapsed"} for name in files]
    body = {"schema_version": "1.0", "id": f"id-{folder.name}", "name": folder.name, "status": status}
    (folder / "capture.json").write_text(json.dumps(body | {"sources": sources}))
    return folder


# ------------------------------------------------------------------ listing and naming


def test_an_empty_store_lists_nothing_and_is_not_made(kept: Any) -> None:
    assert kept.listed() == []
    ran = kept("captures list")
    assert ran.stdout.decode().split() == ["ID", "NAME", "STATUS", "STARTED", "ROWS", "LOST", "LABELS"]
    assert ran.stderr == f"no store at {kept.data}: nothing was ingested there yet\n"
    assert not kept.data.exists()


def test_captures_are_listed_the_newest_first(kept: Any, tmp_path: Path) -> None:
    for number, name in enumerate(("old", "new", "newest")):
        (tmp_path / name).write_bytes(f"a;f {number + 1}\n".encode())
        os.utime(tmp_path / name, ns=(0, (1_700_000_000 + number) * 10**9))
        kept.ingest(name, "--label", f"n={number}")
    assert [one["name"] for one in kept.listed()] == ["newest", "new", "old"]
    lines = kept("captures list").stdout.decode().splitlines()
    assert re.split(r"  +", lines[1])[1:] == ["newest", "complete", "2023-11-14 22:13:22Z", "1", "n=2"]
    shown = kept("captures show", "old").stdout.decode()
    assert "status   complete" in shown
    assert "started  2023-11-14 22:13:20Z" in shown
    assert "source   old (collapsed): complete" in shown
    assert "1 row\n" in shown
    assert "stored: frames 2, stack_weights 1, stacks 2" in shown


def test_json_has_a_version_and_what_there_is(kept: Any, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a;f 1\nno number\n" + b"a;g 1\n" * 40)
    (capture,) = kept.ingest("f", "--label", "k=v")
    shown = kept.shown(capture)
    assert shown["schema_version"] == "1.0"
    assert (shown["id"], shown["name"], shown["status"], shown["labels"]) == (
        capture,
        "f",
        "complete",
        {"k": "v"},
    )
    (source,) = shown["sources"]
    assert (source["file"], source["format"], source["status"], source["rows"]) == (
        "f",
        "collapsed",
        "complete",
        42,
    )
    assert source["size_bytes"] == (tmp_path / "f").stat().st_size
    assert [(loss["reason"], loss["count"]) for loss in shown["losses"]] == [("unreadable_line", 1)]
    listed = json.loads(kept("captures list", "--json").stdout)
    assert listed["schema_version"] == "1.0"
    assert listed["captures"] == [{key: value for key, value in shown.items() if key != "losses"}]


def test_a_path_wins_and_capture_forces(kept: Any, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a;kept 1\n")
    (capture,) = kept.ingest("f", "--capture", "name")
    (tmp_path / "name").write_bytes(b"a;file 2\n")
    assert kept.folded("name") == b"a;file 2\n"
    assert (
        kept.folded("capture:name")
        == kept.folded(capture)
        == kept.folded(f"capture:{capture}")
        == b"a;kept 1\n"
    )
    (tmp_path / capture).write_bytes(b"a;file 3\n")
    assert kept.folded(capture) == b"a;file 3\n"
    (tmp_path / "name").unlink()
    (tmp_path / "name").symlink_to("nowhere")  # it is there, as a broken path
    refused(kept("flamegraph", "name"), "name: no such file")
    refused(kept("flamegraph", "nothing"), "nothing", str(kept.data))
    refused(kept("flamegraph", "capture:nothing"), "no such capture")
    refused(kept("captures show", "nothing"), "no such capture")
    refused(kept("captures delete", "name", "nothing"), "no such capture")
    assert len(kept.listed()) == 1


def test_a_name_that_several_have_is_refused_with_their_ids(kept: Any, tmp_path: Path) -> None:
    ids = []
    for text in (b"a;f 1\n", b"a;f 2\n"):
        (tmp_path / "f").write_bytes(text)
        ids += kept.ingest("f", "--capture", "twice")
    named = (["flamegraph", "twice"], ["slices", "capture:twice"], ["captures show", "twice"])
    for command in (*named, ["captures delete", "twice"]):
        refused(kept(*command), "2 captures have this name", *ids)
    assert kept.folded(ids[1]) == b"a;f 2\n"


def test_a_capture_whose_name_is_another_s_id(kept: Any, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a;f 1\n")
    (capture,) = kept.ingest("f")
    (other,) = kept.ingest("f", "--capture", capture)
    assert other != capture
    assert kept.shown(capture)["id"] == capture


# ------------------------------------------------------------------ statuses


def test_receiving_until_every_message_is_stored(kept: Any) -> None:
    """What the log says counts before a worker takes it in; what is announced and not there is missing."""
    weights = pl.DataFrame([("e", None, 0, 1, 1)] * 3, schema=schema.STACK_WEIGHTS, orient="row")
    splitter = Splitter("c", "s" * 64, "stack_weights", row_bytes=60)
    rows = [*splitter.add(weights), *splitter.finish()]
    assert len(rows) == 3
    begin = CaptureFact("c", "by hand", sources=(SourceBegin("s" * 64, "f", "collapsed"),))
    end = SourceFact(
        "c", "s" * 64, "complete", messages={"stack_weights": 3}, table_rows={"stack_weights": 3}
    )
    steps = (
        ([control.to_message(begin)], "receiving", 0),
        ([rows[0], rows[2]], "receiving", 0),
        ([control.to_message(end)], "receiving", 1),
        ([rows[1]], "complete", 0),
    )
    for messages, status, missing in steps:
        kept.append(messages)
        if status == "receiving":
            assert [one["status"] for one in kept.listed()] == [status]  # before the worker
        kept.work()
        assert kept.shown("c")["status"] == status
        assert kept.shown("by hand")["sources"][0]["missing_messages"] == missing
    assert kept.table("c", "stack_weights")["row"].to_list() == [0, 1, 2]


def test_what_cannot_be_read_fails_and_the_rest_is_kept(kept: Any, tmp_path: Path) -> None:
    (tmp_path / "cut").write_bytes(CUT_JSON)
    ran = kept("ingest", "cut")
    assert ran.status == 1
    assert ran.stderr.count("\n") == 1
    assert "cut" in ran.stderr
    (one,) = kept.listed()
    assert one["status"] == "failed"
    assert one["sources"][0]["problem"] == ran.stderr.strip()
    assert ran.stderr.strip() in kept("captures show", "cut").stdout.decode()

    (tmp_path / "good").write_bytes(b"a;f 1\n")
    both = kept("ingest", "cut", "good", "--capture", "both")
    assert both.status == 1
    shown = kept.shown("both")
    assert shown["status"] == "partial"
    assert {source["file"]: source["status"] for source in shown["sources"]} == {
        "cut": "failed",
        "good": "complete",
    }


def test_a_recording_that_was_cut_stays_partial(kept: Any, tmp_path: Path) -> None:
    for status in ("partial", "receiving", "failed", "complete"):
        directory = capture_directory(tmp_path / status, status, stacks=b"a;f 1\n")
        assert kept.ingest(directory) == [f"id-{status}"]
        shown = kept.shown(f"id-{status}")
        assert shown["status"] == ("complete" if status == "complete" else "partial")
        ran = kept("flamegraph", f"id-{status}", "--format", "json")
        assert ran.status == 0
        assert (b"the capture is partial" in ran.stdout) == (status != "complete")


def test_damage_is_counted(kept: Any, tmp_path: Path) -> None:
    stacks = b"".join(b"a;f_%d 1\n" % number for number in range(20_000))
    (tmp_path / "cut.gz").write_bytes(gzip.compress(stacks, mtime=0)[:-3000])
    ran = kept("ingest", "cut.gz")
    assert ran.status in (0, 3)
    (capture,) = ran.stdout.decode().split()
    assert kept.shown(capture)["status"] == "complete"
    assert [loss["reason"] for loss in kept.shown(capture)["losses"]] != []
    assert kept.folded(capture, "--max-loss", "100") == kept.folded(tmp_path / "cut.gz", "--max-loss", "100")


def test_what_perf_cannot_read_fails_and_the_rest_is_kept(kept: Any, perf: str, tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(b"a;f 1\n")
    (tmp_path / "perf.data").write_bytes(b"PERFILE2" + bytes(200))
    ran = kept("ingest", "perf.data", "good", "--capture", "both")
    assert (ran.status, ran.stderr.count("\n")) == (1, 1)
    assert "perf.data: perf script cannot read" in ran.stderr
    states = {one["file"]: one["status"] for one in kept.shown("both")["sources"]}
    assert states == {"good": "complete", "perf.data": "failed"}
    assert kept.folded("capture:both") == b"a;f 1\n"


def test_without_perf_nothing_is_begun(kept: Any, tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(b"a;f 1\n")
    (tmp_path / "perf.data").write_bytes(b"PERFILE2" + bytes(200))
    refused(
        kept("ingest", "good", "perf.data", env={"PATH": str(tmp_path)}), "perf.data: perf is not installed"
    )
    assert not kept.data.exists()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("version", {"schema_version": "9.0"}),
        ("id", {"id": "../../x"}),
        ("outside", {"sources": [{"file": "../good", "format": "collapsed"}]}),
        ("nothing", {"sources": []}),
    ],
)
def test_a_capture_that_no_reader_takes_is_refused(
    kept: Any, tmp_path: Path, name: str, change: dict[str, Any]
) -> None:
    (tmp_path / "good").write_bytes(b"a;f 1\n")
    directory = capture_directory(tmp_path / name, f=b"a;f 1\n")
    body = json.loads((directory / "capture.json").read_text())
    (directory / "capture.json").write_text(json.dumps(body | change))
    refused(kept("ingest", directory), name)
    assert not kept.data.exists()


# ------------------------------------------------------------------ deletion


def test_a_deleted_capture_is_gone_and_its_file_comes_back_under_another_id(
    kept: Any, tmp_path: Path
) -> None:
    (tmp_path / "f").write_bytes(b"a;f 1\n")
    seen = []
    for _ in range(3):
        (capture,) = kept.ingest("f")
        assert capture not in seen
        seen.append(capture)
        assert kept.folded("capture:f") == b"a;f 1\n"
        ran = kept("captures delete", "capture:f", "--yes")
        assert (ran.status, ran.stdout.decode()) == (0, f"{capture}\n")
        assert not kept.folder(capture).exists()
        kept.work()
        assert kept.listed() == []
        refused(kept("captures show", capture), "no such capture")
        refused(kept("flamegraph", capture), "no capture")
    assert seen[1:] == [f"{seen[0]}-2", f"{seen[0]}-3"]


def test_a_deleted_capture_stays_deleted_when_its_messages_come_again(kept: Any, tmp_path: Path) -> None:
    """As from a log that is replayed, or from a producer that was slow."""
    source = "5" * 64
    begin = CaptureFact("c", "by hand", sources=(SourceBegin(source, "f", "collapsed"),))
    weights = pl.DataFrame([("e", None, 0, 1, 1)], schema=schema.STACK_WEIGHTS, orient="row")
    splitter = Splitter("c", source, "stack_weights")
    rows = [*splitter.add(weights), *splitter.finish()]
    end = SourceFact("c", source, "complete", messages={"stack_weights": 1}, table_rows={"stack_weights": 1})
    for attempt in range(3):
        kept.append([control.to_message(begin), *rows, control.to_message(end)])
        kept.work()
        if attempt == 0:
            assert kept.shown("c")["status"] == "complete"
            assert kept("captures delete", "c", "--yes").status == 0
        assert kept.listed() == []
        assert not kept.folder("c").exists()


def test_several_are_deleted_or_none(kept: Any, tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(f"a;{name} 1\n".encode())
        kept.ingest(name)
    refused(kept("captures delete", "capture:a", "capture:nothing", "capture:b"), "no such capture")
    assert len(kept.listed()) == 3
    assert kept("captures delete", "capture:a", "capture:b", "--yes").status == 0
    assert [one["name"] for one in kept.listed()] == ["c"]


def test_a_recorded_capture_that_was_deleted_may_come_again(kept: Any, tmp_path: Path) -> None:
    directory = capture_directory(tmp_path / "r", stacks=b"a;f 1\n")
    assert kept.ingest(directory) == ["id-r"]
    assert kept("captures delete", "id-r", "--yes").status == 0
    assert kept.ingest(directory) == ["id-r-2"]
    assert kept.ingest(directory) == ["id-r-2"]
    assert kept.folded("id-r-2") == b"a;f 1\n"


@pytest.mark.parametrize("text", [b"{", b"", b'{"schema_version": "9.1"}'])
def test_a_damaged_store_is_one_line(kept: Any, tmp_path: Path, text: bytes) -> None:
    (tmp_path / "f").write_bytes(b"a;f 1\n")
    (capture,) = kept.ingest("f")
    (fact,) = kept.folder(capture).glob("facts/source-*")
    whole = fact.read_bytes()
    fact.write_bytes(text)
    for command in ("captures show", "flamegraph"):
        refused(kept(command, capture), fact.name)
    listed = kept("captures list")  # the others are listed
    assert (listed.status, listed.stderr.count("\n")) == (1, 1)
    assert fact.name in listed.stderr
    fact.write_bytes(whole)
    (kept.folder(capture) / "manifest.json").write_bytes(text)  # only says what facts and parts say
    assert kept.folded(capture) == b"a;f 1\n"
    assert kept.shown(capture)["status"] == "complete"


def test_nothing_is_deleted_where_nobody_can_be_asked(kept: Any, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a;f 1\n")
    kept.ingest("f")
    ran = kept("captures delete", "capture:f", stdin=b"n\n")
    assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (2, b"", 1)
    assert "--yes" in ran.stderr
    assert len(kept.listed()) == 1


def test_a_deletion_reaches_the_log_that_could_bring_it_back(kept_on_kafka: Any, tmp_path: Path) -> None:
    kept = kept_on_kafka
    (tmp_path / "f").write_bytes(b"a;f 1\n")
    (capture,) = kept.ingest("f")
    kept.work()
    here = type(kept)(kept.run, kept.data)  # the same store, without a word of the log
    ran = here("captures delete", capture, "--yes")
    assert (ran.status, ran.stderr.count("\n")) == (2, 1)
    assert "--log kafka://" in ran.stderr
    assert len(here.listed()) == 1
    # nor one of which only the description has come
    kept.append([control.to_message(CaptureFact("told", "told"))])
    kept.work()
    assert here("captures delete", "told", "--yes").status == 2
    # in this store alone: what comes again is passed over, and that is said
    assert here("captures delete", capture, "--yes", "--only-here").status == 0
    kept.append(
        [
            control.to_message(CaptureFact(capture, "f")),
            *Splitter(capture, "5" * 64, "stack_weights").finish(),
        ]
    )
    weights = pl.DataFrame([("e", None, 0, 1, 1)], schema=schema.STACK_WEIGHTS, orient="row")
    splitter = Splitter(capture, "5" * 64, "stack_weights")
    kept.append([*splitter.add(weights), *splitter.finish()])
    ran = kept("worker --until-empty", "--log-format", "text")
    assert f"{capture} was deleted: its messages are passed over" in ran.stderr
    assert [one["id"] for one in kept.listed()] == ["told"]


# ------------------------------------------------------------------ what is said


def test_the_same_again_says_what_is_kept(kept: Any, tmp_path: Path) -> None:
    directory = capture_directory(tmp_path / "r", stacks=b"a;f 1\n")
    first = kept("ingest", directory, "--capture", "server", "--label", "env=dev", "--label", "gpu=h200")
    assert first.stderr == ""
    again = kept("ingest", directory, "--capture", "other", "--label", "env=prod", "--label", "run=2")
    assert again.stderr.splitlines() == [
        "id-r is already there (complete): only what is missing is added",
        "it keeps its name 'server', not 'other'",
        "it keeps its label env=dev, not prod",
        "labels added: run=2",
    ]
    labels = {"env": "dev", "gpu": "h200", "run": "2"}
    assert labels.items() <= kept.shown("id-r")["labels"].items()
    assert kept.shown("id-r")["name"] == "server"
    # and a store that is made anew from what came in has them too
    rebuilt = type(kept)(kept.run, tmp_path / "rebuilt")
    assert rebuilt.ingest(kept.folder("id-r")) == ["id-r"]
    assert labels.items() <= rebuilt.shown("id-r")["labels"].items()


def test_what_could_not_be_read_is_listed(kept: Any, tmp_path: Path) -> None:
    sample = "app 7/7 [000] 5.000001: 100 cpu-clock: \n\t401000 main+0x1 (/bin/a)\n\n"
    (tmp_path / "f").write_text(sample * 3 + "app 7/7 [000] 5.0: what is this\n\n" * 1)
    kept.ingest("f", status=3)
    (one,) = kept.listed()
    assert (one["rows"], one["lost_rows"]) == (4, 1)
    assert "25.0%" in kept("captures list").stdout.decode()
    assert "4 rows, 1 of them (25.0%) could not be read" in kept("captures show", "capture:f").stdout.decode()


def test_a_place_without_a_store_is_told_from_an_empty_one(kept: Any, tmp_path: Path) -> None:
    for command, status in (("captures list", 0), ("captures show x", 1), ("compact", 1)):
        ran = kept(command)
        assert (ran.status, ran.stderr.count("\n")) == (status, 1), command
        assert f"no store at {kept.data}" in ran.stderr
    (tmp_path / "f").write_bytes(b"a;f 1\n")
    kept.ingest("f")
    assert kept("captures list").stderr == ""


def test_a_store_is_no_capture_and_its_captures_are(kept: Any, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a;f 1\n")
    (capture,) = kept.ingest("f")
    other = type(kept)(kept.run, tmp_path / "other")
    refused(other("ingest", kept.data), "captures/capture=ID")
    assert other.ingest(kept.folder(capture)) == [capture]
    assert other.folded(capture) == b"a;f 1\n"
    assert other("ingest", "f", "--capture", "").status == 2


def test_standard_input_is_named_in_errors(kept: Any) -> None:
    refused(kept("ingest", "-", stdin=b"what is this\n"), "<stdin>: ")
