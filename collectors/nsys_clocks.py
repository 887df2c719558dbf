"""What the SQLite export of an Nsight Systems report says of its clock; its events are not read here.

    TARGET_INFO_SESSION_START_TIME  utcEpochNs 1776781226557295056  utcTime 2026-04-21T14:20:26  ...
    TARGET_INFO_SYSTEM_ENV          name Hostname  value gpu-7
    CUPTI_ACTIVITY_KIND_KERNEL      start 1517727052  end 1517728492  ...

Times are ns since the collection began, which is when the wall clock showed `utcEpochNs` ("UTC Epoch timestamp at start
of the capture" in the export's schema). Which clock of the host they follow, and how its start was paired with the wall
clock, the file does not say. `nsys export --ts-normalize` adds `utcEpochNs` to every time, `--ts-shift` a number.
Seen: exports of Nsight Systems 2024.2 to 2026.2, schema 3.11 to 3.25.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from collectors.perf_data import on_disk
from collectors.source import Source
from pipeline.clock_domains import RELATIVE, SESSION, Domain, Reading, Snapshot, SourceClocks
from pipeline.errors import InputError, from_os_error
from pipeline.text import shown

# nothing tells how the two clocks were paired; our choice, and over a thousand times what two reads in a row take
READ_APART_NS: Final = 1_000_000
_OURS = ("META_DATA_EXPORT", "TARGET_INFO_SESSION_START_TIME", "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS")
_START = "TARGET_INFO_SESSION_START_TIME"
_UTC = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z?")
# a table's scan takes far fewer steps of SQLite's machine than this per byte of the file
_STEPS_PER_BYTE = 64
_STEPS_AT_ONCE = 1_000_000


def read(source: Source, host: str = "", boot_id: str = "") -> SourceClocks:
    """Return what an export says; raises InputError where it is none, or is damaged."""
    try:
        with on_disk(source) as found, contextlib.closing(_opened(Path(found))) as base:
            return _clocks(_Export(base), source.name, host, boot_id)
    except sqlite3.Error as error:
        remedy = "export it again: nsys export --type sqlite REPORT"
        raise InputError(f"SQLite cannot read it: {error}", remedy, path=source.name) from None
    except OSError as error:
        raise from_os_error(error, source.name) from error


def _opened(path: Path) -> sqlite3.Connection:
    """Open a database so that nothing in it or beside it is run or written, and no question takes for ever."""
    base = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)
    base.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    base.execute("PRAGMA trusted_schema=OFF")
    left = [10 + path.stat().st_size * _STEPS_PER_BYTE // _STEPS_AT_ONCE]

    def is_too_long() -> bool:
        left[0] -= 1
        return left[0] < 0

    base.set_progress_handler(is_too_long, _STEPS_AT_ONCE)
    return base


class _Export:
    """The plain tables of an export and their plain columns; no view, virtual table or computed column is asked."""

    def __init__(self, base: sqlite3.Connection) -> None:
        self._base = base
        names = base.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        ).fetchall()
        self.columns: dict[str, set[str]] = {}
        for (name,) in names:
            if not isinstance(name, str) or not name.isprintable():
                continue  # no name that nsys gives
            rows = base.execute(f"PRAGMA table_xinfo({_quoted(name)})").fetchall()
            self.columns[name] = {row[1] for row in rows if row[6] == 0}

    def rows(self, table: str, *columns: str, limit: int = 10_000) -> list[tuple[Any, ...]]:
        """Return rows of a table, none where it lacks one of the columns."""
        if not set(columns) <= self.columns.get(table, set()):
            return []
        listed = ", ".join(_quoted(column) for column in columns)
        return self._base.execute(f"SELECT {listed} FROM {_quoted(table)} LIMIT {limit}").fetchall()

    def span(self) -> tuple[int | None, int | None]:
        """Return the earliest start and the latest start or end of all events, None where there are none."""
        times: list[int] = []
        for table, columns in self.columns.items():
            if "start" not in columns:
                continue
            asked = 'min("start"), max("start")' + (', max("end")' if "end" in columns else "")
            question = f"SELECT {asked} FROM {_quoted(table)} WHERE typeof(\"start\") = 'integer'"
            times += [one for one in self._base.execute(question).fetchone() if type(one) is int]
        return min(times, default=None), max(times, default=None)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _clocks(export: _Export, name: str, host: str, boot_id: str) -> SourceClocks:
    if not export.columns.keys() & set(_OURS):
        raise InputError(
            "this SQLite database is no export of Nsight Systems",
            "export the report: nsys export --type sqlite REPORT",
            path=name,
        )
    notes: list[str] = []
    host = host or _host(export)
    first, last = export.span()
    anchor = _wall_at_start(export, notes)
    if anchor is None:
        return SourceClocks(name, RELATIVE, host, boot_id, first=first, last=last, notes=tuple(notes))
    wall_ns, uncertainty_ns = anchor
    wall = Reading(Domain("realtime", host, boot_id), wall_ns, uncertainty_ns)
    start = Reading(Domain(SESSION, name), _exported_start_ns(export, wall_ns))
    notes.append(
        "it does not say which clock its times follow, nor how surely its start was read: "
        f"taken to be within {uncertainty_ns // 1_000_000} ms of the wall clock there"
    )
    snapshot = Snapshot((start, wall), f"{name}: {_START}")
    return SourceClocks(name, SESSION, host, boot_id, (snapshot,), first=first, last=last, notes=tuple(notes))


def _host(export: _Export) -> str:
    """Return the host that was recorded, not the one that exported the report."""
    found = dict(export.rows("TARGET_INFO_SYSTEM_ENV", "name", "value"))
    hosts = {found.get("Hostname")}
    if hosts == {None}:
        hosts = {
            value
            for key, value in export.rows("META_DATA_CAPTURE", "name", "value")
            if key == "DEVICE_DISPLAY_NAME"
        }
    host = next(iter(hosts)) if len(hosts) == 1 else ""
    return shown(host)[:255] if isinstance(host, str) else ""


def _wall_at_start(export: _Export, notes: list[str]) -> tuple[int, int] | None:
    """Return what the wall clock showed when the collection began, in ns, and how uncertain that is."""
    told = {
        (value, READ_APART_NS)
        for (value,) in export.rows(_START, "utcEpochNs", limit=100)
        if type(value) is int and 0 < value < 1 << 62
    }
    if not told:
        told = {
            found
            for (text,) in export.rows(_START, "utcTime", limit=100)
            if isinstance(text, str) and (found := _of_utc(text)) is not None
        }
    if len(told) == 1:
        return next(iter(told))
    notes.append(
        "it does not say when its session began"
        if not told
        else f"it names {len(told)} starts of its session"
    )
    return None


def _of_utc(text: str) -> tuple[int, int] | None:
    """Return (ns, uncertainty) of a printed time: the middle of what its digits leave open."""
    match = _UTC.fullmatch(text)
    if match is None:
        return None
    try:
        moment = datetime.fromisoformat(f"{match[1]}T{match[2]}").replace(tzinfo=UTC)
    except ValueError:
        return None
    digits = match[3] or ""
    open_ns = 10 ** (9 - len(digits))
    seconds = int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
    start_ns = seconds * 10**9 + int(digits.ljust(9, "0"))
    return start_ns + open_ns // 2, (open_ns + 1) // 2 + READ_APART_NS


def _exported_start_ns(export: _Export, wall_ns: int) -> int:
    """Return what the start of the collection became when the report was exported: 0, unless times were shifted."""
    told = dict(export.rows("META_DATA_EXPORT", "name", "value"))
    shift = str(told.get("EXPORT_PARAM_TIME_SHIFT", "0"))
    shift_ns = int(shift) if re.fullmatch(r"-?[0-9]{1,18}", shift) else 0
    is_normal = str(told.get("EXPORT_PARAM_TIME_NORMALIZE", "")).lower() in ("true", "1")
    return (wall_ns if is_normal else 0) + shift_ns
