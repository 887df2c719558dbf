"""When did a thread wait for a device to move data? In a fixed order of evidence, and labelled with it.

dma_fence: GPU fence waits (dma_fence_wait_start/end). block_io: blocked while a block request that the thread issued
was under way. cuda_sync: inside a CUDA synchronisation call (user probes on cu*Synchronize with their return).
device_call: off the CPU inside ioctl or poll on /dev/nvidia* or /dev/dri/*. A moment with several belongs to the first.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from pipeline import pairing, tracepoints
from pipeline.losses import LossLedger

EVIDENCE = ("dma_fence", "block_io", "cuda_sync", "device_call")
_SYNC_CALL = r"(cu(?:da)?[A-Za-z0-9_]*Synchronize\w*?)(?:__return)?$"
_DEVICES = ("/dev/nvidia", "/dev/dri/")
_WAITING_CALLS = ("ioctl", "poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait")


def intervals(
    events: pl.DataFrame,
    paired: pl.DataFrame,
    losses: LossLedger,
    device_fds: Mapping[tuple[int, int], str] | None = None,
) -> tuple[pl.DataFrame, bool]:
    """Return the `dma_wait` intervals (INTERVALS) and whether the capture can tell at all.

    paired: the capture's off_cpu, block_io and syscall intervals. device_fds: (pid, file descriptor) to path, for the
    calls on devices, which perf prints without paths.
    """
    blocked = paired.filter((pl.col("kind") == "off_cpu") & (pl.col("name") == "blocked"))
    has_waits = bool((paired["kind"] == "off_cpu").any())
    found: list[pl.DataFrame] = []
    is_captured = False
    names = events["event"]
    if names.str.starts_with("dma_fence:dma_fence_wait_").any():
        is_captured = True
        found.append(_fences(events, losses))
    if (
        has_waits
        and names.is_in(["block:block_rq_issue"]).any()
        and names.is_in(["block:block_rq_complete"]).any()
    ):
        is_captured = True
        found.append(_labelled(overlaps(blocked, paired.filter(pl.col("kind") == "block_io")), "block_io"))
    if names.str.contains(_SYNC_CALL).any():
        is_captured = True
        found.append(_sync_calls(events, losses))
    if has_waits and device_fds:
        calls = _device_calls(events, device_fds, losses)
        is_captured = True
        found.append(_labelled(overlaps(paired.filter(pl.col("kind") == "off_cpu"), calls), "device_call"))
    if not found:
        return pairing.as_intervals(events.clear().with_columns(kind=pl.lit(None))), is_captured
    return _first_evidence(pl.concat(found)), is_captured


def _labelled(table: pl.DataFrame, evidence: str) -> pl.DataFrame:
    return table.with_columns(
        kind=pl.lit("dma_wait"),
        evidence=pl.lit(evidence),
        name=pl.lit(evidence),
        period=pl.lit(None, pl.Int64),
        bytes=pl.lit(None, pl.Int64),
    )


def _fences(events: pl.DataFrame, losses: LossLedger) -> pl.DataFrame:
    rows = events.filter(pl.col("event").str.starts_with("dma_fence:dma_fence_wait_"))
    points = rows.with_columns(
        context=tracepoints.arg("context"),
        seqno=tracepoints.arg("seqno"),
        name=tracepoints.arg("timeline"),
        is_begin=pl.col("event").str.ends_with("_start"),
    )
    return _labelled(
        pairing.pair(points, by=["tid", "context", "seqno"], kind="dma_wait", losses=losses), "dma_fence"
    )


def _sync_calls(events: pl.DataFrame, losses: LossLedger) -> pl.DataFrame:
    call = pl.col("event").str.extract(_SYNC_CALL)
    points = events.with_columns(name=call, is_begin=~pl.col("event").str.ends_with("__return")).filter(
        pl.col("name").is_not_null()
    )
    return _labelled(pairing.pair(points, by=["tid", "name"], kind="dma_wait", losses=losses), "cuda_sync")


def _device_calls(
    events: pl.DataFrame, device_fds: Mapping[tuple[int, int], str], losses: LossLedger
) -> pl.DataFrame:
    devices = [key for key, path in device_fds.items() if path.startswith(_DEVICES)]
    known = pl.DataFrame(devices, schema={"pid": pl.Int32, "fd": pl.Int64}, orient="row")
    event = pl.col("event")
    rows = events.filter(event.str.contains(rf"^syscalls:sys_(?:enter|exit)_(?:{'|'.join(_WAITING_CALLS)})$"))
    fd = tracepoints.arg("fd").str.strip_prefix("0x").str.to_integer(base=16, strict=False)
    points = rows.with_columns(
        name=event.str.extract(r"^syscalls:sys_(?:enter|exit)_(.*)$"),
        is_begin=event.str.starts_with("syscalls:sys_enter_"),
        fd=fd.cast(pl.Int64),
    )
    on_device = points.filter("is_begin").join(known, on=["pid", "fd"], how="semi")
    # other calls of the same threads keep their ends from being taken
    kept = pl.concat([on_device, points.filter(~pl.col("is_begin"))])
    return pairing.pair(kept, by=["tid", "name"], kind="syscall", losses=LossLedger())


def overlaps(waits: pl.DataFrame, causes: pl.DataFrame) -> pl.DataFrame:
    """Return the parts of waits (INTERVALS, disjoint per thread) that lie inside any of causes of the same thread."""
    merged = merge(causes)
    borders = pl.concat(
        [
            waits.select("host", "tid", at="raw_start", wait=1, cause=0),
            waits.select("host", "tid", at="raw_end", wait=-1, cause=0),
            merged.select("host", "tid", at="raw_start", wait=0, cause=1),
            merged.select("host", "tid", at="raw_end", wait=0, cause=-1),
        ]
    )
    by = ["host", "tid"]
    segments = (
        borders.group_by(*by, "at")
        .agg(pl.col("wait", "cause").sum())
        .sort(*by, "at")
        .with_columns(pl.col("wait", "cause").cum_sum().over(by), end=pl.col("at").shift(-1).over(by))
        .filter((pl.col("wait") > 0) & (pl.col("cause") > 0))
        .select(*by, start="at", end="end")
    )
    return (
        segments.sort("start")
        .join_asof(
            waits.sort("raw_start"),
            left_on="start",
            right_on="raw_start",
            by=by,
            strategy="backward",
            check_sortedness=False,
        )
        .with_columns(raw_start=pl.col("start"), raw_end=pl.col("end"))
        .select(waits.columns)
    )


def merge(table: pl.DataFrame) -> pl.DataFrame:
    """Return the times that intervals cover per thread, disjoint: host, tid, raw_start, raw_end."""
    by = ["host", "tid"]
    return (
        table.sort(*by, "raw_start")
        .with_columns(reach=pl.col("raw_end").cum_max().shift(1).over(by))
        .with_columns(
            group=(pl.col("reach").is_null() | (pl.col("raw_start") > pl.col("reach"))).cum_sum().over(by)
        )
        .group_by(*by, "group")
        .agg(pl.col("raw_start").min(), pl.col("raw_end").max())
        .drop("group")
    )


def _first_evidence(table: pl.DataFrame) -> pl.DataFrame:
    """Return table without the parts of an interval that stronger evidence covers."""
    kept = [table.filter(pl.col("evidence") == EVIDENCE[0])]
    for evidence in EVIDENCE[1:]:
        weaker = table.filter(pl.col("evidence") == evidence)
        stronger = pl.concat(kept)
        kept.append(weaker if stronger.is_empty() or weaker.is_empty() else _without(weaker, stronger))
    return pl.concat(kept)


def _without(table: pl.DataFrame, covering: pl.DataFrame) -> pl.DataFrame:
    """Return the parts of table outside covering, per thread."""
    by = ["host", "tid"]
    reach = table.group_by(by).agg(low=pl.col("raw_start").min(), high=pl.col("raw_end").max())
    covered = merge(covering).join(reach.select(by), on=by, how="semi")
    free_before = covered.sort(*by, "raw_start").with_columns(free_start=pl.col("raw_end").shift(1).over(by))
    edges = 2**62
    gaps = pl.concat(
        [
            free_before.select(
                *by, raw_start=pl.col("free_start").fill_null(-edges), raw_end=pl.col("raw_start")
            ),
            covered.group_by(by).agg(raw_start=pl.col("raw_end").max(), raw_end=pl.lit(edges, pl.Int64)),
            reach.join(covered, on=by, how="anti").select(
                *by, raw_start=pl.lit(-edges, pl.Int64), raw_end=pl.lit(edges, pl.Int64)
            ),
        ]
    )
    return overlaps(table, gaps.filter(pl.col("raw_end") > pl.col("raw_start")))
