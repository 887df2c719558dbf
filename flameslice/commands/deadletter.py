"""`flameslice deadletter`: messages that no worker could take in."""

from __future__ import annotations

import json
from typing import Any

import click

from flameslice import outputs
from flameslice.commands.options import verbosity
from flameslice.commands.stores import data_option, log_options

_HEADERS = ("capture", "source", "table", "sequence")  # what a message says that it is


@click.group(short_help="List and replay messages that could not be stored.")
def deadletter() -> None:
    """List and replay messages that no worker could take in, each with its reason and where it lay."""


@deadletter.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@data_option
@log_options
@verbosity
def list_letters(as_json: bool, data: str | None, log: str | None, log_config: str | None) -> None:
    """List the dead letters that were not replayed."""
    from flameslice import logs
    from pipeline.log import dead_letters, wire

    rows: list[dict[str, Any]] = []
    opened = logs.open_existing(log, log_config, logs.catalog_of(data))
    try:
        for letter in dead_letters.pending(opened) if opened is not None else ():
            headers = wire.text_headers(letter.original)
            rows.append(
                {
                    "reason": letter.reason,
                    "topic": letter.topic,
                    "partition": letter.partition,
                    "offset": letter.offset,
                    "size_bytes": len(letter.original.value),
                    **{name: headers.get(name, "")[:200] for name in _HEADERS},
                }
            )
    finally:
        if opened is not None:
            opened.close()
    if as_json:
        outputs.write(json.dumps({"schema_version": "1.0", "dead_letters": rows}) + "\n", None)
        return
    table = [("TOPIC", "PARTITION", "OFFSET", "CAPTURE", "REASON")]
    table += [
        (row["topic"], str(row["partition"]), str(row["offset"]), row["capture"] or "-", row["reason"])
        for row in rows
    ]
    outputs.write(outputs.columns(table) if rows else "no dead letters\n", None)


@deadletter.command()
@data_option
@log_options
@verbosity
def replay(data: str | None, log: str | None, log_config: str | None) -> None:
    """Send every dead letter back to its topic, for a worker that can read it by now."""
    from flameslice import logs
    from pipeline.log import dead_letters

    opened = logs.open_existing(log, log_config, logs.catalog_of(data))
    count = 0
    if opened is not None:
        try:
            count = dead_letters.replay(opened)
        finally:
            opened.close()
    outputs.write(f"{count} sent back\n", None)
