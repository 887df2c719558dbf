"""`flameslice chart`: what each thread did over time, slice by slice, as HTML."""

from __future__ import annotations

from pathlib import Path

import click

from flameslice import outputs
from flameslice.commands.clock_options import ClockWords, clock_options
from flameslice.commands.options import Asked, filters, talk
from flameslice.commands.stores import data_option
from flameslice.report import exit_status, loss_notes


@click.command(short_help="Draw what each thread did over time.")
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@click.option(
    "-o", "--output", metavar="FILE", required=True, help="Write the HTML page here; - for standard output."
)
@click.option("--input-format", metavar="NAME", help="Read the input as this format instead of detecting it.")
@click.option("--width", default="100us", show_default=True, metavar="DURATION", help="Width of a slice.")
@click.option("--event", metavar="NAME", help="Take CPU time from this event.")
@click.option("--title", help="Title of the page; default: the input's name.")
@clock_options
@data_option
@filters
@talk
def chart(
    inputs: tuple[str, ...],
    output: str,
    input_format: str | None,
    width: str,
    event: str | None,
    title: str | None,
    words: ClockWords,
    data: str | None,
    max_loss: float,
    asked: Asked,
) -> int:
    """Draw a flame chart of INPUTs: slices from left to right, each thread's stack downwards, latency as colour.

    Without --from and --to the most interesting 200 slices are shown.
    """
    from analyzers import flame_chart
    from analyzers.render import chart_html
    from flameslice import timeline
    from flameslice.inputs import blamed
    from pipeline import timespec

    width_ns = timespec.parse_duration(width)
    line = timeline.load(
        inputs, asked, words=words, forced_format=input_format, event=event, width_ns=width_ns, data=data
    )
    with blamed(inputs[0]):
        result = flame_chart.build(
            line.intervals,
            line.frames,
            line.stacks,
            line.captured,
            width_ns=width_ns,
            from_ns=line.keep.from_ns,
            to_ns=line.keep.to_ns,
            tids=asked.tids or None,
            cpus=asked.cpus or None,
            origin_ns=line.first_ns,
            notes=line.notes,
        )
    name = title or " + ".join("standard input" if one == "-" else Path(one).name for one in inputs)
    outputs.write(chart_html.render(result, name, line.subtitle()), None if output == "-" else output)
    for told in (*line.notes, *loss_notes(line.losses)):
        outputs.note(told)
    return exit_status(line.losses, line.rows, max_loss)
