"""The table `clock_snapshots`, one row per clock and instant, as snapshots for the clock graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.clock_domains import Domain, Reading, Snapshot

if TYPE_CHECKING:
    import polars as pl

_COLUMNS = ("host", "boot_id", "snapshot", "clock", "value", "uncertainty_ns")


def snapshots_of(table: pl.DataFrame, origin: str) -> tuple[Snapshot, ...]:
    """Return the snapshots in the order of the table; one clock alone at an instant relates nothing: left out."""
    found: dict[tuple[str, str, int], list[Reading]] = {}
    for host, boot_id, number, clock, value, uncertainty in table.select(_COLUMNS).iter_rows():
        reading = Reading(Domain(clock, host or "", boot_id or ""), value, uncertainty or 0)
        found.setdefault((host or "", boot_id or "", number), []).append(reading)
    return tuple(
        Snapshot(tuple(readings), f"{origin}: snapshot {number}")
        for (_, _, number), readings in found.items()
        if len(readings) > 1
    )
