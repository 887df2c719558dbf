"""`flameslice slices`: a capture cut into time slices, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flameslice import outputs
from flameslice.commands.clock_options import ClockWords, clock_options
from flameslice.commands.options import Asked, filters, talk
from flameslice.commands.stores import data_option
from flameslice.report import exit_status, loss_notes
from pipeline.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

FORMATS = ("parquet", "csv", "json")


@click.command(short_help="Cut a capture into time slices.")
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@click.option("-o", "--output", metavar="FILE", help="Write here; the format follows the suffix.")
@click.option("--format", "output_format", type=click.Choice(FORMATS), help="Format of the output.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document; the same as --format json.")
@click.option("--input-format", metavar="NAME", help="Read the input as this format instead of detecting it.")
@click.option("--width", default="100us", show_default=True, metavar="DURATION", help="Width of a slice.")
@click.option("--event", metavar="NAME", help="Take CPU time from this event.")
@click.option(
    "--intervals",
    "intervals_output",
    metavar="FILE",
    help="Write the intervals that were cut here too, as Parquet; `repaired` marks what was inferred.",
)
@click.option("--instants", metavar="FILE", help="Write the samples themselves here too, as Parquet.")
@clock_options
@data_option
@filters
@talk
def slices(
    inputs: tuple[str, ...],
    output: str | None,
    output_format: str | None,
    as_json: bool,
    input_format: str | None,
    width: str,
    event: str | None,
    instants: str | None,
    intervals_output: str | None,
    words: ClockWords,
    data: str | None,
    max_loss: float,
    asked: Asked,
) -> int:
    """Cut INPUTs, placed on one timeline, into time slices: one row per slice, lane, kind and stack.

    The busy_ns of a kind add up to exactly what was captured, at any width. Without -o a table in CSV goes to standard
    output.
    """
    from flameslice import timeline
    from pipeline import timespec

    chosen = "json" if as_json else output_format or _format_of(output)
    width_ns = timespec.parse_duration(width)
    line = timeline.load(
        inputs, asked, words=words, forced_format=input_format, event=event, width_ns=width_ns, data=data
    )
    table = line.cut(width_ns)
    _write(table, output, chosen, width_ns)
    if intervals_output is not None:
        outputs.write(_parquet_bytes(line.clipped(), width_ns), intervals_output)
    if instants is not None:
        outputs.write(_parquet_bytes(line.instants, width_ns), instants)
    for told in (*line.notes, *loss_notes(line.losses)):
        outputs.note(told)
    return exit_status(line.losses, line.rows, max_loss)


def _format_of(output: str | None) -> str:
    if output is None or output == "-":
        return "csv"
    for name in FORMATS:
        if output.endswith(f".{name}"):
            return name
    raise UsageError(f"cannot tell the format from the name {output!r}", f"give --format {'|'.join(FORMATS)}")


def _write(table: pl.DataFrame, output: str | None, chosen: str, width_ns: int) -> None:
    match chosen:
        case "parquet":
            outputs.write(_parquet_bytes(table, width_ns), output)
        case "json":
            import json

            # ids are text: JSON's numbers lose digits above 2^53
            rows = table.with_columns(table["stack_id"].cast(str)).to_dicts()
            document = {"schema_version": "1.0", "width_ns": width_ns, "slices": rows}
            outputs.write(json.dumps(document, ensure_ascii=False) + "\n", output)
        case _:
            outputs.write(table.write_csv(), output)


def _parquet_bytes(table: pl.DataFrame, width_ns: int) -> bytes:
    import io

    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd", metadata={"flameslice.width_ns": str(width_ns)})
    return buffer.getvalue()
