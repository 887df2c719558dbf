"""Compaction: the many small parts of a complete capture become few large ones, sorted by time across parts.

    1  .compact-N/<table>/part-...     new parts, beside the live folders
    2  manifest.json                   lists the new parts where they lie now
    3  <table> <-> .swap-N/<table>     folders change places, each in one step; .swap-N held hard links to the new parts
    4  manifest.json                   lists the new parts in <table>
    5  .compact-N and .swap-N go

At every moment what the manifest lists exists, and a glob over a table's folder finds either the old parts or the new
ones. Whoever is stopped in between, the next run goes on from the manifest, or begins anew.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import itertools
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from pipeline import schema
from pipeline.errors import InputError, UsageError, WorkError, from_os_error
from pipeline.store.catalog import Catalog
from pipeline.store.parts import PART, Ranges, to_parquet
from pipeline.store.place import LocalPlace, sync_folder, write_durably
from pipeline.store.states import StoredCapture

PART_ROWS = 1 << 20  # of a compacted part, about
_COMPACT, _SWAP = ".compact-", ".swap-"
_RENAME_EXCHANGE = 2  # linux/fs.h
_AT_FDCWD = -100


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was done to one capture."""

    capture: str
    before: int
    after: int


def run(catalog: Catalog, names: Sequence[str] = (), *, part_rows: int = PART_ROWS) -> list[Compacted]:
    """Compact the captures that are named, or all complete ones; those in which nothing is to join are left out."""
    place = catalog.place
    if not isinstance(place, LocalPlace):
        raise UsageError(
            "compaction needs folders that change places in one step, and object stores have none",
            "let fewer, larger parts be made, or compact on a disk before you copy",
        )
    done = []
    for capture in [_named(catalog, name) for name in names] or catalog.all():
        with _alone(place, capture.id):
            _finish(place, catalog, capture.id)
            fresh = catalog.get(capture.id)
            if fresh is None or fresh.status != "complete":
                if names:
                    status = "deleted" if fresh is None else fresh.status
                    raise InputError(
                        f"the capture is {status}", "only complete ones are compacted", path=capture.id
                    )
                continue
            result = _compact(place, catalog, fresh, part_rows)
            if result is not None:
                done.append(result)
    return done


def _named(catalog: Catalog, name: str) -> StoredCapture:
    capture = catalog.resolve(name)
    if capture is None:
        raise InputError("no such capture", "see flameslice captures list", path=name)
    return capture


@contextlib.contextmanager
def _alone(place: LocalPlace, capture: str) -> Iterator[None]:
    """Keep a second compaction of the capture waiting."""
    folder = place.root / "captures"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / f".compact-{capture}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise from_os_error(error, str(folder)) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
        (folder / f".compact-{capture}.lock").unlink(missing_ok=True)
    finally:
        os.close(handle)


def _compact(place: LocalPlace, catalog: Catalog, capture: StoredCapture, part_rows: int) -> Compacted | None:
    joinable = {
        table: names
        for table, names in capture.parts.items()
        if _is_worth_it(place, capture.id, names, part_rows)
    }
    if not joinable:
        return None
    root = place.root / f"captures/capture={capture.id}"
    stored = _stored_of(catalog, capture.id)
    number = 1 + max(
        (_generation(Path(name).name) for names in capture.parts.values() for name in names), default=0
    )
    work = root / f"{_COMPACT}{number}"
    try:
        fresh: dict[str, list[str]] = {}
        for table in joinable:
            (work / table).mkdir(parents=True)
            fresh[table] = []
            for index, rows in enumerate(_portions(place, capture, table, part_rows)):
                name = f"{PART}c{number:04d}-{index:06d}.parquet"
                # the first of them speaks for all: which messages the table holds
                identities: dict[str, Ranges] = stored[table] if index == 0 else {}
                write_durably(work / table / name, to_parquet(rows, capture.id, table, identities, None))
                fresh[table].append(name)
            sync_folder(work / table)
        sync_folder(work)
        sync_folder(root)
        _check(place, capture, work, fresh)
        live = {table: [f"{work.name}/{table}/{name}" for name in names] for table, names in fresh.items()}
        _list_in_manifest(place, catalog, capture.id, live)
        _finish(place, catalog, capture.id)
    except OSError as error:
        raise from_os_error(error, str(work)) from error
    before = sum(len(names) for names in capture.parts.values())
    untouched = sum(len(names) for table, names in capture.parts.items() if table not in joinable)
    return Compacted(capture.id, before, untouched + sum(len(names) for names in fresh.values()))


