"""How much of each slice did each lane spend in what? Intervals cut at slice borders, exactly.

An interval gives each slice exactly their overlap: over all slices the busy_ns add up to the interval's length, at any
width, in integers. What an interval counts (events, period, bytes) belongs to one slice: for kind `cpu` that of its
end, when the sample was taken, else that of its start. Cost follows the rows and the slices that each key touches, not
their product: full slices are counted by a difference array (+1 where an interval's full slices begin, -1 where they
end).
"""

from __future__ import annotations

import polars as pl

from pipeline import schema

DEFAULT_WIDTH_NS = 100_000
SHARE_KINDS = ("dma_wait", "off_cpu", "syscall", "cpu")  # time in several belongs to the first
_CPU_KINDS = ("irq", "softirq")


def cut(
    intervals: pl.DataFrame | pl.LazyFrame,
    *,
    width_ns: int,
    from_ns: int | None = None,
    to_ns: int | None = None,
) -> pl.DataFrame:
    """Return one row per slice, lane, kind, stack and name that intervals touch in [from_ns, to_ns): SLICES.

    Sorted by slice. `stack` is null: the caller joins it. Times before 0 are cut like any other (slices are floored).
    """
    rows = intervals.lazy().with_columns(
        at=pl.when(pl.col("kind") == "cpu").then("raw_end").otherwise("raw_start"),
        start=pl.col("raw_start"),
        end=pl.col("raw_end"),
    )
    inside = pl.lit(True)
    if from_ns is not None:
        rows = rows.with_columns(pl.col("start").clip(lower_bound=from_ns))
        inside &= pl.col("at") >= from_ns
    if to_ns is not None:
        rows = rows.with_columns(pl.col("end").clip(upper_bound=to_ns))
        inside &= pl.col("at") < to_ns
    table = rows.with_columns(inside=inside).filter((pl.col("end") > pl.col("start")) | "inside").collect()
    keys, numbers = _keys(table)
    table = table.select("at", "inside", "start", "end", "events", "period", "bytes").with_columns(numbers)
    covered = _covered(table.filter(pl.col("end") > pl.col("start")), width_ns)
    # a count applies to all slices of a key or to none
    counts = table.group_by("key").agg(
        has_period=pl.col("period").count() > 0, has_bytes=pl.col("bytes").count() > 0
    )
    keys = keys.join(counts, on="key", how="left", maintain_order="left")
    summed = _summed(_counted(table, width_ns), covered, keys.height)
    return (
        summed.select(pl.exclude("key"))
        .hstack(keys[summed["key"]].drop("key"))
        .with_columns(
            start_ns=pl.col("slice") * width_ns,
            stack=pl.lit(None, pl.String),
            period=pl.when("has_period").then("period"),
            bytes=pl.when("has_bytes").then("bytes"),
        )
        .select(schema.SLICES.names())
        .cast(schema.SLICES)
    )


