"""How much CPU time does each sample stand for? Sampled events become intervals of kind `cpu`.

A sample of an event that counts nanoseconds (cpu-clock, task-clock) stands for exactly its period, ending at the
sample. Of any other event it stands for the time since the previous sample of that event on the same CPU and thread, at
most the nominal interval: 1/frequency where known, else the median gap.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from pipeline import schema
from pipeline.event_names import TIME_EVENTS, base_event

_CYCLES = ("cycles", "cpu-cycles")


def measures_time(event: str) -> bool:
    """Return whether samples of an event measure CPU time: clocks and cycles do, counts of things do not."""
    return base_event(event) in (*TIME_EVENTS, *_CYCLES)


def choose(counts: Mapping[str, int], default: str | None, asked: str | None) -> str | None:
    """Return the event that CPU time comes from, None where the capture has none.

    The one asked for; else the flame graph's default if it measures CPU time; else the file's first that does. counts
    names the events in the order of the file.
    """
    if asked is not None:
        return asked if asked in counts else None
    if default is not None and measures_time(default):
        return default
    return next((event for event in counts if measures_time(event)), None)


def intervals(events: pl.DataFrame, event: str, *, nominal_ns: int | None = None) -> pl.DataFrame:
    """Return one interval of kind cpu per sample of event, ending at the sample (INTERVALS schema).

    events: PERF_EVENTS rows with times. nominal_ns: the sampling interval where it is known.
    """
    samples = events.filter(pl.col("event") == event)
    lengths = pl.col("period") if base_event(event) in TIME_EVENTS else pl.lit(None, pl.Int64)
    samples = samples.with_columns(length_ns=lengths)
    if samples["length_ns"].null_count():
        samples = samples.with_columns(length_ns=pl.coalesce("length_ns", _gap(samples, nominal_ns)))
    return samples.select(
        "host",
        "cpu",
        "pid",
        "tid",
        "comm",
        kind=pl.lit("cpu"),
        name=pl.col("comm"),
        clock=pl.col("clock"),
        raw_start=pl.col("raw_time") - pl.col("length_ns"),
        raw_end=pl.col("raw_time"),
        stack_id=pl.col("stack_id"),
        woken_by=pl.lit(None, pl.Int32),
        evidence=pl.lit(None, pl.String),
        events=pl.lit(1, pl.Int64),
        period=pl.col("period"),
        bytes=pl.lit(None, pl.Int64),
        repaired=pl.lit(False),
    ).cast(schema.INTERVALS)


def _gap(samples: pl.DataFrame, nominal_ns: int | None) -> pl.Series:
    """Return for each row the time since the previous sample of its CPU and thread, at most the nominal interval."""
    ordered = samples.with_row_index("row").sort("raw_time", maintain_order=True)
    gap = pl.col("raw_time").diff().over("host", "cpu", "tid")
    gaps = ordered.with_columns(gap_ns=gap).sort("row")["gap_ns"]
    known = gaps.filter(gaps > 0)
    limit = (
        nominal_ns
        if nominal_ns is not None
        else int(known.sort()[(len(known) - 1) // 2])
        if len(known)
        else 0
    )
    return gaps.fill_null(limit).clip(0, limit)
