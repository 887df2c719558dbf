"""The worker as a service: signals, what it says, metrics and spans around `pipeline.worker`."""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from flameslice import logs
from pipeline.errors import FlamesliceError, WorkError, one_line
from pipeline.log.embedded import EmbeddedLog
from pipeline.log.protocol import Consumer, Log, Record
from pipeline.store.states import StoredCapture
from pipeline.text import shown
from pipeline.worker import TOPICS, Observer, OnProblem, Unwatched, Worker, patiently

if TYPE_CHECKING:
    from flameslice.worker_metrics import Metrics

_MOST_TOLD = 10_000  # captures of which is remembered what was said
_LAG_EVERY_S = 5.0
_LAG_EVERY_S_UNTIL_EMPTY = 0.5


class Speaker:
    """Says things on standard error, a line each: for people, or as JSON for collectors of logs."""

    def __init__(self, log_format: str | None) -> None:
        self._as_json = log_format == "json" or (log_format is None and not sys.stderr.isatty())

    def say(self, text: str, severity: str = "info", **fields: Any) -> None:
        """Say one thing."""
        if self._as_json:
            moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            line = json.dumps({"time": moment, "severity": severity, "message": text, **fields})
        else:
            line = " ".join([text, *(f"{key}={value}" for key, value in fields.items())])
        print(line, file=sys.stderr, flush=True)


class _Overheard(logging.Handler):
    """Says what libraries log (Kafka's client, the exporter of spans), a line each and without tracebacks."""

    def __init__(self, speaker: Speaker) -> None:
        super().__init__(logging.WARNING)
        self._speaker = speaker

    def emit(self, record: logging.LogRecord) -> None:
        self._speaker.say(one_line(record.getMessage(), 600), record.levelname.lower(), logger=record.name)


class Observers:
    """Several observers as one."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def read(self, records: Sequence[Record]) -> None:
        for one in self._observers:
            one.read(records)

    def stored(self, capture: str, table: str, rows: int, size_bytes: int, seconds: float) -> None:
        for one in self._observers:
            one.stored(capture, table, rows, size_bytes, seconds)

    def lost(self, reason: str, count: int) -> None:
        for one in self._observers:
            one.lost(reason, count)

    def dead(self, reason: str, record: Record) -> None:
        for one in self._observers:
            one.dead(reason, record)

    def dropped(self, capture: str, messages: int) -> None:
        for one in self._observers:
            one.dropped(capture, messages)

    def changed(self, capture: StoredCapture) -> None:
        for one in self._observers:
            one.changed(capture)

    def committed(self, seconds: float) -> None:
        for one in self._observers:
            one.committed(seconds)


class Teller(Unwatched):
    """Says what happens to captures: each end once, each dead letter."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        self._told: dict[str, str] = {}  # capture -> what was said last
        self._dropped: set[str] = set()

    def dead(self, reason: str, record: Record) -> None:
        """Say which message it was."""
        self._speaker.say(
            f"dead letter: {one_line(reason)}",
            "warning",
            topic=record.partition.topic,
            partition=record.partition.number,
            offset=record.offset,
        )

    def dropped(self, capture: str, messages: int) -> None:
        """Say it once for a capture."""
        if capture not in self._dropped:
            self._dropped.add(capture)
            self._speaker.say(f"{capture} was deleted: its messages are passed over", "warning")

    def changed(self, capture: StoredCapture) -> None:
        """Say that a capture is complete, or will not be."""
        if capture.status == "receiving" or self._told.get(capture.id) == capture.status:
            return
        if len(self._told) >= _MOST_TOLD:
            self._told.clear()
        self._told[capture.id] = capture.status
        self._speaker.say(
            f"{capture.status}: {capture.id} ({one_line(shown(capture.name), 60)})",
            rows=capture.rows,
            lost_rows=capture.lost_rows,
        )


def run(
    *,
    data: str | None,
    log_url: str | None,
    log_config: str | None,
    group: str | None,
    until_empty: bool,
    metrics_port: int,
    log_format: str | None,
) -> int:
    """Work until a signal comes, or until the log is empty; return the exit status."""
    from flameslice import worker_spans
    from flameslice.worker_metrics import Metrics

    speaker = Speaker(log_format)

    def on_problem(error: FlamesliceError, delay_s: float) -> None:
        speaker.say(str(error), "error", retry_in_s=delay_s)

    with contextlib.ExitStack() as stack:
        stack.enter_context(_overheard(speaker))
        catalog = logs.catalog_of(data)
        log = logs.open_log(log_url, log_config, catalog)
        stack.callback(log.close)
        metrics = Metrics()
        if metrics_port:
            metrics.serve(metrics_port)
        spans = worker_spans.start()
        for one in spans:
            stack.callback(one.close)
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        name = group or logs.group_of(log_url, catalog)
        consumer = _joined(log, name, stop, on_problem)
        if consumer is None:
            return 0
        catalog.place.sweep(".")
        worker = Worker(log, consumer, catalog, observer=Observers([metrics, Teller(speaker), *spans]))
        stack.callback(worker.close)
        speaker.say("working", log=log_url or "embedded", data=catalog.place.url)
        worker.run(_end(log, name, consumer, metrics, stop, until_empty), on_problem=on_problem)
    speaker.say("stopped")
    return 0


def _joined(log: Log, group: str, stop: threading.Event, on_problem: OnProblem) -> Consumer | None:
    """Join the group; a cluster that is not ready is waited for. None: told to stop meanwhile."""
    if isinstance(log, EmbeddedLog):
        return log.consume(group, TOPICS)  # it is ready, or another worker's
    return patiently(lambda: log.consume(group, TOPICS), stop.is_set, on_problem)


@contextlib.contextmanager
def _overheard(speaker: Speaker) -> Iterator[None]:
    """Say meanwhile what libraries log."""
    handler = _Overheard(speaker)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


def _end(
    log: Log, group: str, consumer: Consumer, metrics: Metrics, stop: threading.Event, until_empty: bool
) -> Callable[[], bool]:
    """Return what says whether the worker is to end; it tells the metrics how much is left, too."""
    looked_s = -_LAG_EVERY_S

    def is_reached() -> bool:
        nonlocal looked_s
        now_s = time.monotonic()
        if now_s - looked_s < (_LAG_EVERY_S_UNTIL_EMPTY if until_empty else _LAG_EVERY_S):
            return stop.is_set()
        looked_s = now_s
        try:
            metrics.set_lag(consumer.lag())
            # of the whole group: a partition may be another member's, and that one gone
            is_empty = until_empty and not any(log.lag(group, TOPICS).values())
        except WorkError:
            return stop.is_set()  # the worker's next step meets it too, and says so
        return stop.is_set() or is_empty

    return is_reached
