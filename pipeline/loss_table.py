"""Losses as the table `losses`, and back."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from pipeline import schema
from pipeline.losses import REASONS, Loss, LossLedger
from pipeline.text import escape


def losses_table(losses: Iterable[Loss]) -> pl.DataFrame:
    """Return the `losses` table: one row per kind of loss."""
    rows = [(one.reason, one.count, one.severity, one.first_line, escape(one.example)) for one in losses]
    return pl.DataFrame(rows, schema=schema.LOSSES, orient="row")


def losses_of(table: pl.DataFrame) -> tuple[Loss, ...]:
    """Return the losses of all sources of a table, added up; a reason of a newer version is left out."""
    ledger = LossLedger()
    for reason, count, first_line, example in table.select(
        "reason", "count", "first_line", "example"
    ).iter_rows():
        if reason in REASONS:
            ledger.merge((Loss(reason, count, first_line, example or ""),))
    return ledger.as_tuple()
