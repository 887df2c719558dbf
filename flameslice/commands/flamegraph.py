"""`flameslice flamegraph`: where the time went, as SVG, folded stacks, speedscope or JSON."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Literal

import click

from analyzers import flame_graph
from analyzers.flame_graph import FlameGraph
from flameslice import outputs
from flameslice.commands.options import Asked, filters, talk
from flameslice.commands.stores import data_option
from flameslice.report import event_note, exit_status, loss_notes
from pipeline.errors import UsageError

FORMATS = {"svg": ".svg", "folded": ".folded", "speedscope": ".speedscope.json", "json": ".json"}
KINDS = ("cpu", "off_cpu", "dma_wait", "block_io")


@click.command(short_help="Draw where the time went.")
@click.argument("input", metavar="INPUT")
@click.option("-o", "--output", metavar="FILE", help="Write here; the format follows the suffix.")
@click.option("--format", "output_format", type=click.Choice(tuple(FORMATS)), help="Format of the output.")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--input-format", metavar="NAME", help="Read the input as this format instead of detecting it.")
@click.option(
    "--kind", type=click.Choice(KINDS), default="cpu", show_default=True, help="Which time to draw."
)
@click.option("--event", metavar="NAME", help="Draw this event, or 'all'; default: that of the first sample.")
@click.option(
    "--weight",
    type=click.Choice(("period", "samples")),
    default="period",
    show_default=True,
    help="What a frame's width counts.",
)
@click.option("--icicle", is_flag=True, help="Draw the root at the top.")
@click.option("--inverted", is_flag=True, help="Start from the innermost function (who called it?).")
@click.option("--title", help="Title of the picture; default: the input's name.")
@click.option(
    "--workers", type=click.IntRange(1, 64), help="Processes to read with; default: one per CPU, 8 at most."
)
@data_option
@filters
@talk
def flamegraph(
    input: str,
    output: str | None,
    output_format: str | None,
    as_json: bool,
    input_format: str | None,
    kind: str,
    event: str | None,
    weight: Literal["period", "samples"],
    icicle: bool,
    inverted: bool,
    title: str | None,
    workers: int | None,
    data: str | None,
    max_loss: float,
    asked: Asked,
) -> int:
    """Draw where the time of INPUT went.

    INPUT is perf script text, perf.data, a capture directory, folded stacks, speedscope or a py-spy file, compressed or
    not; - is standard input. Without -o the SVG goes to standard output; on a terminal a summary is shown instead.
    """
    gc.disable()  # this process ends soon, and the collector would walk every stack again and again
    chosen = "json" if as_json else output_format or _format_of(output)
    title = title or ("standard input" if input == "-" else Path(input).name)
    notes: list[str] = []
    from flameslice.inputs import blamed, fold_input

    if kind == "cpu":
        fold = fold_input(input, asked, forced_format=input_format, workers=workers, data=data)
        with blamed(input):
            graph = flame_graph.from_fold(
                fold, event=event, weight=weight, title=title, filters=asked.words()
            )
        rows = fold.rows
        if event is None and len(fold.events) > 1:
            notes.append(event_note(input, fold.events))
    else:
        from flameslice import timeline

        line = timeline.load((input,), asked, forced_format=input_format, kinds=frozenset({kind}), data=data)
        with blamed(input):
            graph = line.flame_graph(kind, title=title)
        rows = line.rows
    _write(graph, output, chosen, icicle, inverted)
    for told in (*notes, *loss_notes(graph.losses)):
        outputs.note(told)
    return exit_status(graph.losses, rows, max_loss)


def _format_of(output: str | None) -> str:
    """Return the format that an output's name asks for."""
    if output is None or output == "-":
        return "summary" if output is None and sys.stdout.isatty() else "svg"
    for name, suffix in FORMATS.items():
        if output.endswith(suffix):
            return name
    if output.endswith((".txt", ".collapsed")):
        return "folded"
    raise UsageError(f"cannot tell the format from the name {output!r}", f"give --format {'|'.join(FORMATS)}")


def _write(graph: FlameGraph, output: str | None, chosen: str, icicle: bool, inverted: bool) -> None:
    from analyzers.render import collapsed, json_tree, speedscope, svg

    if inverted and chosen != "svg":
        raise UsageError("--inverted is for SVG", "leave it out")
    match chosen:
        case "folded":
            outputs.write(collapsed.render(graph), output)
        case "speedscope":
            outputs.write(speedscope.render(graph), output)
        case "json":
            outputs.write(json_tree.render(graph), output)
        case "summary":
            from flameslice.report import summary

            outputs.write(summary(graph), None)
        case _:
            outputs.write(svg.render(graph, icicle=icicle, inverted=inverted), output)
