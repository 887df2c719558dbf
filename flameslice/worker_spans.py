"""The worker's own spans, sent by OTLP where OTEL_EXPORTER_OTLP_ENDPOINT says where to.

The other OTEL_ variables hold as the SDK documents them (OTEL_SERVICE_NAME, OTEL_EXPORTER_OTLP_HEADERS, ...).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from pipeline.errors import UsageError
from pipeline.log.protocol import Record
from pipeline.worker import Unwatched

_LAST_SPANS_S = 3.0  # our choice: a service manager kills after 10 s and more


def start() -> list[Spans]:
    """Return what makes spans, or nothing where none are asked for."""
    if not os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return []
    return [Spans()]


class Spans(Unwatched):
    """Makes a span of each read, publication and commit."""

    def __init__(self) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        name = os.environ.get("OTEL_SERVICE_NAME", "flameslice-worker")
        self._provider = TracerProvider(resource=Resource.create({"service.name": name}))
        self._provider.add_span_processor(BatchSpanProcessor(_exporter()))
        self._tracer = self._provider.get_tracer("flameslice.worker")

    def _span(self, name: str, seconds: float, **attributes: str | int) -> None:
        end_ns = time.time_ns()
        span = self._tracer.start_span(
            name,
            start_time=end_ns - int(seconds * 1e9),
            attributes={f"flameslice.{k}": v for k, v in attributes.items()},
        )
        span.end(end_ns)

    def read(self, records: Sequence[Record]) -> None:
        self._span("read", 0.0, messages=len(records), bytes=sum(one.message.size_bytes for one in records))

    def stored(self, capture: str, table: str, rows: int, size_bytes: int, seconds: float) -> None:
        self._span("publish", seconds, capture=capture, table=table, rows=rows, bytes=size_bytes)

    def dead(self, reason: str, record: Record) -> None:
        self._span("dead letter", 0.0, reason=reason)

    def committed(self, seconds: float) -> None:
        self._span("commit", seconds)

    def close(self) -> None:
        """Send what is left, but do not wait long for an endpoint that does not answer."""
        last = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        last.start()
        last.join(_LAST_SPANS_S)


def _exporter() -> Any:
    """Return the exporter that OTEL_EXPORTER_OTLP_PROTOCOL names: http/protobuf, or grpc."""
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Grpc

        return Grpc()
    if protocol == "http/protobuf":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Http

        return Http()
    raise UsageError(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol} is not known", "set http/protobuf or grpc")
