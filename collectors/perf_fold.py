"""Counts `perf script` samples by event, process and stack: the short way to a flame graph, over several processes.

A large file is cut where a sample surely begins; each process counts whole pieces with its own tokenizer, and the
tries are united at the end. Nothing here keeps single samples.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from collectors import perf_header
from collectors.perf_header import Head, Layout
from collectors.perf_tokens import REMEMBER_BYTES, Key, Rows, Tokens
from pipeline.errors import WorkError
from pipeline.filters import SampleFilter
from pipeline.folds import EventTotals, Fold
from pipeline.losses import Loss, LossLedger
from pipeline.stacks import Frame

FEED_BYTES = 1 << 20  # stays in the CPU's cache
PIECE_BYTES = 8 << 20
_BORDER_WINDOW = 1 << 18
_LARGEST_PIECE = 64 << 20  # without any sample line in it: then it goes on as it is

_COUNTER_KEYS = 1 << 17

Weights = dict[tuple[str, str | None, int], list[int]]


@dataclass(slots=True)
class Counts:
    """What one process counted, small enough to send: the trie as its lists, weights by node of that trie."""

    frames: list[Frame] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    frame_of: list[int] = field(default_factory=list)
    weights: Weights = field(default_factory=dict)
    events: dict[str, tuple[tuple[int, int], EventTotals]] = field(
        default_factory=dict
    )  # first piece and place
    losses: tuple[Loss, ...] = ()
    rows: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    meta: dict[str, str] = field(default_factory=dict)
    comm_history: dict[int, str] = field(default_factory=dict)


class Counting:
    """Counts the rows of one tokenizer."""

    def __init__(self, layout: Layout, keep: SampleFilter, workers: int = 1) -> None:
        self.tokens = Tokens(layout, REMEMBER_BYTES // workers)
        self.counts = Counts()
        self._keep = keep
        self._kept_heads: dict[Head, bool] = {}
        self._counter: Counter[Key] = Counter()
        self._piece = 0

    def piece(self, number: int, texts: Iterable[bytes]) -> tuple[Loss, ...]:
        """Count one piece; return its losses, whose lines count from the piece's start."""
        self._piece = number
        tokens = self.tokens
        tokens.begin_piece()
        for text in texts:
            tokens.feed(text)
            self._count(tokens.take())
        tokens.finish()
        self._count(tokens.take(is_last=True))
        self._settle()
        return tokens.losses.as_tuple()

    def result(self) -> Counts:
        """Return everything counted."""
        counts, trie = self.counts, self.tokens.trie
        counts.frames, counts.parents, counts.frame_of = trie.frames, trie.parents, trie.frame_of
        counts.meta, counts.comm_history = self.tokens.meta, self.tokens.comm_history
        return counts

    def _count(self, rows: Rows) -> None:
        if not rows.keys:
            return
        counts = self.counts
        keys = rows.keys
        if rows.times[0]:
            # all times only where a range asks for them: else the first and last row tell enough
            times_ns = times_to_ns(rows.times if self._keep.has_range else rows.times[:: len(rows) - 1 or 1])
            first, last = min(times_ns), max(times_ns)
            counts.first_ns = first if counts.first_ns is None else min(first, counts.first_ns)
            counts.last_ns = last if counts.last_ns is None else max(last, counts.last_ns)
            if self._keep.has_range:
                keep = self._keep.keeps_time
                keys = [key for key, time_ns in zip(keys, times_ns, strict=True) if keep(time_ns)]
        elif self._keep.has_range:
            keys = []
        self._counter.update(keys)
        if len(self._counter) > _COUNTER_KEYS:
            self._settle()

    def _settle(self) -> None:
        """Turn counted keys into weights."""
        counts, weights, push = self.counts, self.counts.weights, self.tokens.trie.push
        for (head, tail, node, numbers), number in self._counter.items():
            event = tail.event or "[unknown]"
            counts.rows += number
            if event.startswith("PERF_RECORD_") or not self._keeps(head):
                continue
            for frame in numbers:
                node = push(node, frame)
            known = counts.events.get(event)
            if known is None:
                known = counts.events[event] = ((self._piece, len(counts.events)), EventTotals())
            totals = known[1]
            totals.samples += number
            period = number if tail.period is None else number * tail.period
            totals.has_period |= tail.period is not None
            totals.period += period
            weight = weights.get((event, head.comm, node))
            if weight is None:
                weights[(event, head.comm, node)] = [number, period]
            else:
                weight[0] += number
                weight[1] += period
        self._counter.clear()

    def _keeps(self, head: Head) -> bool:
        if self._keep.is_trivial:
            return True
        kept = self._kept_heads.get(head)
        if kept is None:
            kept = self._kept_heads[head] = self._keep.keeps_origin(head.pid, head.tid, head.cpu, head.comm)
        return kept


