"""`flameslice ingest`: files and captures into the store, by way of the log."""

from __future__ import annotations

import json
import time

import click

from flameslice import outputs, quantities
from flameslice.commands.options import talk
from flameslice.commands.stores import data_option, log_options
from flameslice.report import exit_status, loss_notes
from pipeline.errors import UsageError

SCHEMA_VERSION = "1.0"


@click.command(short_help="Keep captures in the store.")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--capture", metavar="NAME", help="Name of the capture; default: the first file's.")
@click.option(
    "--label", "labels", metavar="KEY=VALUE", multiple=True, help="A label; may be given several times."
)
@click.option(
    "--input-format", metavar="NAME", help="Read the inputs as this format instead of detecting it."
)
@click.option("--json", "as_json", is_flag=True, help="Print what was ingested as JSON.")
@data_option
@log_options
@talk
def ingest(
    paths: tuple[str, ...],
    capture: str | None,
    labels: tuple[str, ...],
    input_format: str | None,
    as_json: bool,
    data: str | None,
    log: str | None,
    log_config: str | None,
    max_loss: float,
) -> int:
    """Keep PATH... in the store: loose files as one capture, each capture directory or archive as its own.

    Prints the captures' ids. The same files again add nothing; a run that was killed goes on where it was.
    Without --log everything is done when this ends; with Kafka, `flameslice worker` does the rest.
    """
    from flameslice.ingest import ingest as ingest_paths

    if capture == "":
        raise UsageError("--capture '' is no name", "leave it out, or give one")

    found = ingest_paths(
        paths,
        data=data,
        log_url=log,
        log_config=log_config,
        name=capture,
        labels=quantities.parse_labels(labels),
        forced_format=input_format,
        now_realtime_ns=time.time_ns(),
        progress=outputs.progress,
    )
    status = 0
    for one in found:
        for note in one.notes:
            outputs.note(note)
        for line in loss_notes(one.losses):
            outputs.note(line)
        for fact in one.facts:
            if fact.status == "failed":
                outputs.note(fact.problem)
                status = 1
        status = status or exit_status(one.losses, one.rows, max_loss)
    if as_json:
        body = {
            "schema_version": SCHEMA_VERSION,
            "captures": [
                {
                    "id": one.capture,
                    "name": one.name,
                    "rows": one.rows,
                    "losses": [
                        {"reason": loss.reason, "count": loss.count, "severity": loss.severity}
                        for loss in one.losses
                    ],
                }
                for one in found
            ],
        }
        outputs.write(json.dumps(body) + "\n", None)
    else:
        outputs.write("".join(f"{one.capture}\n" for one in found), None)
    return status
