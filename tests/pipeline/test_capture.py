"""What capture.json says comes back as it was; what is damaged, strange or hostile is refused in one line."""

from __future__ import annotations

import io
import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from pipeline import capture, capture_archive
from pipeline.capture import CaptureSource, Manifest, Process, Recorder, Segment
from pipeline.errors import InputError, WorkError
from pipeline.losses import Loss

FULL = Manifest(
    id="c20261201T054200Z-3f9a0c1d2e",
    name="server",
    status="complete",
    host="host",
    boot_id="b",
    cpus=2,
    start_realtime_ns=1_796_097_220_690_226_123,
    command=("server", "--port", "1"),
    command_status=-15,
    labels={"service": "vllm"},
    segments=(Segment("latency", 5, 9, "event_rate"), Segment("cpu at 999 Hz", 10, 20, "asked")),
    processes=(Process(7, "server", "ab" * 32, ""),),
    sources=(
        CaptureSource("perf.data", "perf_data", "monotonic", "00", 3),
        CaptureSource("perf.script.zst", "perf_script", "monotonic", "11", 4, "cpu-clock", {"cpu-clock": 2}),
        CaptureSource("spy.json", "chrome_trace", start_monotonic_ns=5, start_uncertainty_ns=2),
    ),
    losses=(Loss("dropped_event_rate", 1),),
    recorder=Recorder((1, 2), wall_ns=10, cpu_ns=1, cpu_share_percent=10.0),
    notes=("a note",),
)


def write_capture(directory: Path, manifest: Manifest = FULL) -> Path:
    directory.mkdir(exist_ok=True)
    capture.write_manifest(directory, manifest)
    (directory / "perf.data").write_bytes(b"raw")
    (directory / "perf.script.zst").write_bytes(b"text")
    return directory


# ------------------------------------------------------------------ capture.json


def test_a_manifest_comes_back_as_it_was_written(tmp_path: Path) -> None:
    capture.write_manifest(tmp_path, FULL)
    assert capture.read_manifest(tmp_path) == FULL
    assert [path.name for path in tmp_path.iterdir()] == ["capture.json"]


@given(name=st.text(), words=st.lists(st.text()), labels=st.dictionaries(st.text(), st.text()))
def test_any_text_survives(name: str, words: list[str], labels: dict[str, str]) -> None:
    manifest = replace(FULL, name=name, command=tuple(words), labels=labels)
    assert capture.from_json(capture.to_json(manifest), "x") == manifest


def test_a_newer_minor_version_with_more_keys_is_read() -> None:
    body = json.loads(capture.to_json(FULL))
    body["schema_version"] = "1.7"
    body["new"] = 1
    body["sources"][0]["new"] = 1
    body["losses"].append({"reason": "of_the_future", "count": 1})
    assert capture.from_json(json.dumps(body), "x") == FULL


def test_an_unknown_major_version_is_refused() -> None:
    body = json.loads(capture.to_json(FULL)) | {"schema_version": "2.0"}
    with pytest.raises(InputError, match=r"^c\.json: schema version 2\.0 is not known: install a newer"):
        capture.from_json(json.dumps(body), "c.json")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"status": "done"}, "status"),
        ({"sources": [{"format": "perf_data"}]}, "file"),
        ({"sources": 7}, "TypeError"),
        ({"recorder": []}, "list"),
        ({"losses": [{}]}, "reason"),
    ],
)
def test_a_damaged_manifest_is_refused_in_one_line(change: dict[str, object], words: str) -> None:
    body = json.loads(capture.to_json(FULL)) | change
    with pytest.raises(InputError, match=words) as caught:
        capture.from_json(json.dumps(body), "c.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", "{", '{"schema_version": 1}', '{"schema_version": "1.0"}'])
def test_what_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        capture.from_json(text, "c.json")


def test_a_failed_write_leaves_the_old_manifest_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture.write_manifest(tmp_path, replace(FULL, status="receiving"))

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WorkError, match="no space left"):
        capture.write_manifest(tmp_path, FULL)
    assert capture.read_manifest(tmp_path).status == "receiving"
    assert [path.name for path in tmp_path.iterdir()] == ["capture.json"]


def test_ids_sort_by_start_and_differ() -> None:
    first, second = capture.new_id(1_796_097_220_690_226_123), capture.new_id(1_796_097_220_690_226_123)
    assert first.startswith("c20261201T035340Z-")
    assert first != second
    assert capture.new_id(1_796_097_221_690_226_123) > max(first, second)


# ------------------------------------------------------------------ which file is read


def test_resolved_text_is_read_rather_than_perf_data(tmp_path: Path) -> None:
    assert capture.best_source(write_capture(tmp_path)).name == "perf.script.zst"


