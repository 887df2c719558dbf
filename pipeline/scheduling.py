"""When did each thread run, and what did it do in between? From sched_switch, or from PERF_RECORD_SWITCH without it.

On a CPU one sched_switch follows another: the thread switched to runs until the next one. Kernels can leave out a
switch (seen: the exit from idle). Any event of a thread on a CPU proves that it runs there, so where the thread that is
switched from is not the one switched to before, its run starts at its first event since (or else at its wake-up, for
an idle CPU takes a thread at once), and the other's ends at its last; such runs are marked as repaired and counted.
Between two runs a thread is off the CPU: runnable if it was preempted or from its wake-up on, blocked before.
"""

from __future__ import annotations

import polars as pl

from pipeline import pairing, tracepoints
from pipeline.losses import LossLedger

IDLE = 0
_RUNS = {
    "host": pl.String,
    "cpu": pl.Int32,
    "tid": pl.Int32,
    "start": pl.Int64,
    "end": pl.Int64,
    "repaired": pl.Boolean,
}
_BY_CPU = ["host", "cpu"]


def is_captured(events: pl.DataFrame) -> bool:
    """Return whether the capture tells when threads were switched."""
    return bool(events["event"].is_in(["sched:sched_switch", "PERF_RECORD_SWITCH"]).any())


def intervals(events: pl.DataFrame, losses: LossLedger) -> pl.DataFrame:
    """Return `running` and `off_cpu` intervals (INTERVALS) of every thread but the idle ones.

    off_cpu has the name blocked or runnable, the stack of the switch that began it, and woken_by.
    """
    switches = tracepoints.switches(events)
    if switches.height:
        switches = switches.filter(pl.col("prev_pid").is_not_null() & pl.col("next_pid").is_not_null())
        runs = _runs(switches, events, tracepoints.wakings(events))
        outs = switches.select(
            "host",
            "stack_id",
            tid="prev_pid",
            at="raw_time",
            is_preempted=pl.col("prev_state").str.starts_with("R"),
        )
    else:
        runs, outs = _recorded_runs(events, losses)
    repaired = runs.filter(pl.col("repaired") & (pl.col("tid") != IDLE)).height
    if repaired:
        losses.add("repaired_idle_exit", repaired)
    runs = runs.filter(pl.col("tid") != IDLE).sort("host", "tid", "start", "end")
    names = _names(events, switches)
    off = _off_cpu(runs, outs, tracepoints.wakings(events))
    running = runs.select(
        "host", "cpu", "tid", "repaired", raw_start="start", raw_end="end", kind=pl.lit("running")
    )
    both = pl.concat([running, off], how="diagonal").join(names, on=["host", "tid"], how="left")
    return pairing.as_intervals(both.with_columns(clock=pl.lit(_clock(events), pl.String)))


def _clock(events: pl.DataFrame) -> str | None:
    return events["clock"][0] if events.height else None


def _names(events: pl.DataFrame, switches: pl.DataFrame) -> pl.DataFrame:
    """Return the last process id and name known of every thread: host, tid, pid, comm."""
    own = events.select("host", "tid", "pid", "comm", "raw_time")
    parts = [own]
    if "next_pid" in switches.columns:
        parts.append(
            switches.select(
                "host", pl.col("next_pid").alias("tid"), pl.col("next_comm").alias("comm"), "raw_time"
            )
        )
    return (
        pl.concat(parts, how="diagonal")
        .filter(pl.col("tid").is_not_null())
        .sort("raw_time", maintain_order=True)
        .group_by("host", "tid")
        .agg(pl.col("pid").drop_nulls().last(), pl.col("comm").drop_nulls().last())
    )


# runs, from sched_switch


