"""`flameslice compact`: many small parts become few large ones."""

from __future__ import annotations

import json

import click

from flameslice import outputs
from flameslice.commands.options import verbosity
from flameslice.commands.stores import data_option
from pipeline.errors import InputError


@click.command(short_help="Join the small files of complete captures.")
@click.argument("names", metavar="[CAPTURE...]", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
@data_option
@verbosity
def compact(names: tuple[str, ...], as_json: bool, data: str | None) -> None:
    """Join the parts of complete captures into few large files, sorted by time; without a name, of all of them.

    It may be stopped at any moment and run again; readers see the parts as they were or as they are then.
    """
    from flameslice import logs
    from pipeline.store import compaction

    catalog = logs.catalog_of(data)
    done = compaction.run(catalog, names)
    if not done and not catalog.is_there():
        problem = f"no store at {catalog.place.url}: nothing was ingested there yet"
        raise InputError(problem, "give --data, or set FLAMESLICE_DATA")
    if as_json:
        body = [{"id": one.capture, "parts_before": one.before, "parts_after": one.after} for one in done]
        outputs.write(json.dumps({"schema_version": "1.0", "compacted": body}) + "\n", None)
        return
    lines = [f"{one.capture}  {one.before} parts became {one.after}\n" for one in done]
    outputs.write("".join(lines) or "nothing to compact\n", None)
