"""A store on a disk and one in a bucket keep the same promises; and what a bucket that fails is told like."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flameslice import api
from pipeline import schema
from pipeline.errors import FlamesliceError, InputError, UsageError, WorkError
from pipeline.log import wire
from pipeline.log.wire import Splitter
from pipeline.store import causes, compaction, objects
from pipeline.store.catalog import Catalog
from pipeline.store.objects import ObjectPlace
from pipeline.store.parts import Origin, StoredTable, identities_of, to_parquet
from pipeline.store.place import LocalPlace, Place, open_place

DEMO = Path(__file__).resolve().parents[3] / "demo" / "capture" / "token_server.perf.txt.zst"
ORIGIN = Origin("log", "flameslice.frames", 0, 0, 0)
Run = Callable[..., Any]

# ------------------------------------------------------------------ the contract


@pytest.fixture(params=["disk", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty store of each kind, at a path that a careless reader takes for a pattern."""
    if request.param == "disk":
        return open_place(str(tmp_path / "st[o]re *é"))
    return open_place(f"s3://{request.getfixturevalue('s3').bucket}/deep/st[o]re *é")


def test_a_name_is_taken_once(place: Place) -> None:
    assert place.create("captures/one.json", b"first")
    assert not place.create("captures/one.json", b"second")
    assert place.read("captures/one.json") == b"first"