def _runs(switches: pl.DataFrame, events: pl.DataFrame, wakings: pl.DataFrame) -> pl.DataFrame:
    """Return who ran where and when: one row per run, idle runs included."""
    # with equal times the order of the file holds
    ordered = switches.sort(*_BY_CPU, "raw_time", maintain_order=True)
    # who leaves a CPU first ran there since a time before the capture: a run of unknown length, told as 0
    before = (
        ordered.group_by(_BY_CPU, maintain_order=True)
        .first()
        .select(*_BY_CPU, tid="prev_pid", start="raw_time", end="raw_time", repaired=pl.lit(False))
    )
    windows = (
        ordered.select(
            *_BY_CPU,
            start="raw_time",
            tid="next_pid",
            end=pl.col("raw_time").shift(-1).over(_BY_CPU),
            leaver=pl.col("prev_pid").shift(-1).over(_BY_CPU),
        )
        .filter(pl.col("end").is_not_null())
        .with_row_index("window")
    )
    whole = windows.filter(pl.col("tid") == pl.col("leaver")).with_columns(repaired=pl.lit(False))
    seen = _seen(windows, events)
    return pl.concat(
        [_as_runs(before), _as_runs(whole), _repaired(windows, seen, wakings), _visitors(windows, seen)]
    )


def _as_runs(table: pl.DataFrame) -> pl.DataFrame:
    return table.select(pl.col(name).cast(dtype) for name, dtype in _RUNS.items())


