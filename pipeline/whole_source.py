"""A source that is read in batches, as one whole in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import polars as pl

from pipeline import time_order
from pipeline.losses import Loss
from pipeline.tables import Batch, Tables


class Stream(Protocol):
    """What a reader of samples hands out batch by batch; the properties are known when the last one is out."""

    def batches(self) -> Iterator[Batch]:
        """Yield the batches of the source; the column `clock` is null."""

    @property
    def clock(self) -> str:
        """Return what stamps the rows; known once the first batch is there. Empty: they have no times."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what a reader of the result must know of the source."""

    @property
    def starts(self) -> dict[int, int]:
        """Return the rows before which the file says that another recording begins, and the lines of that."""

    @property
    def line_of(self) -> dict[int, int]:
        """Return the lines of rows that may begin another recording."""

    @property
    def meta(self) -> dict[str, str]:
        """Return the source's own header fields."""

    @property
    def rows(self) -> int:
        """Return how many rows the source holds, read or not."""

    def losses(self) -> tuple[Loss, ...]:
        """Return what could not be read."""

    def renamed_threads(self) -> dict[int, str]:
        """Return the last names of threads that have no name in some rows."""


def of(stream: Stream, *, has_all_rows: bool) -> Tables:
    """Read a stream to its end; a part of its rows has other numbers than the file's lines."""
    batches = list(stream.batches())
    events = pl.concat([batch.perf_events for batch in batches])
    places = (stream.starts, stream.line_of) if has_all_rows else ({}, {})
    order = time_order.judge(
        events["raw_time"], events["cpu"], events["tid"], starts=[*places[0]], line_of=places[1]
    )
    return Tables(
        perf_events=events.with_columns(clock=pl.lit(stream.clock, pl.String)),
        frames=pl.concat([batch.frames for batch in batches]),
        stacks=pl.concat([batch.stacks for batch in batches]),
        losses=stream.losses(),
        rows=stream.rows,
        clock=stream.clock,
        meta=stream.meta,
        notes=stream.notes,
        order=order,
    )
