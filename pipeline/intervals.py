"""From events to intervals: everything in a capture that begins and ends.

Kinds: running and off_cpu (scheduling), syscall, irq, softirq, block_io (pairing), dma_wait. CPU time of samples is
`cpu_time`'s. A kind that the capture has no events for is not in `captured`: it was not looked at, which is not 'none'.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import polars as pl

from pipeline import dma_wait, pairing, scheduling, schema
from pipeline.losses import Loss, LossLedger


def build(
    events: pl.DataFrame,
    *,
    kinds: Collection[str] | None = None,
    arch: str = "",
    device_fds: Mapping[tuple[int, int], str] | None = None,
) -> tuple[pl.DataFrame, tuple[Loss, ...], frozenset[str]]:
    """Return the intervals (INTERVALS), what could not be paired, and the kinds that the capture can answer for.

    events: PERF_EVENTS rows with times, in any order. kinds: what to return (None: everything). arch: names raw system
    calls. device_fds: see dma_wait.
    """
    losses = LossLedger()
    wanted = frozenset(kinds) if kinds is not None else None
    # joins by host: null would match nothing
    events = events.sort("raw_time", maintain_order=True).with_columns(pl.col("host").fill_null(""))
    parts: list[pl.DataFrame] = []
    captured: set[str] = set()

    def wants(*names: str) -> bool:
        return wanted is None or not wanted.isdisjoint((*names, "dma_wait"))

    if wants("running", "off_cpu") and scheduling.is_captured(events):
        captured |= {"running", "off_cpu"}
        parts.append(scheduling.intervals(events, losses))
    names = events["event"]
    for kind, pattern, find in (
        ("irq", r"^irq:irq_handler_", pairing.interrupts),
        ("softirq", r"^irq:softirq_e", pairing.softirqs),
        ("block_io", r"^block:block_rq_(?:issue|complete)$", pairing.block_requests),
    ):
        if wants(kind) and names.str.contains(pattern).any():
            captured.add(kind)
            parts.append(find(events, losses))
    if wants("syscall") and names.str.contains(r"syscalls:sys_(?:enter|exit)").any():
        captured.add("syscall")
        parts.append(pairing.syscalls(events, losses, arch))
    paired = pl.concat(parts) if parts else pl.DataFrame(schema=schema.INTERVALS)
    if wants("dma_wait"):
        waits, is_captured = dma_wait.intervals(events, paired, losses, device_fds)
        if is_captured:
            captured.add("dma_wait")
            paired = pl.concat([paired, waits])
    if wanted is not None:
        paired = paired.filter(pl.col("kind").is_in(list(wanted)))
    return paired, losses.as_tuple(), frozenset(captured)
