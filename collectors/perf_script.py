"""`perf script` text: samples with call stacks, tracepoints with arguments, PERF_RECORD lines.

    python3 19917/19917 [000]   829.851181:    5025125 cpu-clock:
                ff04e _PyEval_EvalFrameDefault+0x44de (/usr/lib/libpython3.11.so.1.0)
         7f5177671d40 [unknown] ([unknown])

Every field layout of perf 3.2 to 6.16 and simpleperf's report_sample; formats in docs/formats/perf.md. One tokenizer
(`perf_tokens`) behind both: `fold` counts what it finds, `read` makes tables of it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from collectors import ftrace_lines, perf_header
from collectors.perf_fold import Counting, unite
from collectors.perf_header import Layout
from collectors.perf_header_clocks import clock_of
from collectors.perf_pieces import PIECE_BYTES, Task, feeds, file_feeds, file_pieces, stream_pieces
from collectors.perf_tokens import Tokens
from collectors.perf_workers import OnBytes, count_parallel, default_workers
from collectors.source import Source
from pipeline.clock_domains import RELATIVE
from pipeline.errors import InputError
from pipeline.filters import EVERYTHING, SampleFilter
from pipeline.folds import Fold
from pipeline.losses import REASONS, Loss, LossLedger

if TYPE_CHECKING:
    from pipeline.tables import Batch, Tables

_STACK_LINE = re.compile(rb"(?:\s+[0-9a-f]{1,16}|[0-9a-f]{6,16})\s+\S")
_HEAD_BYTES = 1 << 18
_CHUNK_BYTES = 4 << 20
_PARALLEL_FROM_BYTES = 4 * PIECE_BYTES


def sniff(head: bytes) -> bool | None:
    """Return whether the beginning of a file is perf script text; None: more bytes are needed."""
    layout = perf_header.learn(head)
    if layout is not None:
        if ftrace_lines.sniff(head):
            return False  # the kernel's own trace, whose lines are almost those of perf script
        return layout.has_time or _has_untimed_stack(head, layout)
    return None if b"\n" not in head else False


def _has_untimed_stack(head: bytes, layout: Layout) -> bool:
    """Return whether a sample line without a time has a stack line right below: alone it could be any text."""
    lines = [line for line in head.split(b"\n")[:2000] if line.strip()]
    return any(
        _STACK_LINE.match(below) and perf_header.parse_without_time(line, layout) is not None
        for line, below in itertools.pairwise(lines)
    )


def layout_of(source: Source) -> Layout:
    """Return the columns of a source, learned from its beginning.

    Raises InputError where no sample line stands there.
    """
    layout = perf_header.learn(source.head(_HEAD_BYTES))
    if layout is None:
        raise InputError("no sample line found", "is this the output of perf script?", path=source.name)
    return layout


def fold(
    source: Source,
    keep: SampleFilter = EVERYTHING,
    *,
    workers: int | None = None,
    on_bytes: OnBytes | None = None,
) -> Fold:
    """Count the samples of a source by event, process and stack.

    workers: processes to count with (None: as many as there are CPUs, where the file is large enough). The size of the
    result follows the number of different stacks. Raises InputError where no sample line is found.
    """
    layout = layout_of(source)
    if layout.has_time is False:
        workers = 1  # pieces are cut at sample lines, and these need a time to be told
    size = source.size_bytes
    if workers is None:
        workers = default_workers() if size is None or size >= _PARALLEL_FROM_BYTES else 1
    result = Fold()
    if workers > 1:
        counts, losses = count_parallel(_tasks(source, layout), layout, keep, workers, on_bytes)
    else:
        counting = Counting(Tokens(layout), keep)
        found = counting.piece(0, _told(_texts(source), on_bytes))
        counts, losses = [counting.result()], LossLedger()
        losses.merge(found)
    result.meta = unite(counts, result)
    result.losses.merge(losses.as_tuple())
    result.losses.merge(source.losses.as_tuple())
    result.rows += result.losses.lost_rows
    if layout.has_time:
        # perf script --reltime: the first time printed is exactly 0, which no clock of a host shows
        result.clock = RELATIVE if result.first_ns == 0 else clock_of(result.meta)
    return result


def read(
    source: Source, keep: SampleFilter = EVERYTHING, *, host: str = "", on_bytes: OnBytes | None = None
) -> Tables:
    """Read a whole source into tables: one row of `perf_events` per sample or tracepoint.

    Times are ns of the clock that stamped them; rows of PERF_RECORD_SWITCH stand among the samples. Raises InputError
    where no sample line is found.
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
        """Learn the columns; raises InputError where no sample line is found."""
        from collectors.perf_read import TableReader

        layout = layout_of(source)
        self._source, self._on_bytes, self._has_time = source, on_bytes, layout.has_time
        self._reader = TableReader(Tokens(layout), keep, host)
        self._unnamed: set[str] = set()

    def batches(self) -> Iterator[Batch]:
        """Yield the batches of the source; the column `clock` is null."""
        import polars as pl

        for batch in self._reader.read(_told(_texts(self._source), self._on_bytes)):
            unnamed = pl.col("comm").str.contains(r"^:\d+$")
            self._unnamed.update(batch.perf_events.filter(unnamed)["comm"].unique())
            yield batch

    @property
    def clock(self) -> str:
        """Return what stamps the samples; known once the first batch is there. Empty: they have no times."""
        if not self._has_time:
            return ""
        return RELATIVE if self._reader.first_ns == 0 else clock_of(self._reader.meta)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what a reader of the result must know of the source: nothing that its losses do not say."""
        return ()

    @property
    def starts(self) -> dict[int, int]:
        """Return the rows before which the file says that another recording begins, and the lines of that."""
        return self._reader.starts

    @property
    def line_of(self) -> dict[int, int]:
        """Return the lines of rows that may begin another recording."""
        return self._reader.line_of

    @property
    def meta(self) -> dict[str, str]:
        """Return the source's own header fields."""
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
        """Return the last names of threads that perf prints as `:TID` in samples before it knew them."""
        names = self._reader.tokens.comm_history
        return {
            int(comm[1:]): names[int(comm[1:])] for comm in sorted(self._unnamed) if int(comm[1:]) in names
        }


def _texts(source: Source) -> Iterator[bytes]:
    """Yield the text of a source in parts that end at line ends."""
    if source.path is not None and source.is_plain_file():
        yield from file_feeds(source.path, 0, source.path.stat().st_size)
        return
    held = b""
    for chunk in source.chunks(_CHUNK_BYTES):
        held += chunk
        end = held.rfind(b"\n\n") + 2
        if end < 2:
            end = held.rfind(b"\n") + 1
        if end > 0:
            yield from feeds(held[:end])
            held = held[end:]
    if held:
        yield held


def _stream(source: Source, layout: Layout) -> Iterator[bytes]:
    return stream_pieces(source.chunks(_CHUNK_BYTES), layout)


def _told(texts: Iterator[bytes], on_bytes: OnBytes | None) -> Iterator[bytes]:
    for text in texts:
        yield text
        if on_bytes is not None:
            on_bytes(len(text))


def _tasks(source: Source, layout: Layout) -> Iterator[Task]:
    if source.path is not None and source.is_plain_file():
        for number, (offset, length) in enumerate(file_pieces(source.path, layout)):
            yield number, str(source.path), offset, length
    else:
        for number, piece in enumerate(_stream(source, layout)):
            yield number, piece