def times_to_ns(times: list[bytes]) -> list[int]:
    """Return printed times ('829.851181', 1 to 9 decimals) as integer nanoseconds."""
    digits = len(times[0]) - times[0].index(b".") - 1
    if all(time[-digits - 1 : -digits] == b"." for time in times):
        scale = 10 ** (9 - digits)
        return [int(time) * scale for time in b" ".join(times).replace(b".", b"").split()]
    out = []
    for time in times:
        seconds, _, fraction = time.partition(b".")
        out.append(int(seconds) * 10**9 + int(fraction.ljust(9, b"0")))
    return out


def unite(results: Iterable[Counts], fold: Fold) -> dict[str, str]:
    """Add what several processes counted into fold; return the file's own header fields."""
    found: list[tuple[tuple[int, int], str, EventTotals]] = []
    comm_history: dict[int, str] = {}
    meta: dict[str, str] = {}
    for counts in results:
        nodes = fold.trie.absorb(counts.frames, counts.parents, counts.frame_of)
        comm_history.update(counts.comm_history)
        meta.update(counts.meta)
        fold.rows += counts.rows
        for (event, comm, node), weight in counts.weights.items():
            into = fold.weights.setdefault((event, comm, nodes[node]), [0, 0])
            into[0] += weight[0]
            into[1] += weight[1]
        found.extend((place, event, totals) for event, (place, totals) in counts.events.items())
        if counts.first_ns is not None and counts.last_ns is not None:
            fold.first_ns = min(counts.first_ns, counts.first_ns if fold.first_ns is None else fold.first_ns)
            fold.last_ns = max(counts.last_ns, counts.last_ns if fold.last_ns is None else fold.last_ns)
    for _, event, totals in sorted(found, key=lambda item: item[0]):
        into_totals = fold.events.setdefault(event, EventTotals())
        into_totals.samples += totals.samples
        into_totals.period += totals.period
        into_totals.has_period |= totals.has_period
    _name_threads(fold, comm_history)
    return meta


def _name_threads(fold: Fold, comm_history: dict[int, str]) -> None:
    """Replace the names `:TID`, which perf prints for threads that it does not know, by recorded ones."""
    for key in [key for key in fold.weights if key[1] and key[1].startswith(":") and key[1][1:].isdigit()]:
        event, comm, node = key
        name = comm_history.get(int(comm[1:])) if comm else None
        if name is not None:
            moved = fold.weights.pop(key)
            into = fold.weights.setdefault((event, name, node), [0, 0])
            into[0] += moved[0]
            into[1] += moved[1]


# cutting a file into pieces


