"""`flameslice captures`: what the store holds."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from flameslice import outputs
from flameslice.commands.options import verbosity
from flameslice.commands.stores import data_option, log_options
from pipeline.errors import UsageError, one_line
from pipeline.text import shown

if TYPE_CHECKING:
    from pipeline.store.states import StoredCapture


@click.group(short_help="List, show and delete stored captures.")
def captures() -> None:
    """List, show and delete stored captures.

    A capture is receiving, complete, partial (something will not come) or failed (nothing of it could be read).
    """


@captures.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@data_option
@log_options
@verbosity
def list_captures(as_json: bool, data: str | None, log: str | None, log_config: str | None) -> int:
    """List the captures, the newest first."""
    from flameslice.kept import Kept
    from pipeline.store.states import describe

    kept = Kept(data, log, log_config)
    found, problems = kept.all()
    missing = kept.missing_store()
    if missing is not None:
        outputs.note(missing)
    if as_json:
        body: dict[str, Any] = {"schema_version": "1.0", "captures": [describe(one) for one in found]}
        outputs.write(json.dumps(body) + "\n", None)
    else:
        outputs.write(_table(found), None)
    for problem in problems:
        outputs.note(str(problem))
    return 1 if problems else 0


@captures.command()
@click.argument("capture", metavar="CAPTURE")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@data_option
@log_options
@verbosity
def show(capture: str, as_json: bool, data: str | None, log: str | None, log_config: str | None) -> None:
    """Show one capture, by id or name: its status, sources, rows and losses."""
    from flameslice.kept import Kept
    from pipeline.store.states import describe

    kept = Kept(data, log, log_config)
    found = kept.find(capture)
    losses = kept.losses(found)
    if as_json:
        told = [
            {"reason": one.reason, "count": one.count, "severity": one.severity, "example": one.example}
            for one in losses
        ]
        outputs.write(json.dumps(describe(found) | {"losses": told}) + "\n", None)
        return
    lines = [
        f"{found.id}  {one_line(shown(found.name))}",
        f"  status   {found.status}",
        f"  started  {_moment(found.started_realtime_ns)}",
    ]
    lines += [f"  host     {shown(found.host)}"] if found.host else []
    labels = (f"{shown(key)}={shown(value)}" for key, value in sorted(found.labels.items()))
    lines += [f"  label    {one_line(label)}" for label in labels]
    for one in found.sources:
        lines.append(f"  source   {shown(one.begin.file)} ({one.begin.format}): {one.status}")
        if one.end is not None:
            rows = ", ".join(
                f"{name} {count:,}" for name, count in sorted(one.end.table_rows.items()) if count
            )
            lines.append(f"           {_rows(one.end.rows, one.end.lost_rows)}")
            lines.append(f"           stored: {rows or 'nothing'}")
            lines += [f"           {one_line(one.end.problem)}"] if one.end.problem else []
        if one.missing:
            are = "message is" if one.missing == 1 else "messages are"
            lines.append(f"           {one.missing} {are} missing, {one.dead} of them dead letters")
    lines += [f"  {loss.severity}: {loss.describe()}" for loss in losses]
    outputs.write("\n".join(lines) + "\n", None)


@captures.command()
@click.argument("names", metavar="CAPTURE...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask; needed where nobody can be asked.")
@click.option(
    "--only-here", is_flag=True, help="Do not tell the log: its replay into another store brings them back."
)
@data_option
@log_options
@verbosity
def delete(
    names: tuple[str, ...],
    yes: bool,
    only_here: bool,
    data: str | None,
    log: str | None,
    log_config: str | None,
) -> None:
    """Delete captures, raw files included; no replay of the log brings them back.

    Those that came by way of Kafka need its --log, so that it is told.
    """
    from flameslice.kept import Kept

    kept = Kept(data, log, log_config)
    found = [kept.find(name) for name in names]
    told = ", ".join(f"{one.id} ({one_line(shown(one.name), 60)})" for one in found)
    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise UsageError(f"nobody can be asked whether to delete {told}", "give --yes")
        click.confirm(f"Delete {told}?", abort=True, err=True)
    kept.delete(found, only_here=only_here)
    outputs.write("".join(f"{one.id}\n" for one in found), None)


def _table(found: list[StoredCapture]) -> str:
    rows = [("ID", "NAME", "STATUS", "STARTED", "ROWS", "LOST", "LABELS")]
    rows += [
        (
            one.id,
            one_line(shown(one.name), 40),
            one.status,
            _moment(one.started_realtime_ns),
            f"{one.rows:,}",
            _percent(one.lost_rows, one.rows) if one.lost_rows else "",
            one_line(
                ",".join(f"{shown(key)}={shown(value)}" for key, value in sorted(one.labels.items())), 60
            ),
        )
        for one in found
    ]
    return outputs.columns(rows)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.1f}%"


def _rows(rows: int, lost: int) -> str:
    told = f"{rows:,} row{'' if rows == 1 else 's'}"
    return f"{told}, {lost:,} of them ({_percent(lost, rows)}) could not be read" if lost else told


def _moment(realtime_ns: int) -> str:
    """Return a wall clock time for people; what no calendar has is shown as it came."""
    try:
        return f"{datetime.fromtimestamp(realtime_ns // 10**9, UTC):%Y-%m-%d %H:%M:%S}Z"
    except (ValueError, OverflowError, OSError):
        return f"{realtime_ns} ns"
