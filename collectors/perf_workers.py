"""Counts the pieces of a large text in several processes, each with its own tokenizer."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from collectors.perf_fold import Counting, Counts
from collectors.perf_header import Layout
from collectors.perf_pieces import Task, feeds, file_feeds, task_bytes
from collectors.perf_tokens import REMEMBER_BYTES, Tokens
from pipeline.errors import WorkError
from pipeline.filters import SampleFilter
from pipeline.losses import Loss, LossLedger

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
    counting = Counting(Tokens(layout, REMEMBER_BYTES // workers), keep)
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