def test_a_killed_recording_gives_the_perf_data_that_lies_there(tmp_path: Path) -> None:
    directory = write_capture(tmp_path, replace(FULL, status="receiving", sources=()))
    (directory / "perf.script.zst").unlink()
    assert capture.best_source(directory) == directory / "perf.data"


def test_a_capture_without_samples_says_its_status(tmp_path: Path) -> None:
    capture.write_manifest(tmp_path, replace(FULL, status="failed", sources=()))
    with pytest.raises(InputError, match="its status is failed"):
        capture.best_source(tmp_path)


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "a/../../secret", "", "x\0y"])
def test_a_source_outside_the_capture_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_bytes(b"")
    directory = write_capture(tmp_path / "c", replace(FULL, sources=(CaptureSource(name, "perf_script"),)))
    with pytest.raises(InputError):
        capture.best_source(directory)


def test_a_source_that_is_a_link_is_refused(tmp_path: Path) -> None:
    directory = write_capture(tmp_path / "c")
    (tmp_path / "secret").write_bytes(b"")
    (directory / "perf.script.zst").unlink()
    (directory / "perf.script.zst").symlink_to(tmp_path / "secret")
    with pytest.raises(InputError, match="not a regular file"):
        capture.best_source(directory)
    (directory / "perf.script.zst").unlink()
    (directory / "sub").symlink_to(tmp_path)
    with pytest.raises(InputError, match="not a regular file"):
        capture.source_path(directory, CaptureSource("sub/secret", "perf_script"))


def test_a_source_knows_size_and_digest_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    source = capture.described(tmp_path, CaptureSource("f", "perf_data"))
    assert source.size_bytes == 3
    assert source.sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


# ------------------------------------------------------------------ archives


def archive_of(directory: Path, kind: str) -> Path:
    path = directory.with_suffix(f".{kind}")
    plain = io.BytesIO()
    mode = {"tar.gz": "w:gz", "tar.xz": "w:xz"}.get(kind, "w")
    with tarfile.open(fileobj=plain, mode=mode) as tar:  # type: ignore[call-overload]
        tar.add(directory, "server.capture")
    raw = plain.getvalue()
    path.write_bytes(zstandard.compress(raw) if kind == "tar.zst" else raw)
    return path


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "tar.xz", "tar.zst"])
def test_an_archive_is_read_as_its_directory_and_leaves_nothing(tmp_path: Path, kind: str) -> None:
    archive = archive_of(write_capture(tmp_path / "c"), kind)
    assert capture.is_capture(archive)
    with capture.opened_source(archive) as source:
        assert source.read_bytes() == b"text"
    assert not source.exists()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, size
    return info.tobuf(tarfile.GNU_FORMAT) + b"\0" * (-(-size // 512) * 512)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (member("/etc/evil"), "lies outside"),
        (member("a/../../evil"), "lies outside"),
        (member("a", tarfile.SYMTYPE, "/etc"), "neither a file nor a directory"),
        (member("a", tarfile.LNKTYPE, "b"), "neither a file nor a directory"),
        (member("a", tarfile.CHRTYPE), "neither a file nor a directory"),
        (member("a", tarfile.FIFOTYPE), "neither a file nor a directory"),
        (member("a", size=5000), "unpacks to over 4000 bytes"),
        (member("a", size=3000) + member("b", size=3000), "unpacks to over 4000 bytes"),
        (member("a") + member("a"), "file exists"),
        (member("a"), "no capture.json"),
        (member("a/capture.json") + member("b/capture.json"), "more than one capture.json"),
        (member("a", size=3000)[:2000], "not a readable tar"),
    ],
)
def test_a_hostile_or_damaged_archive_is_refused(tmp_path: Path, raw: bytes, words: str) -> None:
    archive = tmp_path / "x.tar"
    archive.write_bytes(raw + (b"" if len(raw) % 512 else b"\0" * 1024))
    into = tmp_path / "into"
    into.mkdir()
    with pytest.raises((InputError, WorkError), match=words):
        capture_archive.unpack(archive, into, max_bytes=4000)
    assert not (tmp_path / "evil").exists()


def test_a_truncated_zstd_archive_is_refused(tmp_path: Path) -> None:
    archive = archive_of(write_capture(tmp_path / "c"), "tar.zst")
    archive.write_bytes(archive.read_bytes()[:100])
    with pytest.raises(InputError), capture.opened_source(archive):
        pass


def test_what_is_no_capture_is_none(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("comm 1 2.3: x:\n")
    (tmp_path / "text.zst").write_bytes(zstandard.compress(b"comm"))
    (tmp_path / "damaged.gz").write_bytes(b"\x1f\x8b\x08broken")
    os.mkfifo(tmp_path / "pipe")
    for path in [*tmp_path.iterdir(), tmp_path, tmp_path / "missing"]:
        assert not capture.is_capture(path)
