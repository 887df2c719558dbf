"""What Python programs and notebooks may use; everything else is internal.

from flameslice import api
fold = api.fold("perf.txt")
tables = api.read("perf.txt")
table = api.slices("perf.txt", width_ns=100_000)
events = api.to_pandas("perf_events", "server", data="captures-dir")
stacks = api.scan("stacks", "server", data="s3://bucket/prefix").collect()
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from flameslice.commands.options import Asked
from flameslice.inputs import fold_input, read_input
from pipeline.errors import UsageError
from pipeline.folds import Fold

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from flameslice.stored import StoredCaptureReader
    from pipeline.tables import Tables

__all__ = ["fold", "read", "scan", "slices", "to_pandas"]

StrPath = str | os.PathLike[str]


def fold(path: StrPath, *, workers: int = 1, data: StrPath | None = None) -> Fold:
    """Return the weight of every (event, process, stack) of a capture.

    path: a file, a capture directory or archive, or the id or name of a capture that is stored in data (a directory or
    s3://bucket/prefix; None: FLAMESLICE_DATA, or the XDG data home). A file of that name goes first; `capture:NAME` is
    always a stored one. Periods are in the event's unit: ns for cpu-clock and task-clock.

    With workers above 1, processes are started: call it under `if __name__ == "__main__"`. Raises InputError where
    there is no such file or capture, or nothing to draw in it, and WorkError where it cannot be reached; both are
    FlamesliceError.
    """
    return fold_input(os.fspath(path), Asked(), forced_format=None, workers=workers, data=_text(data))


def read(path: StrPath, *, data: StrPath | None = None) -> Tables:
    """Return a perf capture as tables: perf_events, frames and stacks (pipeline.schema), times in ns of its clock.

    path and data: as in `fold`. perf_events has one row per sample or tracepoint, in the order of the source. Raises
    InputError where the capture holds no single samples, or sources on clocks that nothing relates; else as `fold`.
    """
    return read_input(os.fspath(path), data=_text(data))


def slices(path: StrPath, *, width_ns: int = 100_000, data: StrPath | None = None) -> pl.DataFrame:
    """Return a capture cut into slices of width_ns: one row per slice, lane, kind and stack (pipeline.schema.SLICES).

    path and data: as in `fold`. busy_ns of all rows adds up to the time of all intervals. Raises as `read`, and
    InputError where the samples have no times.
    """
    from flameslice import timeline

    return timeline.load((os.fspath(path),), Asked(), width_ns=width_ns, data=_text(data)).cut(width_ns)


def scan(table: str, capture: str, data: StrPath | None = None) -> pl.LazyFrame:
    """Return a stored table of a capture as a polars query over its parts: one row per row of its sources.

    table: perf_events, frames, stacks, stack_weights, threads, losses or clock_snapshots. capture: an id, or a name
    that only one has. data: as in `fold`. The columns are capture, source and row, then the table's own
    (docs/tables.md), in no promised order of rows. A table that the capture does not have is empty.

    Only what is asked for is read, when it is collected. Collect soon: where `flameslice compact` took the parts away
    in between, polars raises FileNotFoundError, and scan finds the new ones. Raises UsageError where there is no such
    table, InputError where there is no such capture, WorkError where the store cannot be reached.
    """
    from flameslice import stored

    reader = _stored(table, capture, data)
    return stored.again_if_moved(lambda: reader.scan(table))


def to_pandas(table: str, capture: str, data: StrPath | None = None) -> pd.DataFrame:
    """Return a stored table of a capture for pandas: one row per row of its sources, in their order.

    table, capture, data, columns and errors: as in `scan`; all of it is read into memory. Times are integers in ns of
    the row's clock. Integers are pandas' nullable types (Int32, Int64, UInt64), for a missing value must not turn a
    time into a float; texts are strings. The index counts from 0.
    """
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    reader = _stored(table, capture, data)
    rows = reader.table(table)
    integers = {pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}
    found: pd.DataFrame = rows.to_arrow(compat_level=pl.CompatLevel.oldest()).to_pandas(
        types_mapper=integers.get
    )
    return found


def _stored(table: str, capture: str, data: StrPath | None) -> StoredCaptureReader:
    """Return the reader of a stored capture that is asked for a table."""
    from flameslice import stored
    from pipeline import schema

    if table not in schema.STORED:
        raise UsageError(f"no stored table {table!r}", f"give one of {', '.join(schema.STORED)}")
    return stored.open_capture(capture, _text(data))


def _text(data: StrPath | None) -> str | None:
    return None if data is None else os.fspath(data)
