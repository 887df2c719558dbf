"""`flameslice doctor`: what this machine allows to record, and the remedy for each no."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import click

from flameslice import outputs
from pipeline.errors import UsageError, WorkError, one_line

if TYPE_CHECKING:
    from flameslice.machine import Check

SCHEMA_VERSION = "1.0"


@click.command(short_help="Say what this machine allows to record, and how to allow more.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option("--require", metavar="NAME[,NAME]", help="Exit with status 1 unless all of these are ok.")
@click.option("--log", default="", metavar="kafka://HOST:PORT", help="Look for this broker too.")
def doctor(as_json: bool, require: str | None, log: str) -> int:
    """Look at what this machine allows to record: perf, tracepoints, GPUs, tools. Nothing is changed.

    A line says ok, no (with what to do), or unknown where it was not possible to look.
    """
    from flameslice import machine

    required = [name.strip() for name in (require or "").split(",") if name.strip()]
    for name in required:
        if name not in machine.CHECKS:
            raise UsageError(f"no check is named {name!r}", f"one of {', '.join(machine.CHECKS)}")
    checks = machine.inspect(machine.Look(log=log))
    outputs.write(_document(checks) if as_json else _lines(checks), None)
    if "broker" in required and not any(check.name == "broker" for check in checks):
        raise UsageError("no broker is named", "add --log kafka://HOST:PORT")
    lacking = [check for check in checks if check.name in required and check.status != "ok"]
    if lacking:
        told = ", ".join(f"{check.name} is {check.status}" for check in lacking)
        raise WorkError(f"required: {told}", lacking[0].remedy)
    return 0


def _document(checks: list[Check]) -> str:
    body = {"schema_version": SCHEMA_VERSION, "checks": [dataclasses.asdict(check) for check in checks]}
    return json.dumps(body, indent=1) + "\n"


def _lines(checks: list[Check]) -> str:
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        line = f"{check.status:<8}{check.name:<{width}}  {check.detail}"
        if check.status != "ok" and check.remedy:
            line += f": {check.remedy}"
        lines.append(one_line(line, 400))
    return "\n".join(lines) + "\n"
