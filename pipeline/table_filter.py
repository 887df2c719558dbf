"""A filter's processes, threads and CPUs, on a table."""

from __future__ import annotations

import polars as pl

from pipeline.filters import SampleFilter
from pipeline.text import unescape

_COLUMNS = ("pid", "tid", "cpu", "comm")


def of_origin(table: pl.LazyFrame, keep: SampleFilter) -> pl.LazyFrame:
    """Return the rows of the processes, threads and CPUs that keep names, whatever their time.

    The table has the columns pid, tid, cpu and comm; each combination is looked at once.
    """
    if not (keep.pids or keep.tids or keep.cpus or keep.comms):
        return table
    origins = table.select(_COLUMNS).unique().collect()
    kept = [
        keep.keeps_origin(pid, tid, cpu, None if comm is None else unescape(comm))
        for pid, tid, cpu, comm in origins.iter_rows()
    ]
    chosen = origins.filter(pl.Series(kept, dtype=pl.Boolean))
    return table.join(chosen.lazy(), on=list(_COLUMNS), how="semi", nulls_equal=True)
