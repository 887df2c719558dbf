"""Begins and ends of the same thing, one after the other, become intervals: calls, interrupts, block requests."""

from __future__ import annotations

import polars as pl

from pipeline import schema, tracepoints
from pipeline.losses import LossLedger


def pair(points: pl.DataFrame, *, by: list[str], kind: str, losses: LossLedger) -> pl.DataFrame:
    """Return the intervals (INTERVALS) of points: an end takes the begin right before it with the same `by` columns.

    points: raw_time, is_begin, name and the columns that an interval takes from its begin. What is left over is
    counted.
    """
    by = ["host", *by]
    ordered = points.sort("raw_time", maintain_order=True).with_columns(
        next_is_end=(~pl.col("is_begin")).shift(-1).over(by), raw_end=pl.col("raw_time").shift(-1).over(by)
    )
    begins = ordered.filter("is_begin")
    paired = begins.filter(pl.col("next_is_end").fill_null(False))
    ends = points.height - begins.height
    _count(losses, "unmatched_begin", begins.height - paired.height)
    _count(losses, "unmatched_end", ends - paired.height)
    return as_intervals(paired.with_columns(kind=pl.lit(kind), raw_start=pl.col("raw_time")))


def _count(losses: LossLedger, reason: str, count: int) -> None:
    if count:
        losses.add(reason, count)


def as_intervals(table: pl.DataFrame) -> pl.DataFrame:
    """Return table with all columns of INTERVALS, those that it lacks null (events 1, repaired false)."""
    defaults = {"events": pl.lit(1, pl.Int64), "repaired": pl.lit(False)}
    return table.select(
        (pl.col(name) if name in table.columns else defaults.get(name, pl.lit(None))).cast(dtype).alias(name)
        for name, dtype in schema.INTERVALS.items()
    )


def syscalls(events: pl.DataFrame, losses: LossLedger, arch: str = "") -> pl.DataFrame:
    """Return the system calls of every thread, by syscalls:sys_enter_* / sys_exit_* or by raw_syscalls."""
    event = pl.col("event")
    named = events.filter(event.str.contains(r"^syscalls:sys_(?:enter|exit)_"))
    if named.height:
        name = event.str.extract(r"^syscalls:sys_(?:enter|exit)_(.*)$")
        points = named.with_columns(name=name, is_begin=event.str.starts_with("syscalls:sys_enter_"))
        # a call of which only one side was recorded has no intervals, and nothing of it is lost
        both = points.group_by("name").agg(pl.col("is_begin").n_unique() == 2).filter("is_begin")
        points = points.join(both, on="name", how="semi")
    else:
        raw = events.filter(event.is_in(["raw_syscalls:sys_enter", "raw_syscalls:sys_exit"]))
        number = tracepoints.arg("NR")
        points = raw.with_columns(
            name=_syscall_name(number, arch), is_begin=event == "raw_syscalls:sys_enter"
        )
    # calls that perf's own filter removed leave single exits of other calls: the name must agree
    return pair(points, by=["tid", "name"], kind="syscall", losses=losses)


def _syscall_name(number: pl.Expr, arch: str) -> pl.Expr:
    from pipeline.syscall_names import NAMES

    plain = pl.format("syscall {}", number)
    known = NAMES.get(arch)
    if known is None:
        return plain
    names = {str(each): name for each, name in known.items()}
    return pl.coalesce(number.replace_strict(names, default=None, return_dtype=pl.String), plain)


def interrupts(events: pl.DataFrame, losses: LossLedger) -> pl.DataFrame:
    """Return the hardware interrupt handlers that ran on each CPU."""
    event = pl.col("event")
    rows = events.filter(event.is_in(["irq:irq_handler_entry", "irq:irq_handler_exit"]))
    points = rows.with_columns(
        irq=tracepoints.arg("irq"), name=tracepoints.arg("name"), is_begin=event == "irq:irq_handler_entry"
    )
    return pair(points, by=["cpu", "irq"], kind="irq", losses=losses)


def softirqs(events: pl.DataFrame, losses: LossLedger) -> pl.DataFrame:
    """Return the soft interrupts that ran on each CPU."""
    event = pl.col("event")
    rows = events.filter(event.is_in(["irq:softirq_entry", "irq:softirq_exit"]))
    points = rows.with_columns(name=tracepoints.arg("action"), is_begin=event == "irq:softirq_entry")
    return pair(points, by=["cpu", "name"], kind="softirq", losses=losses)


def block_requests(events: pl.DataFrame, losses: LossLedger) -> pl.DataFrame:
    """Return the block requests from issue to completion; the thread and stack are those of the issue."""
    issued = tracepoints.requests(events, "block:block_rq_issue").with_columns(is_begin=pl.lit(True))
    completed = tracepoints.requests(events, "block:block_rq_complete").with_columns(is_begin=pl.lit(False))
    points = pl.concat([issued, completed]).with_columns(name=pl.col("device"))
    return pair(points, by=["device", "sector"], kind="block_io", losses=losses)
