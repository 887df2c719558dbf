"""The worker inside `flameslice ingest`: a thread that stores what the embedded log holds, until nothing is left."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import TracebackType

from flameslice import logs
from pipeline.log.embedded import EmbeddedConsumer, EmbeddedLog
from pipeline.store.catalog import Catalog
from pipeline.worker import TOPICS, Worker

_LOOK_S = 0.05


class LocalWorker:
    """Works while it is entered; leaving without an error waits until the log is empty.

    Where another process already works on this log, that one is waited for, and taken over from if it ends.
    """

    def __init__(self, path: Path, catalog: Catalog) -> None:
        self._path, self._catalog = path, catalog
        self._is_last = threading.Event()  # nothing more is appended
        self._is_cancelled = threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)

    def __enter__(self) -> LocalWorker:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        (self._is_last if kind is None else self._is_cancelled).set()
        self._thread.join()
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raise what went wrong in the thread."""
        if self._problem is not None:
            raise self._problem

    def _run(self) -> None:
        try:
            log = logs.open_embedded(self._path, self._catalog)
            try:
                self._work(log)
            finally:
                log.close()
        except BaseException as error:  # raised again where the thread is waited for
            self._problem = error

    def _work(self, log: EmbeddedLog) -> None:
        while not self._is_cancelled.is_set():
            consumer = log.try_consume(logs.EMBEDDED_GROUP, TOPICS)
            if consumer is not None:
                self._drain(log, consumer)
                return
            if self._is_last.is_set() and _is_empty(log):
                return
            time.sleep(_LOOK_S)

    def _drain(self, log: EmbeddedLog, consumer: EmbeddedConsumer) -> None:
        worker = Worker(log, consumer, self._catalog)
        try:
            while not self._is_cancelled.is_set():
                is_last = self._is_last.is_set()
                if worker.step(_LOOK_S) == 0 and is_last:
                    worker.flush()
                    if _is_empty(log):
                        return
        finally:
            worker.close()


def _is_empty(log: EmbeddedLog) -> bool:
    return not any(log.lag(logs.EMBEDDED_GROUP, TOPICS).values())