def test_of_racing_creators_one_wins(place: Place) -> None:
    for number in range(20):
        start = threading.Barrier(4)
        won: list[bytes] = []

        def create(body: bytes, path: str = f"captures/{number}", start: Any = start, won: Any = won) -> None:
            start.wait()
            if place.create(path, body):
                won.append(body)

        threads = [threading.Thread(target=create, args=(b"%d" % one,)) for one in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [place.read(f"captures/{number}")] == won


def test_a_folder_tells_whether_it_created(place: Place) -> None:
    folder = place.folder("captures/capture=a/frames")
    try:
        assert folder.names() == []
        assert folder.create("part-1.parquet", b"1") == "created"
        assert folder.create("part-1.parquet", b"2") == "exists"
        assert folder.create("part-0.parquet", b"0") == "created"
        assert folder.names() == ["part-0.parquet", "part-1.parquet"]
    finally:
        folder.close()
    assert place.read("captures/capture=a/frames/part-1.parquet") == b"1"


def test_replacing(place: Place) -> None:
    place.replace("captures/manifest.json", b"long enough to see a rest of it")
    place.replace("captures/manifest.json", b"new")
    assert place.read("captures/manifest.json") == b"new"
    assert place.names("captures") == ["manifest.json"]


def test_what_is_not_there_reads_as_nothing(place: Place) -> None:
    assert place.read("captures/none") is None
    assert place.names("captures") == []
    assert place.folders("captures") == []
    place.remove("captures/none")
    place.create("file", b"")
    assert place.read("file") == b""
    assert place.read("file/below") is None
    assert place.names("file") == []


def test_files_and_folders_are_listed_apart(place: Place) -> None:
    for path in ("captures/z", "captures/a", "captures/capture=b/x", "captures/capture=a/y/z"):
        place.create(path, b"")
    assert place.names("captures") == ["a", "z"]
    assert place.folders("captures") == ["capture=a", "capture=b"]
    assert place.names("captures/capture=a") == []


def test_removing_takes_a_folder_and_not_its_namesake(place: Place) -> None:
    for path in ("captures/capture=a/x", "captures/capture=a/y/z", "captures/capture=ab/x"):
        place.create(path, b"")
    place.remove("captures/capture=a")
    assert place.folders("captures") == ["capture=ab"]
    assert place.read("captures/capture=a/y/z") is None
    assert place.create("captures/capture=a/x", b"again")


def test_a_large_file_arrives_whole(place: Place, tmp_path: Path) -> None:
    large = tmp_path / "large"
    block = os.urandom(1 << 20)
    large.write_bytes(b"".join(bytes([number]) + block for number in range(19)))  # more than two pieces
    place.put_file("raw/perf.data", large)
    assert place.read("raw/perf.data") == large.read_bytes()
    large.write_bytes(b"")
    place.put_file("raw/perf.data", large)
    assert place.read("raw/perf.data") == b""
    assert place.names("raw") == ["perf.data"]


def test_a_file_that_is_gone_is_told_by_its_name(place: Place, tmp_path: Path) -> None:
    with pytest.raises(WorkError, match="no such file") as caught:
        place.put_file("raw/perf.data", tmp_path / "gone")
    assert caught.value.path == str(tmp_path / "gone")
    assert place.names("raw") == []


def test_polars_reads_a_target(place: Place) -> None:
    table = pl.DataFrame({"raw_time": [1, 2], "row": [0, 1]})
    identities = {"s" * 64: [(0, 4)]}
    name = "captures/capture=a/perf_events/part-1.parquet"
    place.create(name, to_parquet(table, "a", "perf_events", identities, None))
    found = pl.scan_parquet(place.target(name), glob=False, storage_options=_options(place)).collect()
    assert found.equals(table)
    assert identities_of(place.target(name), place, name) == identities


def test_a_part_that_is_none_and_one_that_is_gone_are_told_apart(place: Place) -> None:
    place.create("captures/part-1.parquet", b"no Parquet at all")
    with pytest.raises(InputError, match="not a part of a store"):
        identities_of(place.target("captures/part-1.parquet"), place, "part-1.parquet")
    with pytest.raises(WorkError, match="reading failed"):  # a worker tries that again
        identities_of(place.target("captures/part-2.parquet"), place, "part-2.parquet")


def test_of_two_that_store_the_same_messages_each_is_stored_once(place: Place) -> None:
    source = "s" * 64
    columns: dict[str, object] = {name: [None] * 300 for name in schema.FRAMES}
    table = pl.DataFrame(columns | {"frame_id": range(300)}).cast(dict(schema.FRAMES))  # type: ignore[arg-type]
    splitter = Splitter("a", source, "frames", row_bytes=100)
    rows = [wire.decode(one) for one in (*splitter.add(table), *splitter.finish())]
    assert len(rows) >= 10
    one, other = (StoredTable(place, "a", "frames") for _ in range(2))
    assert one.sequences(source) == other.sequences(source) == set()  # both have looked
    added = one.publish(source, rows[:4], ORIGIN) + other.publish(source, rows[:7], ORIGIN)
    added += one.publish(source, rows, ORIGIN) + other.publish(source, rows, ORIGIN)
    one.close()
    other.close()
    parts = [
        place.target(f"captures/capture=a/frames/{name}") for name in place.names("captures/capture=a/frames")
    ]
    stored = pl.scan_parquet(parts, glob=False, storage_options=_options(place)).collect()
    assert added == stored.height == 300
    assert sorted(stored["frame_id"]) == list(range(300))


def _options(place: Place) -> dict[str, Any] | None:
    options = place.options()
    return None if options is None else dict(options)


# ------------------------------------------------------------------ a bucket, by the command line


def test_a_capture_in_a_bucket_from_ingest_to_delete(s3: Any, run_cli: Run) -> None:
    store = f"s3://{s3.bucket}/team a/profiles/"

    def cli(*args: str | Path, status: int = 0) -> bytes:
        ran = run_cli(*args, "--data", store, env=s3.environment)
        assert (ran.status, ran.stderr) == (status, ""), ran.stderr
        out: bytes = ran.stdout
        return out

    capture = cli("ingest", DEMO, "--capture", "demo", "--label", "tier=blue").decode().strip()
    again = run_cli("ingest", DEMO, "--capture", "demo", "--data", store, env=s3.environment)
    assert again.stdout.decode().strip() == capture
    assert again.stderr == f"{capture} is already there (complete): only what is missing is added\n"
    (listed,) = json.loads(cli("captures", "list", "--json"))["captures"]
    assert (listed["id"], listed["status"], listed["labels"]) == (capture, "complete", {"tier": "blue"})
    shown = json.loads(cli("captures", "show", "demo", "--json"))
    rows = shown["sources"][0]["table_rows"]
    place = open_place(store)
    stored = place.target(f"captures/capture={capture}/perf_events")
    events = pl.read_parquet(f"{stored}/part-*.parquet", storage_options=_options(place))
    assert events.height == rows["perf_events"] > 10_000
    assert place.read(f"captures/capture={capture}/raw/{DEMO.name}") == DEMO.read_bytes()

    drawn = ("--event", "all", "--format", "folded")
    file = run_cli("flamegraph", DEMO, *drawn)
    assert cli("flamegraph", "demo", *drawn) == file.stdout != b""
    sliced = run_cli("slices", capture, "--format", "csv", "--data", store, env=s3.environment)
    assert sliced == run_cli("slices", DEMO, "--format", "csv")

    assert len(api.to_pandas("perf_events", "demo", store)) == events.height
    assert api.fold("capture:demo", data=store).rows == api.fold(DEMO).rows > 0

    cli("captures", "delete", "demo", "--yes")
    assert place.folders("captures") == []
    assert json.loads(cli("captures", "list", "--json"))["captures"] == []
    again = cli("ingest", DEMO, "--capture", "demo").decode().strip()
    assert again == f"{capture}-2"
    assert cli("flamegraph", "demo", *drawn) == file.stdout


def test_what_lies_in_raw_can_be_ingested_again(s3: Any, run_cli: Run, tmp_path: Path) -> None:
    store = f"s3://{s3.bucket}"
    capture = run_cli("ingest", DEMO, "--data", store, env=s3.environment).stdout.decode().strip()
    place = open_place(store)
    raw = f"captures/capture={capture}/raw"
    (tmp_path / "raw").mkdir()
    for name in place.names(raw):
        (tmp_path / "raw" / name).write_bytes(place.read(f"{raw}/{name}") or b"")
    ran = run_cli("ingest", tmp_path / "raw", "--data", tmp_path / "disk")
    assert (ran.status, ran.stdout.decode().strip()) == (0, capture)
    pattern = f"captures/capture={capture}/perf_events/part-*.parquet"
    there = pl.read_parquet(place.target(pattern), storage_options=_options(place)).sort("row")
    assert there.equals(pl.read_parquet(f"{tmp_path}/disk/{pattern}", hive_partitioning=False).sort("row"))


def test_compaction_is_for_disks(s3: Any, run_cli: Run) -> None:
    ran = run_cli("compact", "--data", f"s3://{s3.bucket}/x", env=s3.environment)
    assert (ran.status, ran.stdout) == (2, b"")
    assert ran.stderr.startswith("compaction needs folders that change places in one step")
    assert ran.stderr.count("\n") == 1
    with pytest.raises(UsageError):
        compaction.run(Catalog(open_place(f"s3://{s3.bucket}/x")))


# ------------------------------------------------------------------ what fails


ATTEMPTS: dict[str, Callable[[Place], object]] = {
    "read": lambda place: place.read("captures/a"),
    "create": lambda place: place.create("captures/a", b""),
    "replace": lambda place: place.replace("captures/a", b""),
    "names": lambda place: place.names("captures"),
    "folders": lambda place: place.folders("captures"),
    "remove": lambda place: place.remove("captures"),
    "put_file": lambda place: place.put_file("captures/a", DEMO),
    "identities": lambda place: identities_of(place.target("captures/a"), place, "a"),
}


def failure(place: Place, attempt: str) -> FlamesliceError:
    with pytest.raises(WorkError) as caught:
        ATTEMPTS[attempt](place)
    assert "\n" not in str(caught.value)
    assert "<" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_bucket_that_is_not_there(s3: Any, attempt: str) -> None:
    error = failure(open_place(f"s3://{s3.bucket}-none/x"), attempt)
    assert "bucket does not exist (NoSuchBucket)" in str(error)
    assert "make the bucket" in error.remedy


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_credentials_that_are_refused(s3: Any, attempt: str) -> None:
    s3.refuse_credentials(True)
    try:
        error = failure(open_place(f"s3://{s3.bucket}/x"), attempt)
    finally:
        s3.refuse_credentials(False)
    assert "(InvalidAccessKeyId)" in error.problem
    assert "AWS_ACCESS_KEY_ID" in error.remedy


@pytest.mark.parametrize("attempt", ["read", "create", "put_file", "names"])
def test_an_address_where_nothing_listens(s3: Any, attempt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    error = failure(open_place(f"s3://{s3.bucket}/x"), attempt)
    assert error.problem == "nothing listens at the object store's address"
    assert "AWS_ENDPOINT_URL" in error.remedy


def test_a_server_that_never_answers_is_given_up(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_REQUEST_S", 1)
    monkeypatch.setattr(objects, "_RETRY_S", 2)
    with silent_server() as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        for attempt in ("read", "create"):
            error = failure(open_place(f"s3://{s3.bucket}/x"), attempt)
            assert error.problem == "the object store did not answer in time"


def test_waiting_for_a_server_has_an_end() -> None:
    longest_s = objects._RETRY_S + max(objects._REQUEST_S, objects._CONNECT_S)
    assert longest_s < 120


@pytest.mark.parametrize("command", [["captures", "list"], ["ingest", DEMO], ["flamegraph", "capture:demo"]])
def test_commands_say_it_in_one_line(s3: Any, run_cli: Run, command: list[str | Path]) -> None:
    ran = run_cli(*command, "--data", "s3://no-such-bucket/x", env=s3.environment)
    assert (ran.status, ran.stdout) == (1, b"")
    assert ran.stderr.startswith("s3://no-such-bucket/x/")
    assert "NoSuchBucket" in ran.stderr
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("http://minio.example:9000", "not encrypted"),
        ("http://127.0.0.1.example", "not encrypted"),
        ("minio.example:9000", "no address"),
    ],
)
def test_addresses_that_are_refused(address: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    monkeypatch.delenv("AWS_ALLOW_HTTP", raising=False)
    with pytest.raises(UsageError, match=problem):
        open_place("s3://bucket/x")


def test_plain_http_where_the_user_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://minio.example:9000")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    assert open_place("s3://bucket/x").options()["aws_allow_http"] == "true"  # type: ignore[index]


def test_the_address_for_s3_alone_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://all.example")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://s3.example")
    options = open_place("s3://bucket/x").options()
    assert options is not None
    assert options["aws_endpoint_url"] == "https://s3.example"


@pytest.mark.parametrize("url", ["s3://", "s3:///prefix"])
def test_an_address_without_a_bucket(url: str) -> None:
    with pytest.raises(UsageError, match="no bucket"):
        open_place(url)


def test_kinds_of_stores(tmp_path: Path, s3: Any) -> None:
    assert isinstance(open_place(str(tmp_path)), LocalPlace)
    assert isinstance(open_place(f"file://{tmp_path}"), LocalPlace)
    assert open_place(f"file://{tmp_path}").url == str(tmp_path)
    assert isinstance(open_place(f"s3a://{s3.bucket}/x/"), ObjectPlace)
    assert open_place(f"s3a://{s3.bucket}/x/").target("a") == f"s3://{s3.bucket}/x/a"
    assert open_place(f"s3://{s3.bucket}").target("a") == f"s3://{s3.bucket}/a"
    with pytest.raises(UsageError, match="gs:"):
        open_place("gs://bucket/x")


@pytest.mark.parametrize("name", ["a\x01b", "a\nb", "a\udcffb"])
def test_names_that_no_object_may_have(s3: Any, name: str) -> None:
    with pytest.raises(InputError, match="takes no such name"):
        open_place(f"s3://{s3.bucket}/x").create(f"raw/{name}", b"")


def test_words_for_what_is_not_known() -> None:
    assert causes.explain(OSError("odd\nDebug source"), "do this") == ("odd", "do this")
    assert causes.explain(OSError(), "do this") == ("OSError", "do this")
    answer = OSError("500: <Error><Code>InternalError</Code><Message>We failed.</Message></Error>")
    assert causes.explain(answer, "do this") == ("We failed (InternalError)", "do this")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextlib.contextmanager
def silent_server() -> Iterator[str]:
    """Take connections (the kernel does) and never say a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
