"""The worker's metrics for Prometheus; docs/operations.md lists them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    start_http_server,
)

from pipeline.errors import WorkError
from pipeline.log.protocol import Partition, Record
from pipeline.losses import REASONS
from pipeline.store.states import StoredCapture

_HOST = "127.0.0.1"
_DETAILS = re.compile(r"[:'\"\d]")
_MOST_KINDS = 50  # of dead letters; workers give about twenty reasons
_COMMIT_BUCKETS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 15)


class Metrics:
    """Counts what a worker does."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._kinds: set[str] = set()
        disable_created_metrics()  # type: ignore[no-untyped-call] # when a series began is of no use here, and doubles the page
        self._messages = self._counter("messages_read", "Messages read from the log", "topic")
        self._read_bytes = self._counter("read_bytes", "Bytes of messages read from the log", "topic")
        self._rows = self._counter("rows_stored", "Rows published in the store", "table")
        self._stored_bytes = self._counter("stored_bytes", "Bytes of rows published, before Parquet", "table")
        self._dead = self._counter("dead_letters", "Messages that no worker could take in", "reason")
        self._dead.labels("other")  # a series from the start, so that a rate sees the first one
        self._dropped = Counter(
            "flameslice_worker_messages_of_deleted_captures",
            "Messages passed over, for their capture was deleted",
            registry=self.registry,
        )
        self._lost = self._counter("losses", "Rows that collectors lost, as their losses say", "reason")
        self._lag = Gauge(
            "flameslice_worker_lag_messages",
            "Messages that were not read yet",
            ("topic", "partition"),
            registry=self.registry,
        )
        self._commit = Histogram(
            "flameslice_worker_commit_seconds",
            "How long a commit took",
            registry=self.registry,
            buckets=_COMMIT_BUCKETS_S,
        )

    def _counter(self, name: str, text: str, label: str) -> Counter:
        return Counter(f"flameslice_worker_{name}", text, (label,), registry=self.registry)

    def serve(self, port: int) -> None:
        """Answer GET /metrics on a port of this machine alone."""
        try:
            start_http_server(port, addr=_HOST, registry=self.registry)
        except OSError as error:
            problem = f"cannot serve metrics on {_HOST}:{port}: {error.strerror}"
            raise WorkError(problem, "give another --metrics-port") from None

    def set_lag(self, lag: Mapping[Partition, int]) -> None:
        """Note how much is left of each partition; those of other workers are theirs to tell."""
        self._lag.clear()
        for partition, count in lag.items():
            self._lag.labels(partition.topic, str(partition.number)).set(count)

    def read(self, records: Sequence[Record]) -> None:
        for record in records:
            self._messages.labels(record.partition.topic).inc()
            self._read_bytes.labels(record.partition.topic).inc(record.message.size_bytes)

    def stored(self, capture: str, table: str, rows: int, size_bytes: int, seconds: float) -> None:
        self._rows.labels(table).inc(rows)
        self._stored_bytes.labels(table).inc(size_bytes if rows else 0)

    def lost(self, reason: str, count: int) -> None:
        self._lost.labels(reason if reason in REASONS else "other").inc(count)

    def dead(self, reason: str, record: Record) -> None:
        # without what it quotes and counts: there is no end of these, and each would be a series
        kind = _DETAILS.split(reason, maxsplit=1)[0].strip()
        if kind not in self._kinds and len(self._kinds) < _MOST_KINDS:
            self._kinds.add(kind)
        self._dead.labels(kind if kind in self._kinds else "other").inc()

    def dropped(self, capture: str, messages: int) -> None:
        self._dropped.inc(messages)

    def changed(self, capture: StoredCapture) -> None:
        pass

    def committed(self, seconds: float) -> None:
        self._commit.observe(seconds)
