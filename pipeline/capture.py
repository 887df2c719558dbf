"""The capture directory: `capture.json` says what was recorded where, and which file holds it.

    {"schema_version": "1.0", "id": "c20261201T054200Z-3f9a0c1d2e", "name": "server", "status": "complete",
     "sources": [{"file": "perf.script.zst", "format": "perf_script", "clock": "monotonic", ...}, ...], ...}

docs/formats/capture.md lists every key. A minor version only adds keys, and unknown keys are ignored; an
unknown major version is refused.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

from pipeline.errors import InputError, from_os_error
from pipeline.losses import REASONS, Loss

SCHEMA_VERSION = "1.0"
MANIFEST_FILE = "capture.json"

Status = Literal["receiving", "complete", "partial", "failed"]

# what a reader of samples takes, the best first: resolved text reads the same on every machine
SAMPLE_FORMATS = (
    "perf_script",
    "perf_data",
    "ftrace",
    "collapsed",
    "speedscope",
    "py_spy_raw",
    "chrome_trace",
)
_FORMAT_OF_UNLISTED = {"perf.script.zst": "perf_script", "perf.data": "perf_data"}


@dataclass(frozen=True, slots=True)
class CaptureSource:
    """One file of a capture."""

    file: str  # relative to the directory, with `/`
    format: str
    clock: str = ""  # empty: the file holds no times of its own
    sha256: str = ""
    size_bytes: int = 0
    default_event: str = ""  # what a flame graph of this file shows unless asked for another event
    events: dict[str, int] = field(default_factory=dict)  # event name -> how many the file holds
    start_monotonic_ns: int = 0  # when the times of a file that counts from its own start began; 0: not known
    start_uncertainty_ns: int = 0  # how far the true start may be from that


@dataclass(frozen=True, slots=True)
class Recorder:
    """What recording cost the host, in CPU time of perf and of flameslice.

    The shares are of `cpu_ns` in `wall_ns`, the time while events were recorded.
    """

    pids: tuple[int, ...] = ()
    wall_ns: int = 0
    cpu_ns: int = 0
    cpu_share_percent: float = 0.0  # of one CPU
    machine_share_percent: float = 0.0  # of all CPUs together
    start_cpu_ns: int = 0  # before: perf looks at every process
    finish_wall_ns: int = 0  # after: names are resolved
    finish_cpu_ns: int = 0


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the target, and the container that it ran in where /proc shows one."""

    pid: int
    comm: str
    container_id: str = ""
    pod_uid: str = ""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch recorded with one preset; there are several where recording fell back to a lighter one."""

    preset: str
    start_monotonic_ns: int
    end_monotonic_ns: int
    why_ended: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What `capture.json` says."""

    id: str
    name: str
    status: Status
    host: str = ""
    boot_id: str = ""
    kernel: str = ""
    arch: str = ""
    cpus: int = 0
    start_realtime_ns: int = 0
    start_monotonic_ns: int = 0
    command: tuple[str, ...] = ()
    command_status: int | None = None
    pids: tuple[int, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    preset_asked: str = ""
    preset_used: str = ""
    frequency_hz: int = 0
    call_graph: str = ""
    redacted: bool = False
    segments: tuple[Segment, ...] = ()
    processes: tuple[Process, ...] = ()
    sources: tuple[CaptureSource, ...] = ()
    losses: tuple[Loss, ...] = ()
    recorder: Recorder = Recorder()
    notes: tuple[str, ...] = ()

    @property
    def is_recording(self) -> bool:
        """Return whether `record` wrote it: then its files are views of one recording, the best of which is read."""
        return bool(self.host)

    def reader_notes(self) -> tuple[str, ...]:
        """Return what a reader of any result from this capture must know, in words."""
        told = [f"recorded with preset {self.preset_used}"] if self.preset_used else []
        if self.recorder.wall_ns:
            told.append(f"the recorder took {self.recorder.cpu_share_percent:.1f} % of one CPU")
        return tuple(told)


def new_id(realtime_ns: int) -> str:
    """Return an id that sorts by start and that no other host makes."""
    moment = datetime.fromtimestamp(realtime_ns // 1_000_000_000, UTC)
    return f"c{moment:%Y%m%dT%H%M%SZ}-{secrets.token_hex(5)}"


def to_json(manifest: Manifest) -> str:
    """Return the text of capture.json."""
    body: dict[str, Any] = {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(manifest)}
    for loss in body["losses"]:
        loss["severity"] = REASONS[loss["reason"]].severity
    return json.dumps(body, indent=1) + "\n"


def from_json(text: str, path: str) -> Manifest:
    """Return what the text of capture.json says; path is for messages."""
    try:
        body = json.loads(text)
    except ValueError as error:
        raise InputError(f"not JSON: {error}", "the capture is damaged: record it again", path=path) from None
    if not isinstance(body, dict) or not isinstance(body.get("schema_version"), str):
        raise InputError("no schema_version", "this is not the capture.json of a capture", path=path)
    version = body["schema_version"]
    if version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        raise InputError(f"schema version {version} is not known", "install a newer flameslice", path=path)
    try:
        return _manifest(body)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"not a capture's description: {type(error).__name__} {error}"
        raise InputError(problem, "the capture is damaged: record it again", path=path) from None


def _manifest(body: dict[str, Any]) -> Manifest:
    parts: dict[str, Any] = {
        "segments": tuple(Segment(**_known(Segment, one)) for one in body.get("segments", ())),
        "processes": tuple(Process(**_known(Process, one)) for one in body.get("processes", ())),
        "sources": tuple(CaptureSource(**_known(CaptureSource, one)) for one in body.get("sources", ())),
        # a newer minor version may know more reasons
        "losses": tuple(
            Loss(**_known(Loss, one)) for one in body.get("losses", ()) if one["reason"] in REASONS
        ),
        "recorder": Recorder(**_known(Recorder, body.get("recorder", {}))),
    }
    manifest = Manifest(**(_known(Manifest, body) | parts))
    if manifest.status not in get_args(Status):
        raise ValueError(f"status {manifest.status!r}")
    if not all(isinstance(one.file, str) and isinstance(one.format, str) for one in manifest.sources):
        raise TypeError("a source without file and format")
    for one in (manifest, manifest.recorder, *manifest.sources, *manifest.processes, *manifest.segments):
        _check_types(one)
    return manifest


def _check_types(value: Any) -> None:
    """Raise TypeError where a text, a number or labels are something else; numbers fit into 64 bits."""
    for one in dataclasses.fields(value):
        found, declared = getattr(value, one.name), str(one.type)
        if declared in ("str", "Status"):
            is_right = isinstance(found, str)
        elif declared == "int":
            is_right = type(found) is int and abs(found) < 1 << 63
        elif declared.startswith("dict[str, "):
            kind = int if declared.endswith("int]") else str
            is_right = isinstance(found, dict) and all(isinstance(each, kind) for each in found.values())
        else:
            is_right = True
        if not is_right:
            raise TypeError(f"{one.name} is {str(found)[:40]!r}")


def _known(kind: type[Any], body: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of body that kind has, lists as tuples."""
    names = {one.name for one in dataclasses.fields(kind)}
    return {
        key: tuple(value) if isinstance(value, list) else value for key, value in body.items() if key in names
    }


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write capture.json so that whoever reads it, whenever, finds it whole: the old text or the new one."""
    draft = directory / f".{MANIFEST_FILE}.{os.getpid()}"
    try:
        with draft.open("w", encoding="utf-8") as out:
            out.write(to_json(manifest))
            out.flush()
            os.fsync(out.fileno())
        draft.replace(directory / MANIFEST_FILE)
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise from_os_error(error, str(directory / MANIFEST_FILE)) from error


def read_manifest(directory: Path) -> Manifest:
    """Return what the capture.json of a capture directory says."""
    path = directory / MANIFEST_FILE
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise InputError("not UTF-8", "the capture is damaged: record it again", path=str(path)) from None
    except FileNotFoundError:
        remedy = "give a directory that `flameslice record` wrote, or a file in it"
        raise InputError(f"no {MANIFEST_FILE} in this directory", remedy, path=str(directory)) from None
    except OSError as error:
        raise from_os_error(error, str(path)) from error
    return from_json(text, str(path))


def sample_source(directory: Path) -> CaptureSource:
    """Return the source that readers of samples should take from a capture directory.

    A recording that was killed lists no sources: then what lies there under the usual names is taken.
    """
    manifest = read_manifest(directory)
    listed = list(manifest.sources)
    listed += [
        CaptureSource(name, kind)
        for name, kind in _FORMAT_OF_UNLISTED.items()
        if not manifest.sources and (directory / name).is_file()
    ]
    usable = [source for source in listed if source.format in SAMPLE_FORMATS]
    if not usable:
        problem = f"this capture holds no samples (its status is {manifest.status})"
        raise InputError(problem, "record it again", path=str(directory))
    return min(usable, key=lambda source: SAMPLE_FORMATS.index(source.format))


def is_capture(path: Path) -> bool:
    """Return whether path is a capture directory, or a tar that may hold one."""
    if path.is_dir():
        return (path / MANIFEST_FILE).is_file()
    from pipeline import capture_archive  # it imports this module

    return capture_archive.is_archive(path)


@contextmanager
def opened_source(path: Path) -> Iterator[Path]:
    """Give the file of a capture that readers of samples should take; an archive is unpacked meanwhile."""
    from pipeline import capture_archive

    with capture_archive.opened(path) as directory:
        yield best_source(directory)


def best_source(directory: Path) -> Path:
    """Return the file of a capture directory that readers of samples should take."""
    return source_path(directory, sample_source(directory))


def source_path(directory: Path, source: CaptureSource) -> Path:
    """Return where a source lies; refuse a name that leads out of the directory, or is no regular file."""
    name = PurePosixPath(source.file)
    where = str(directory / MANIFEST_FILE)
    if name.is_absolute() or ".." in name.parts or not name.parts or "\0" in source.file:
        raise InputError(f"source {source.file!r} is not inside the capture", "record it again", path=where)
    path = directory / name
    try:
        is_regular = stat.S_ISREG(path.lstat().st_mode)
    except OSError as error:
        raise from_os_error(error, str(path)) from error
    if not is_regular or not path.resolve().is_relative_to(directory.resolve()):
        raise InputError("not a regular file of the capture", "copy the file itself there", path=str(path))
    return path


def described(directory: Path, source: CaptureSource) -> CaptureSource:
    """Return source with the size and SHA-256 of its file."""
    path = directory / source.file
    with path.open("rb") as data:
        digest = hashlib.file_digest(data, "sha256").hexdigest()
    return dataclasses.replace(source, sha256=digest, size_bytes=path.stat().st_size)
