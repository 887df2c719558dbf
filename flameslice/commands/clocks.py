"""`flameslice clocks`: what relates the clocks of the inputs, how sure that is, and what had to be assumed."""

from __future__ import annotations

import json

import click

from flameslice import outputs
from flameslice.commands.clock_options import ClockWords, clock_options, parse_clock, parse_reading
from flameslice.commands.options import talk
from flameslice.commands.stores import data_option
from pipeline.errors import InputError, UsageError


@click.command(short_help="Show what relates the clocks of captures, and convert times.")
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@click.option("--convert", metavar="CLOCK:VALUE", help="Convert this time: ns, or ticks for tsc.")
@click.option("--to", "target", metavar="CLOCK", help="Convert to this clock.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option(
    "--input-format", metavar="NAME", help="Read the inputs as this format instead of detecting it."
)
@clock_options
@data_option
@talk
def clocks(
    inputs: tuple[str, ...],
    convert: str | None,
    target: str | None,
    as_json: bool,
    input_format: str | None,
    words: ClockWords,
    data: str | None,
    max_loss: float,
) -> int:
    """Show the clocks of INPUTs: which stamp them, what ties them together, at which rate, how surely.

    With --convert and --to it prints one line, VALUE +-UNCERTAINTY. CLOCK is one of monotonic, monotonic_raw, boottime,
    realtime, tai, perf, sched_clock, tsc, relative or session, with @HOST (or @INPUT) where there are several.

    Also taken, for their clocks alone: Nsight Systems' SQLite exports, PyTorch profiler traces, OTLP, Jaeger and Zipkin
    spans as JSON, Triton's traces, Prometheus' text, what nvidia-smi prints.
    """
    from analyzers import clock_report
    from analyzers.render import clock_table
    from flameslice import aligned, clock_sources
    from pipeline.align import align
    from pipeline.timespec import DEFAULT_WIDTH_NS

    if (convert is None) != (target is None):
        raise UsageError("--convert and --to belong together", "as in --convert tsc:123456 --to monotonic")
    sources = clock_sources.of_inputs(inputs, forced_format=input_format, data=data)
    alignment = align(sources, words.told([source.source for source in sources]))
    if any(
        source.clock and not placed.is_placed
        for source, placed in zip(sources, alignment.sources, strict=True)
    ):
        known, events = aligned.seen_by(inputs, forced_format=input_format, data=data)
        alignment = aligned.related(known, events, words, width_ns=DEFAULT_WIDTH_NS)
    if convert is not None and target is not None:
        value, uncertainty, unit = clock_report.convert(
            alignment, parse_reading(convert), parse_clock(target)
        )
        if as_json:
            document = {"schema_version": "1.0", "value": value, "uncertainty": uncertainty, "unit": unit}
            outputs.write(json.dumps(document) + "\n", None)
        else:
            outputs.write(f"{value} +-{uncertainty}\n", None)
        return 0
    report = clock_report.of(alignment)
    outputs.write(clock_table.to_json(report) if as_json else clock_table.to_text(report), None)
    if not any(source.clock for source in sources):
        raise InputError("none of these inputs holds times", "give perf.data, perf script text or a capture")
    return 0
