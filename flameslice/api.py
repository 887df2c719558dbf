"""What Python programs and notebooks may use; everything else is internal.

from flameslice import api
fold = api.fold("perf.txt")
tables = api.read("perf.txt")
table = api.slices("perf.txt", width_ns=100_000)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flameslice.commands.options import Asked
from flameslice.inputs import fold_input, read_input
from pipeline.folds import Fold

if TYPE_CHECKING:
    import polars as pl

    from pipeline.tables import Tables

__all__ = ["fold", "read", "slices"]


def fold(path: str, *, workers: int = 1) -> Fold:
    """Return the weight of every (event, process, stack) of a capture.

    With workers above 1, processes are started: call it under `if __name__ == "__main__"`. Raises FlamesliceError.
    """
    return fold_input(path, Asked(), forced_format=None, workers=workers)


def read(path: str) -> Tables:
    """Return a perf capture as tables: perf_events, frames and stacks (pipeline.schema). Raises FlamesliceError."""
    return read_input(path)


def slices(path: str, *, width_ns: int = 100_000) -> pl.DataFrame:
    """Return a capture cut into slices of width_ns: one row per slice, lane, kind and stack (pipeline.schema.SLICES).

    Raises FlamesliceError.
    """
    from flameslice import timeline

    return timeline.load(path, Asked(), width_ns=width_ns).cut(width_ns)