def _keys(table: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """Return one row per host, lane, kind, stack and name, and for each row of table the number of its key."""
    is_cpu, is_device = pl.col("kind").is_in(_CPU_KINDS), pl.col("kind") == "block_io"
    parts = table.select(
        "host",
        "kind",
        "stack_id",
        "name",
        tid=pl.when(is_cpu | is_device).then(None).otherwise("tid"),
        cpu=pl.when(is_cpu).then("cpu"),
    )
    keys = parts.unique(maintain_order=True).with_row_index("key").cast({"key": pl.Int64})
    numbers = parts.join(keys, on=parts.columns, how="left", nulls_equal=True, maintain_order="left")["key"]
    lane = (
        pl.when(is_cpu)
        .then(pl.format("cpu:{}", "cpu"))
        .when(is_device)
        .then(pl.format("dev:{}", "name"))
        .otherwise(pl.format("tid:{}", "tid"))
    )
    return keys.with_columns(lane=lane).drop("tid", "cpu"), numbers


def _summed(counted: pl.DataFrame, covered: list[pl.DataFrame], keys: int) -> pl.DataFrame:
    """Return one row per slice and key with the sums, sorted; slice and key are sorted as one integer."""
    columns = ["key", "slice", "busy_ns"]
    rows = pl.concat([counted.select("key", "slice", busy_ns=pl.lit(0, pl.Int64)), *covered]).select(columns)
    first = rows["slice"].min() or 0
    place = ((pl.col("slice") - first) * keys + pl.col("key")).alias("place")
    counts = counted.group_by(place).agg(pl.col("events", "period", "bytes").sum())
    return (
        rows.select(place, "busy_ns")
        .sort("place")
        .group_by("place", maintain_order=True)
        .agg(pl.col("busy_ns").sum())
        .join(counts, on="place", how="left", maintain_order="left")
        .with_columns(pl.col("events", "period", "bytes").fill_null(0))
        .with_columns(slice=pl.col("place") // keys + first, key=pl.col("place") % keys)
        .drop("place")
    )


def _counted(table: pl.DataFrame, width_ns: int) -> pl.DataFrame:
    """Return one row per interval whose instant lies in the range: what it counts, in the slice of that instant."""
    return table.filter("inside").select(
        "key",
        "events",
        "period",
        "bytes",
        slice=pl.col("at").floordiv(width_ns),
    )


def _covered(table: pl.DataFrame, width_ns: int) -> list[pl.DataFrame]:
    """Return rows of busy time: the partial slices at both ends of every interval, and the full ones between."""
    table = table.with_columns(
        first=pl.col("start").floordiv(width_ns), last=(pl.col("end") - 1).floordiv(width_ns)
    )
    head = table.select(
        "key",
        slice=pl.col("first"),
        busy_ns=pl.min_horizontal(pl.col("end"), (pl.col("first") + 1) * width_ns) - pl.col("start"),
    )
    long = table.filter(pl.col("last") > pl.col("first"))
    tail = long.select("key", slice=pl.col("last"), busy_ns=pl.col("end") - pl.col("last") * width_ns)
    return [head, tail, _full(long.filter(pl.col("last") > pl.col("first") + 1), width_ns)]


def _full(table: pl.DataFrame, width_ns: int) -> pl.DataFrame:
    """Return one row per key and slice that intervals cover fully: as many widths as there are intervals over it."""
    if table.is_empty():
        return pl.DataFrame(schema={"key": pl.Int64, "slice": pl.Int64, "busy_ns": pl.Int64})
    bounds = table.select(pl.col("first").min().alias("first"), pl.col("last").max().alias("last")).row(0)
    span = bounds[1] - bounds[0] + 1
    # key and slice as one integer: sorting, adding up and looking one row ahead need no grouping by key, for
    # the changes of every key add up to 0
    runs = (
        pl.concat(
            [
                table.select(
                    place=pl.col("key") * span + (pl.col("first") + 1 - bounds[0]), change=pl.lit(1, pl.Int64)
                ),
                table.select(
                    place=pl.col("key") * span + (pl.col("last") - bounds[0]), change=pl.lit(-1, pl.Int64)
                ),
            ]
        )
        .sort("place")
        .group_by("place", maintain_order=True)
        .agg(pl.col("change").sum())
        .with_columns(depth=pl.col("change").cum_sum(), until=pl.col("place").shift(-1))
        .filter(pl.col("depth") > 0)
    )
    return (
        runs.select(place=pl.int_ranges("place", "until"), busy_ns=pl.col("depth") * width_ns)
        .explode("place")
        .select(
            key=pl.col("place") // span,
            slice=pl.col("place") % span + bounds[0],
            busy_ns=pl.col("busy_ns").cast(pl.Int64),
        )
    )


def shares(
    intervals: pl.DataFrame,
    *,
    width_ns: int,
    from_ns: int | None = None,
    to_ns: int | None = None,
) -> pl.DataFrame:
    """Return one row per slice and thread: slice, tid, and dma_wait_ns, off_cpu_ns, syscall_ns, cpu_ns.

    A moment in several kinds counts for the first of them, so the four add up to at most the width.
    """
    segments = _exclusive(intervals.filter(pl.col("kind").is_in(SHARE_KINDS), pl.col("tid").is_not_null()))
    table = cut(segments, width_ns=width_ns, from_ns=from_ns, to_ns=to_ns)
    columns = [
        pl.col("busy_ns").filter(pl.col("kind") == kind).sum().alias(f"{kind}_ns") for kind in SHARE_KINDS
    ]
    tid = pl.col("lane").str.strip_prefix("tid:").cast(pl.Int32).alias("tid")
    return table.group_by("slice", tid).agg(columns).sort("tid", "slice")


def _exclusive(intervals: pl.DataFrame) -> pl.DataFrame:
    """Return intervals (INTERVALS) in which each moment of a thread has one kind: a sweep over all borders."""
    rank = pl.col("kind").replace_strict(
        {kind: at for at, kind in enumerate(SHARE_KINDS)}, return_dtype=pl.Int8
    )
    ranked = intervals.filter(pl.col("raw_end") > pl.col("raw_start")).select(
        "tid", "raw_start", "raw_end", rank=rank
    )
    borders = pl.concat(
        [
            ranked.select("tid", "rank", at="raw_start", change=pl.lit(1, pl.Int32)),
            ranked.select("tid", "rank", at="raw_end", change=pl.lit(-1, pl.Int32)),
        ]
    )
    deltas = [
        pl.col("change").filter(pl.col("rank") == at).sum().alias(kind) for at, kind in enumerate(SHARE_KINDS)
    ]
    swept = (
        borders.group_by("tid", "at")
        .agg(deltas)
        .sort("tid", "at")
        .with_columns(
            *(pl.col(kind).cum_sum().over("tid") for kind in SHARE_KINDS),
            end=pl.col("at").shift(-1).over("tid"),
        )
        .filter(pl.col("end").is_not_null())
    )
    chosen = pl.coalesce(pl.when(pl.col(kind) > 0).then(pl.lit(kind)) for kind in SHARE_KINDS)
    segments = swept.with_columns(kind=chosen).filter(pl.col("kind").is_not_null())
    return segments.select("tid", "kind", raw_start="at", raw_end="end").with_columns(
        *(
            pl.lit(None, dtype).alias(name)
            for name, dtype in schema.INTERVALS.items()
            if name not in ("tid", "kind", "raw_start", "raw_end")
        )
    )
