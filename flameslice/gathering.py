"""What an ingest is given: files and captures, looked at and hashed before anything is written.

The id of loose files follows from their name and content, that of a recorded capture was given when it was recorded.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import collectors
from collectors import perf_data
from collectors.source import STDIN_NAME, Source
from flameslice.inputs import STDIN, repeatable
from pipeline import capture as captures
from pipeline import capture_archive
from pipeline.capture import CaptureSource, Manifest
from pipeline.errors import InputError, from_os_error
from pipeline.log import wire
from pipeline.store.catalog import Catalog

CLOCKS_FORMAT = "clock_snapshots"
_LONGEST_NAME = 60  # of a file that is renamed: no disk refuses it, in any letters


@dataclass(frozen=True, slots=True)
class Input:
    """One file of a capture that is to be ingested."""

    path: Path
    file: str  # its name in the capture
    format: str  # '' for what only lies in raw/
    sha256: str
    size_bytes: int
    clock: str = ""
    default_event: str = ""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything of one capture: what to read, and what else came with it."""

    manifest: Manifest
    files: tuple[Input, ...]
    extra: tuple[Input, ...] = ()  # kept in raw/, and read by nothing yet


@contextlib.contextmanager
def gathered(
    paths: Sequence[str], *, name: str | None, labels: Mapping[str, str], forced_format: str | None = None
) -> Iterator[list[Inputs]]:
    """Look at what was named: each recorded capture is one, all loose files together are one.

    Nothing is written yet; raises InputError where one of them is nothing that a reader takes.
    """
    with contextlib.ExitStack() as stack:
        recorded: list[Inputs] = []
        loose: list[tuple[Path, str, str]] = []  # path, name in the capture, name in messages
        for argument in paths:
            path = _own_raw(Path(stack.enter_context(repeatable(argument))))
            if captures.is_capture(path):
                directory = stack.enter_context(capture_archive.opened(path))
                recorded.append(_recorded(directory, name, labels))
            elif (path / "store.json").is_file():
                remedy = "give one of its captures: captures/capture=ID"
                raise InputError("a store of captures, not a capture", remedy, path=argument)
            elif path.is_dir():
                raise InputError("a directory without capture.json", "give its files", path=argument)
            else:
                is_stdin = argument == STDIN
                loose.append(
                    (path, "stdin" if is_stdin else Path(argument).name, STDIN_NAME if is_stdin else argument)
                )
        found = list(recorded)
        if loose:
            found.append(_loose(loose, name, labels, forced_format))
        for one in (file for inputs in found for file in inputs.files if file.format == "perf_data"):
            perf_data.perf_path(one.file)
        yield found


def _own_raw(path: Path) -> Path:
    """Return the files that came in, where a path is a capture's folder in a store."""
    raw = path / "raw"
    is_stored = path.name.startswith("capture=") and captures.is_capture(raw)
    return raw if is_stored else path


def _recorded(directory: Path, name: str | None, labels: Mapping[str, str]) -> Inputs:
    """Return what a capture directory holds: the best of its files with samples, and its clock readings."""
    manifest = captures.read_manifest(directory)
    if not wire.is_capture_id(manifest.id):
        raise InputError(f"no usable id: {manifest.id[:40]!r}", "record it again", path=str(directory))
    read: list[Input] = []
    extra: list[Input] = []
    best = _samples_of(directory, manifest)
    for source in manifest.sources or tuple(best):
        path = captures.source_path(directory, source)
        is_read = source.format == CLOCKS_FORMAT or source in best
        one = _hashed(path, source.file, source.format if is_read else "", source)
        (read if is_read else extra).append(one)
    if not read:
        raise InputError("this capture holds nothing to read", "record it again", path=str(directory))
    manifest = replace(manifest, name=name or manifest.name, labels={**manifest.labels, **labels})
    return Inputs(manifest, tuple(read), tuple(extra))


def _samples_of(directory: Path, manifest: Manifest) -> list[CaptureSource]:
    """Return the sources with samples to read: of a recording the best one, of loose files each."""
    if manifest.is_recording:
        return [captures.sample_source(directory)]
    return [source for source in manifest.sources if source.format in captures.SAMPLE_FORMATS]


def _loose(
    files: Sequence[tuple[Path, str, str]],
    name: str | None,
    labels: Mapping[str, str],
    forced_format: str | None,
) -> Inputs:
    read: dict[str, Input] = {}
    taken: set[str] = set()
    for path, file, shown in files:
        with Source.open_path(str(path)) as source:
            source.name = shown
            kind = collectors.detect(source, forced_format)
        one = _hashed(path, file, kind)
        if one.sha256 in read:
            continue  # the same file twice is one source
        if one.file in taken or one.file == captures.MANIFEST_FILE:
            one = replace(one, file=f"{one.sha256[:8]}-{one.file}"[:_LONGEST_NAME])
        taken.add(one.file)
        read[one.sha256] = one
    name = name or files[0][1]
    started_ns = min(path.stat().st_mtime_ns for path, _, _ in files)
    manifest = Manifest(
        id=_content_id(name, sorted(read)),
        name=name,
        status="complete",
        start_realtime_ns=started_ns,
        labels=dict(labels),
        sources=tuple(
            CaptureSource(one.file, one.format, sha256=one.sha256, size_bytes=one.size_bytes)
            for one in read.values()
        ),
    )
    return Inputs(manifest, tuple(read.values()))


def _content_id(name: str, digests: Sequence[str]) -> str:
    text = json.dumps([name, *digests])
    return f"f{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:20]}"


def _hashed(path: Path, file: str, kind: str, source: CaptureSource | None = None) -> Input:
    try:
        with path.open("rb") as data:
            digest = hashlib.file_digest(data, "sha256").hexdigest()
        size = path.stat().st_size
    except OSError as error:
        raise from_os_error(error, str(path)) from error
    if source is not None and source.sha256 and source.sha256 != digest:
        problem = "this file is not the one that was recorded: its SHA-256 differs"
        raise InputError(problem, "copy the capture again", path=str(path))
    clock, event = (source.clock, source.default_event) if source is not None else ("", "")
    return Input(path, file, kind, digest, size, clock, event)


def free_id(capture: str, catalog: Catalog, deleted: frozenset[str] = frozenset()) -> str:
    """Return an id for a capture: its own, or with a number behind it where it was deleted before."""
    candidate, number = capture, 1
    while candidate in deleted or catalog.is_deleted(candidate):
        number += 1
        candidate = f"{capture}-{number}"
    return candidate


def keep_raw(inputs: Inputs, catalog: Catalog) -> None:
    """Copy what came in to the store's raw/, as a capture directory that can be ingested again."""
    place, folder = catalog.place, f"captures/capture={inputs.manifest.id}/raw"
    have = set(place.names(folder))
    for one in (*inputs.files, *inputs.extra):
        if one.file not in have:
            place.put_file(f"{folder}/{one.file}", one.path)
    place.replace(f"{folder}/{captures.MANIFEST_FILE}", captures.to_json(inputs.manifest).encode())
