"""Text of the kernel's own tracer: /sys/kernel/tracing/trace and trace_pipe, and what `trace-cmd report` prints.

            bash-4469    [001] ...1. 36970.633107: tracing_mark_write: mark
            bash-4469    [001] d..2. 36970.633390: sched_switch: prev_comm=bash prev_pid=4469 prev_prio=120 ...
            bash-4469    [001] 37001.445171246: sys_exit_write:       0x2

Events get the names that perf gives them, so that everything made of perf's tracepoints is made of these too. Formats
and limits in docs/formats/ftrace.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from collectors import ftrace_clocks, ftrace_lines
from collectors.ftrace_clocks import Stamp
from collectors.ftrace_tokens import FtraceTokens
from collectors.perf_fold import Counting, unite
from collectors.perf_pieces import feeds
from collectors.source import Source
from pipeline.errors import InputError
from pipeline.filters import EVERYTHING, SampleFilter
from pipeline.folds import Fold
from pipeline.losses import REASONS, Loss, LossLedger

if TYPE_CHECKING:
    from pipeline.tables import Batch, Tables

OnBytes = Callable[[int], None]
_HEAD_BYTES = 1 << 18

sniff = ftrace_lines.sniff


def stamp_of(source: Source) -> Stamp:
    """Return what stamps a source, learned from its beginning."""
    return ftrace_clocks.learn(source.head(_HEAD_BYTES)) or ftrace_clocks.UNKNOWN


def fold(
    source: Source,
    keep: SampleFilter = EVERYTHING,
    *,
    workers: int | None = None,
    on_bytes: OnBytes | None = None,
) -> Fold:
    """Count the events of a source by name, task and stack; workers makes no difference.

    Raises InputError where it holds no event.
    """
    stamp = stamp_of(source)
    counting = Counting(FtraceTokens(stamp), keep)
    found = counting.piece(0, _texts(source, on_bytes))
    counts = counting.result()
    _refuse_what_is_empty(counts.rows, found, source)
    result = Fold()
    result.meta = unite([counts], result)
    result.losses.merge(found)
    result.losses.merge(source.losses.as_tuple())
    result.rows += result.losses.lost_rows
    result.clock = stamp.clock
    result.notes = ftrace_clocks.notes_of(result.meta) if not stamp.clock else ()
    return result


def read(
    source: Source, keep: SampleFilter = EVERYTHING, *, host: str = "", on_bytes: OnBytes | None = None
) -> Tables:
    """Read a whole source into tables: one row of `perf_events` per event.

    Times are ns of the clock that stamped them, ticks where that is the TSC. Raises InputError where it holds no event.
    """
    from pipeline import whole_source

    return whole_source.of(Stream(source, keep, host=host, on_bytes=on_bytes), has_all_rows=keep.is_trivial)


class Stream:
    """Reads a source in batches, in memory bounded by a batch and the stacks; what it was is known at the end."""

    def __init__(
        self,
        source: Source,
        keep: SampleFilter = EVERYTHING,
        *,
        host: str = "",
        on_bytes: OnBytes | None = None,
    ) -> None:
        """Learn the clock."""
        from collectors.perf_read import TableReader

        self._source, self._on_bytes = source, on_bytes
        self._stamp = stamp_of(source)
        self._reader = TableReader(FtraceTokens(self._stamp), keep, host)
        self._unnamed: set[int] = set()

    def batches(self) -> Iterator[Batch]:
        """Yield the batches of the source; the column `clock` is null. Raises InputError where it holds no event."""
        import polars as pl

        for batch in self._reader.read(_texts(self._source, self._on_bytes)):
            unnamed = pl.col("comm") == pl.format(":{}", pl.col("tid"))
            self._unnamed.update(batch.perf_events.filter(unnamed)["tid"].unique())
            yield batch
        _refuse_what_is_empty(self._reader.rows, self._reader.losses.as_tuple(), self._source)

    @property
    def clock(self) -> str:
        """Return what stamps the events; empty: they have no times."""
        return self._stamp.clock

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what a reader of the times must know of their clock."""
        return ftrace_clocks.notes_of(self.meta)

    @property
    def starts(self) -> dict[int, int]:
        """Return the rows before which the file says that another trace begins, and the lines of that."""
        return self._reader.starts

    @property
    def line_of(self) -> dict[int, int]:
        """Return the lines of rows that may begin another trace."""
        return self._reader.line_of

    @property
    def meta(self) -> dict[str, str]:
        """Return what the source says of itself."""
        return self._reader.meta

    @property
    def rows(self) -> int:
        """Return how many rows the source holds, read or not."""
        return self._reader.rows + sum(
            loss.count for loss in self.losses() if REASONS[loss.reason].counts_rows
        )

    def losses(self) -> tuple[Loss, ...]:
        """Return what could not be read."""
        ledger = LossLedger()
        ledger.merge(self._reader.losses.as_tuple())
        ledger.merge(self._source.losses.as_tuple())
        return ledger.as_tuple()

    def renamed_threads(self) -> dict[int, str]:
        """Return the names of tasks that stand as `<...>` in some lines, and with their names elsewhere."""
        names = self._reader.tokens.comm_history
        return {tid: names[tid] for tid in sorted(self._unnamed) if tid in names}


def _texts(source: Source, on_bytes: OnBytes | None) -> Iterator[bytes]:
    """Yield the text of a source in parts that end at line ends."""
    for chunk in source.line_chunks():
        for text in feeds(chunk):
            yield text
            if on_bytes is not None:
                on_bytes(len(text))


def _refuse_what_is_empty(rows: int, losses: tuple[Loss, ...], source: Source) -> None:
    if rows:
        return
    functions = sum(loss.count for loss in losses if loss.reason == "function_trace")
    if functions:
        raise InputError(
            f"its {functions} lines are those of a function tracer, which are no events",
            "record events: trace-cmd record -e sched -e syscalls, or draw functions with perf record -g",
            path=source.name,
        )
    lost = "; ".join(loss.describe() for loss in losses)
    raise InputError(
        "no event found", lost or "is this the text of ftrace, or of trace-cmd report?", path=source.name
    )