def find_border(text: bytes, layout: Layout) -> int | None:
    """Return where in text a sample surely begins, whatever came before; None where no such place is."""
    at = text.find(b"\n\n")
    while at >= 0:
        start = at + 2
        end = text.find(b"\n", start)
        if end < 0:
            break
        if _is_sample_line(text[start:end], layout):
            return start
        at = text.find(b"\n\n", start)
    # no blank lines: tracepoints without stacks. Between two sample lines no process name is cut
    lines = text.split(b"\n")
    at = len(lines[0]) + 1
    was_sample = False
    for line in lines[1:-1][:5000]:
        is_sample = _is_sample_line(line, layout)
        if is_sample and was_sample:
            return at
        was_sample = is_sample
        at += len(line) + 1
    return None


def _is_sample_line(line: bytes, layout: Layout) -> bool:
    if line[:1] in (b"\t", b"#", b""):
        return False
    return any(
        perf_header.parse_prefix(line[: match.start()], layout) is not None
        and perf_header.parse_suffix(line[match.end() :]) is not None
        for match in perf_header.times_in(line)
    )


def file_pieces(path: Path, layout: Layout) -> Iterator[tuple[int, int]]:
    """Yield (offset, length) of the pieces of a plain file."""
    size = path.stat().st_size
    start = 0
    with path.open("rb") as file:
        while start < size:
            target = start + PIECE_BYTES
            end = size
            window = _BORDER_WINDOW
            while target < size:
                file.seek(target)
                border = find_border(file.read(window), layout)
                if border is not None:
                    end = target + border
                    break
                window *= 4
                if window > _LARGEST_PIECE:
                    target, window = target + window, _BORDER_WINDOW
            yield start, end - start
            start = end


def stream_pieces(chunks: Iterable[bytes], layout: Layout) -> Iterator[bytes]:
    """Yield a stream of text as pieces of whole samples."""
    held = b""
    for chunk in chunks:
        held += chunk
        while len(held) >= 2 * PIECE_BYTES:
            border = find_border(held[PIECE_BYTES : PIECE_BYTES + _BORDER_WINDOW], layout)
            if border is None:
                border = find_border(held[PIECE_BYTES:], layout)
            if border is None:
                if len(held) < _LARGEST_PIECE:
                    break
                border = held.rfind(b"\n", 0, PIECE_BYTES) + 1 - PIECE_BYTES or 0
            yield held[: PIECE_BYTES + border]
            held = held[PIECE_BYTES + border :]
    if held:
        yield held


def feeds(text: bytes) -> Iterator[bytes]:
    """Yield text in parts that end at line ends and suit the CPU's cache."""
    start = 0
    while start < len(text):
        end = text.rfind(b"\n\n", start, start + FEED_BYTES)
        end = text.rfind(b"\n", start, start + FEED_BYTES) + 1 if end < 0 else end + 2
        if end <= start or len(text) - start <= FEED_BYTES:
            end = len(text) if len(text) - start <= FEED_BYTES else text.find(b"\n", start) + 1 or len(text)
        yield text[start:end]
        start = end


def file_feeds(path: Path, offset: int, length: int) -> Iterator[bytes]:
    """Yield a piece of a file in parts as `feeds` does, without holding the piece."""
    end = offset + length
    with path.open("rb", buffering=0) as file:
        while offset < end:
            text = os.pread(file.fileno(), min(FEED_BYTES, end - offset), offset)
            if not text:
                return
            if offset + len(text) < end:
                cut = text.rfind(b"\n\n") + 2
                if cut < 2:
                    cut = text.rfind(b"\n") + 1
                if cut > 0:
                    text = text[:cut]
            offset += len(text)
            yield text


# several processes

Task = tuple[int, str, int, int] | tuple[int, bytes]
OnBytes = Callable[[int], None]  # told how many bytes more were read


