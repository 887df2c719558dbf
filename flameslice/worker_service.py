"""The worker as a service: signals, what it says, metrics and spans around `pipeline.worker`."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from flameslice import logs
from pipeline.errors import FlamesliceError, WorkError
from pipeline.log.protocol import Record
from pipeline.worker import TOPICS, Observer, Worker

_STEP_S = 1.0
_LAG_EVERY_S = 5.0


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

    def dead(self, reason: str) -> None:
        for one in self._observers:
            one.dead(reason)

    def committed(self, seconds: float) -> None:
        for one in self._observers:
            one.committed(seconds)


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
    catalog = logs.catalog_of(data)
    log = logs.open_log(log_url, log_config, catalog)
    metrics = Metrics()
    if metrics_port:
        metrics.serve(metrics_port)
    spans = worker_spans.start()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    consumer = log.consume(group or logs.group_of(log_url, catalog), TOPICS)
    catalog.place.sweep("captures")
    worker = Worker(log, consumer, catalog, observer=Observers([metrics, *spans]))
    speaker.say("working", log=log_url or "embedded", data=catalog.place.url)
    looked_s = 0.0

    def is_done() -> bool:
        nonlocal looked_s
        now_s = time.monotonic()
        if now_s - looked_s < (0.2 if until_empty else _LAG_EVERY_S):
            return stop.is_set()
        looked_s = now_s
        try:
            lag = consumer.lag()
        except WorkError:
            return stop.is_set()  # the worker's next step meets it too, and says so
        metrics.set_lag(lag)
        # no partition yet: the group is still being formed
        is_empty = bool(lag) and not any(lag.values())
        return stop.is_set() or (until_empty and is_empty)

    def on_problem(error: FlamesliceError, delay_s: float) -> None:
        speaker.say(str(error), "error", retry_in_s=delay_s)

    try:
        worker.run(is_done, on_problem=on_problem)
    finally:
        worker.close()
        log.close()
        for one in spans:
            one.close()
    speaker.say("stopped")
    return 0