def _seen(windows: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Return when each thread had events within each window: window, seen_tid, first, last."""
    # perf's own record of a switch out comes after the switch: it proves nothing
    is_out = pl.col("event").str.starts_with("PERF_RECORD_SWITCH") & pl.col("args").str.starts_with("OUT")
    marks = events.filter(
        pl.col("cpu").is_not_null() & (pl.col("tid") >= 0) & ~is_out.fill_null(False)
    ).select(*_BY_CPU, at="raw_time", seen_tid="tid")
    inside = (
        marks.sort("at")
        .join_asof(
            windows.select(*_BY_CPU, "window", "start", "end").sort("start"),
            left_on="at",
            right_on="start",
            by=_BY_CPU,
            strategy="backward",
            check_sortedness=False,
        )
        .filter(
            pl.col("window").is_not_null() & (pl.col("at") > pl.col("start")) & (pl.col("at") < pl.col("end"))
        )
    )
    return inside.group_by("window", "seen_tid").agg(first=pl.col("at").min(), last=pl.col("at").max())


def _repaired(windows: pl.DataFrame, seen: pl.DataFrame, wakings: pl.DataFrame) -> pl.DataFrame:
    """Return the runs of windows in which a switch is missing: until the last event of one, from the other's first."""
    broken = windows.filter(pl.col("tid") != pl.col("leaver"))
    woken = broken.sort("end").join_asof(
        wakings.select("host", leaver="tid", woken="raw_time").sort("woken"),
        left_on="end",
        right_on="woken",
        by=["host", "leaver"],
        strategy="backward",
        check_sortedness=False,
    )
    is_idle_woken = (pl.col("tid") == IDLE) & (pl.col("woken") >= pl.col("start"))
    leaving = woken.join(
        seen, left_on=["window", "leaver"], right_on=["window", "seen_tid"], how="left"
    ).select(
        *_BY_CPU,
        tid="leaver",
        start=pl.coalesce("first", pl.when(is_idle_woken).then("woken"), "end"),
        end="end",
        window="window",
    )
    entering = (
        broken.join(leaving.select("window", border="start"), on="window", how="left")
        .join(seen, left_on=["window", "tid"], right_on=["window", "seen_tid"], how="left")
        .select(
            *_BY_CPU,
            "tid",
            "start",
            # idle leaves no events: it lasts until the other is seen
            end=pl.when(pl.col("tid") == IDLE)
            .then("border")
            .otherwise(pl.min_horizontal(pl.coalesce("last", "start"), "border")),
        )
    )
    both = pl.concat([leaving.drop("window"), entering], how="diagonal").with_columns(repaired=pl.lit(True))
    return _as_runs(both.filter((pl.col("tid") != IDLE) | (pl.col("end") > pl.col("start"))))


def _visitors(windows: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
    """Return the runs of threads whose events lie in an idle window that neither began nor ended with them."""
    idle = windows.filter((pl.col("tid") == IDLE) & (pl.col("leaver") == IDLE))
    visits = idle.join(seen.filter(pl.col("seen_tid") != IDLE), on="window", how="inner")
    return _as_runs(visits.select(*_BY_CPU, tid="seen_tid", start="first", end="last", repaired=pl.lit(True)))


def _recorded_runs(events: pl.DataFrame, losses: LossLedger) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return runs and switches out from PERF_RECORD_SWITCH rows, which tell of the row's own thread only."""
    rows = events.filter(pl.col("event") == "PERF_RECORD_SWITCH").with_columns(
        is_begin=pl.col("args").str.starts_with("IN"), name=pl.lit(None, pl.String)
    )
    runs = pairing.pair(rows, by=["tid"], kind="running", losses=losses)
    outs = rows.filter(~pl.col("is_begin")).select(
        "host",
        "tid",
        stack_id=pl.lit(None, pl.UInt64),
        at="raw_time",
        is_preempted=pl.col("args").str.contains("preempt"),
    )
    return _as_runs(runs.with_columns(start="raw_start", end="raw_end")), outs


# time between runs


def _off_cpu(runs: pl.DataFrame, outs: pl.DataFrame, wakings: pl.DataFrame) -> pl.DataFrame:
    """Return the gaps between the runs of a thread, split at the first wake-up; and waits before its first run."""
    by = ["host", "tid"]
    previous_end = pl.col("end").cum_max().shift(1).over(by)
    gaps = runs.with_columns(gap_start=previous_end)
    first = gaps.filter(pl.col("gap_start").is_null()).with_columns(gap_start=pl.lit(-(2**62), pl.Int64))
    gaps = gaps.filter(pl.col("gap_start") < pl.col("start"))
    known = (
        pl.concat([gaps, first])
        .sort("gap_start")
        .join_asof(
            outs.sort("at").rename({"at": "gap_start"}),
            on="gap_start",
            by=by,
            strategy="backward",
            coalesce=False,
            check_sortedness=False,
        )
        .with_columns(
            # the switch must be the one that ended the run; a repaired end has none
            is_preempted=pl.when(pl.col("gap_start_right") == pl.col("gap_start")).then("is_preempted"),
            stack_id=pl.when(pl.col("gap_start_right") == pl.col("gap_start")).then("stack_id"),
        )
        .join_asof(
            wakings.sort("raw_time"),
            left_on="gap_start",
            right_on="raw_time",
            by=by,
            strategy="forward",
            coalesce=False,
            check_sortedness=False,
        )
    )
    is_woken = pl.col("raw_time").is_not_null() & (pl.col("raw_time") <= pl.col("start"))
    is_first = pl.col("gap_start") == -(2**62)
    known = known.with_columns(
        wake=pl.when(pl.col("is_preempted").fill_null(False))
        .then("gap_start")
        .when(is_woken)
        .then("raw_time")
        .otherwise("start"),
        woken_by=pl.when(is_woken & ~pl.col("is_preempted").fill_null(False)).then("woken_by"),
    ).with_columns(gap_start=pl.when(is_first).then("wake").otherwise("gap_start"))
    columns = ["host", "tid", "cpu", "stack_id", "woken_by", "repaired"]
    blocked = known.select(*columns, name=pl.lit("blocked"), raw_start="gap_start", raw_end="wake")
    runnable = known.select(*columns, name=pl.lit("runnable"), raw_start="wake", raw_end="start")
    return (
        pl.concat([blocked, runnable])
        .filter(pl.col("raw_end") > pl.col("raw_start"))
        .with_columns(kind=pl.lit("off_cpu"), cpu=pl.lit(None, pl.Int32))
    )