def _work(
    pipe: Connection, inherited: list[Connection], layout: Layout, keep: SampleFilter, workers: int
) -> None:
    """Run in a worker process: count pieces until None comes, then send everything; end when the parent does.

    inherited: the parent's ends of pipes, which a forked process must close to see the parent's end.
    """
    for each in inherited:
        each.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    gc.disable()  # no reference cycles here, and the collector would look at every remembered text again and again
    counting = Counting(layout, keep, workers)
    try:
        while (task := pipe.recv()) is not None:
            texts = feeds(task[1]) if len(task) == 2 else file_feeds(Path(task[1]), task[2], task[3])
            pipe.send((task[0], counting.piece(task[0], texts)))
        pipe.send(counting.result())
    except EOFError:
        return
    except Exception as error:
        with contextlib.suppress(OSError):
            pipe.send(error)


def _received(pipe: Connection) -> Any:
    """Return what a worker sent; raise what went wrong there."""
    answer = pipe.recv()
    if isinstance(answer, Exception):
        raise answer
    return answer


def task_bytes(task: Task) -> int:
    """Return how many bytes of text a task holds."""
    return len(task[1]) if len(task) == 2 else task[3]


def count_parallel(
    tasks: Iterator[Task], layout: Layout, keep: SampleFilter, workers: int, on_bytes: OnBytes | None = None
) -> tuple[list[Counts], LossLedger]:
    """Count pieces in worker processes; the losses' lines count from the start of the whole text."""
    # forking is quick and safe while this process has no other threads; else start from a fresh interpreter
    is_alone = threading.active_count() == 1 and "polars" not in sys.modules
    context: Any = multiprocessing.get_context("fork" if is_alone else "spawn")
    pipes: dict[Connection, int] = {}
    processes = []
    done: dict[int, tuple[Loss, ...]] = {}
    places = _Places()
    try:
        for number in range(workers):
            ours, theirs = context.Pipe()
            inherited = [*pipes, ours] if is_alone else []
            process = context.Process(
                target=_work, args=(theirs, inherited, layout, keep, workers), daemon=True
            )
            process.start()
            theirs.close()
            processes.append(process)
            pipes[ours] = number
        idle = list(pipes)
        busy: set[Connection] = set()
        for task in tasks:
            if not idle:
                idle = [pipe for pipe in wait(list(busy)) if isinstance(pipe, Connection)]
                for pipe in idle:
                    number, losses = _received(pipe)
                    done[number] = losses
                    busy.discard(pipe)
            pipe = idle.pop()
            places.note(task)
            pipe.send(task)
            busy.add(pipe)
            if on_bytes is not None:
                on_bytes(task_bytes(task))
        for pipe in busy:
            number, losses = _received(pipe)
            done[number] = losses
        for pipe in pipes:
            pipe.send(None)
        results = [_received(pipe) for pipe in pipes]
    except (EOFError, BrokenPipeError, ConnectionResetError) as error:
        raise WorkError(
            "a worker process ended before its work was done",
            "look for the kernel's out-of-memory killer (dmesg), or pass --workers 1",
        ) from error
    finally:
        for process in processes:
            process.terminate()
            process.join()
    ledger = LossLedger()
    for number in sorted(done):
        if done[number]:
            ledger.merge(done[number], places.lines_before(number))
    return results, ledger


class _Places:
    """Knows the line at which each piece begins; a file's lines are counted only where a loss must be placed."""

    def __init__(self) -> None:
        self._tasks: dict[int, Task] = {}
        self._lines: dict[int, int] = {0: 0}

    def note(self, task: Task) -> None:
        if len(task) == 2:  # a stream does not come again
            self._lines[task[0] + 1] = self._lines[task[0]] + task[1].count(b"\n")
        else:
            self._tasks[task[0]] = task

    def lines_before(self, number: int) -> int:
        while number not in self._lines:
            known = max(self._lines)
            task = self._tasks[known]
            assert len(task) == 4
            lines = sum(text.count(b"\n") for text in file_feeds(Path(task[1]), task[2], task[3]))
            self._lines[known + 1] = self._lines[known] + lines
        return self._lines[number]


def default_workers() -> int:
    """Return how many processes to count with: the CPUs we may use, at most 8."""
    return min(8, len(os.sched_getaffinity(0)))