def _is_worth_it(place: LocalPlace, capture: str, names: Sequence[str], part_rows: int) -> bool:
    """Return whether a table would have fewer parts."""
    if len(names) < 2:
        return False
    rows = sum(_rows_of(place, capture, name) for name in names)
    return len(names) > max(1, -(-rows // part_rows)) * 2 or (rows <= part_rows)


def _rows_of(place: LocalPlace, capture: str, name: str) -> int:
    path = place.root / f"captures/capture={capture}" / name
    return int(pl.scan_parquet(path, glob=False).select(pl.len()).collect().item())


def _generation(name: str) -> int:
    """Return which compaction made a part; 0: a worker did."""
    digits = name.removeprefix(f"{PART}c")[:4]
    return (
        int(digits)
        if name.startswith(f"{PART}c") and digits.isdigit() and name[len(PART) + 5 : len(PART) + 6] == "-"
        else 0
    )


def _stored_of(catalog: Catalog, capture: str) -> dict[str, dict[str, Ranges]]:
    catalog.write_manifest(capture)
    manifest = catalog.manifest(capture)
    assert manifest is not None
    return {
        table: {source: [(a, b) for a, b in ranges] for source, ranges in sources.items()}
        for table, sources in manifest["stored"].items()
    }


def _portions(
    place: LocalPlace, capture: StoredCapture, table: str, part_rows: int
) -> Iterator[pl.DataFrame]:
    """Yield all rows of a table in about part_rows each, in order of time, holding one portion at a time."""
    root = place.root / f"captures/capture={capture.id}"
    rows = pl.scan_parquet(
        [root / name for name in capture.parts[table]],
        glob=False,
        hive_partitioning=False,
        missing_columns="insert",
        extra_columns="ignore",
        schema=pl.Schema({**schema.KEYS, **schema.TABLES[table]}),
    )
    key = "raw_time" if "raw_time" in schema.TABLES[table] else "row"
    bounds = _bounds(rows, key, part_rows)
    for low, high in bounds:
        chosen = rows
        if low is None and high is None:
            chosen = rows.filter(pl.col(key).is_null()) if len(bounds) > 1 else rows
        else:
            if low is not None:
                chosen = chosen.filter(pl.col(key) >= low)
            if high is not None:
                chosen = chosen.filter(pl.col(key) < high)
        portion = chosen.collect()
        if portion.height:
            yield portion.sort(*dict.fromkeys((key, "source", "row")), nulls_last=True)


def _bounds(rows: pl.LazyFrame, key: str, part_rows: int) -> list[tuple[int | None, int | None]]:
    """Return half-open ranges of the key with about part_rows rows each; (None, None): those without a key."""
    keys = rows.select(key).collect().to_series()  # 8 bytes a row
    values = keys.drop_nulls().sort()
    cuts: list[int] = []
    for at in range(part_rows, len(values), part_rows):
        if not cuts or values[at] > cuts[-1]:
            cuts.append(values[at])
    edges: list[int | None] = [None, *cuts, None]
    ranges = list(itertools.pairwise(edges))
    if keys.null_count() and cuts:
        ranges.append((None, None))
    return ranges


def _check(place: LocalPlace, capture: StoredCapture, work: Path, fresh: dict[str, list[str]]) -> None:
    """Make sure that the new parts hold as many rows as the old ones before anybody reads them."""
    for table, names in fresh.items():
        before = sum(_rows_of(place, capture.id, name) for name in capture.parts[table])
        after = sum(_rows_of(place, capture.id, f"{work.name}/{table}/{name}") for name in names)
        if before != after:
            shutil.rmtree(work, ignore_errors=True)
            problem = f"compaction of {table} made {after} rows of {before}"
            raise WorkError(problem, "nothing was changed: report it", path=capture.id)


def _list_in_manifest(place: LocalPlace, catalog: Catalog, capture: str, live: dict[str, list[str]]) -> None:
    path = f"captures/capture={capture}/manifest.json"
    body: dict[str, Any] = catalog.manifest(capture) or {}
    body["parts"] = body.get("parts", {}) | live
    place.replace(path, json.dumps(body, indent=1, sort_keys=True).encode() + b"\n")


def _finish(place: LocalPlace, catalog: Catalog, capture: str) -> None:
    """Go on with a compaction from wherever it is; remove what one left behind that never came to its manifest."""
    root = place.root / f"captures/capture={capture}"
    place.sweep(f"captures/capture={capture}")
    try:
        leftovers = [
            name
            for name in place.folders(f"captures/capture={capture}")
            if name.startswith((_COMPACT, _SWAP))
        ]
        if not leftovers:
            return
        manifest = catalog.manifest(capture) or {}
        listed = [name for names in manifest.get("parts", {}).values() for name in names]
        for name in leftovers:
            if name.startswith(_COMPACT) and any(one.startswith(f"{name}/") for one in listed):
                _swap(root, name, manifest["parts"])
        catalog.write_manifest(capture)
        for name in leftovers:
            shutil.rmtree(root / name, ignore_errors=True)
            shutil.rmtree(root / name.replace(_COMPACT, _SWAP), ignore_errors=True)
        sync_folder(root)
    except OSError as error:
        raise from_os_error(error, str(root)) from error


def _swap(root: Path, work: str, parts: dict[str, list[str]]) -> None:
    """Let the folders of new and old parts change places, table by table."""
    swap = root / work.replace(_COMPACT, _SWAP)
    shutil.rmtree(swap, ignore_errors=True)
    for table, names in parts.items():
        if not names or not names[0].startswith(f"{work}/"):
            continue
        fresh = [Path(name).name for name in names]
        if all((root / table / name).exists() for name in fresh):
            continue  # done before
        (swap / table).mkdir(parents=True)
        for name in fresh:
            os.link(root / work / table / name, swap / table / name)
        sync_folder(swap / table)
        exchange(swap / table, root / table)
        sync_folder(root)
        sync_folder(swap)


def exchange(one: Path, other: Path) -> None:
    """Let two folders of one file system change places in one step."""
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.renameat2(
        _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), ctypes.c_uint(_RENAME_EXCHANGE)
    )
    if done != 0:
        code = ctypes.get_errno()
        if code in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise WorkError(
                "this file system cannot let two folders change places in one step",
                "keep the store on ext4, xfs, btrfs or tmpfs",
                path=str(other),
            )
        raise OSError(code, os.strerror(code), str(other))
