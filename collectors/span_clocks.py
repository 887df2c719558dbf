"""What spans, metrics and logs in JSON say of the clock of their times: OTLP, Jaeger, Zipkin, Triton.

    {"resourceSpans": [{"resource": {"attributes": [{"key": "host.name", "value": {"stringValue": "web-1"}}]},
      "scopeSpans": [{"spans": [{"startTimeUnixNano": "1706678909209712000", "endTimeUnixNano": "...", ...}]}]}]}

OTLP is one document, or one per line as the Collector's file exporter writes them. OTLP counts ns, Jaeger and Zipkin
microseconds since 1970, by the wall clock of whoever made the span. Triton's own trace counts ns of
std::chrono::steady_clock, which is CLOCK_MONOTONIC on Linux. Sources: opentelemetry-proto, Jaeger's JSON API, Zipkin's
v2 API, Triton's docs/user_guide/trace.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from collectors.json_stream import JsonStream
from collectors.source import Source
from collectors.trace_clocks import to_ns
from pipeline.clock_domains import SourceClocks
from pipeline.text import shown

# what holds what in OTLP; the innermost lists are of records with times
_RESOURCES: Final = ("resourceSpans", "resourceMetrics", "resourceLogs")
_SCOPES: Final = (
    "scopeSpans",
    "instrumentationLibrarySpans",  # before OTLP 0.15
    "scopeMetrics",
    "instrumentationLibraryMetrics",
    "scopeLogs",
    "instrumentationLibraryLogs",
)
_RECORDS: Final = ("spans", "metrics", "logRecords")
_TIME_KEYS: Final = ("startTimeUnixNano", "endTimeUnixNano", "timeUnixNano", "observedTimeUnixNano")
_MOST_DIGITS = 19


class _Found:
    """The first and last of the times, and the hosts that were named."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.last: int | None = None
        self.hosts: set[str] = set()
        self.records = self.unusable = 0

    def add(self, times: list[int | None]) -> None:
        """Take the times of one record, ns."""
        self.records += 1
        known = [one for one in times if one is not None and one > 0]
        if not known:
            self.unusable += 1
            return
        self.first = min([*known, *([] if self.first is None else [self.first])])
        self.last = max([*known, *([] if self.last is None else [self.last])])

    def clocks(self, name: str, clock: str, host: str, boot_id: str) -> SourceClocks:
        """Return what was found."""
        notes = [] if self.records else ["it holds no records that are understood"]
        if self.unusable:
            notes.append(f"{self.unusable} of {self.records} records have no usable time")
        if len(self.hosts) > 1 and not host:
            listed = ", ".join(sorted(self.hosts)[:5])
            notes.append(f"it holds times of {len(self.hosts)} hosts, whose wall clocks may differ: {listed}")
        host = host or (next(iter(self.hosts)) if len(self.hosts) == 1 else "")
        clock = clock if self.first is not None else ""
        return SourceClocks(
            name,
            clock,
            host,
            boot_id,
            first=self.first,
            last=self.last,
            notes=tuple(notes),
            is_assumed=clock == "monotonic",
        )


def of_otlp(source: Source, host: str = "", boot_id: str = "") -> SourceClocks:
    """Return what OTLP JSON says: wall-clock times of the resource's `host.name`."""
    json, found = JsonStream(source), _Found()
    while json.peek() == "{":
        for key in json.members():
            if key in _RESOURCES:
                for _ in _objects(json):
                    _otlp_resource(json, found)
    json.end()
    return found.clocks(source.name, "realtime", host, boot_id)


def of_jaeger(source: Source, host: str = "", boot_id: str = "") -> SourceClocks:
    """Return what Jaeger's JSON says: of its API, one trace, a batch, or a list of spans."""
    json, found = JsonStream(source), _Found()
    if json.peek() == "[":
        for _ in json.elements():
            _jaeger_span(json.value(), found)
    elif json.peek() == "{":
        _jaeger_trace(json, found)
    return found.clocks(source.name, "realtime", host, boot_id)


def of_zipkin(source: Source, host: str = "", boot_id: str = "") -> SourceClocks:
    """Return what Zipkin's JSON of version 2 says."""
    json, found = JsonStream(source), _Found()
    if json.peek() == "[":
        for _ in json.elements():
            span = json.value()
            if isinstance(span, dict):
                found.add(_us_times(span.get("timestamp"), span.get("duration")))
    return found.clocks(source.name, "realtime", host, boot_id)


def of_triton(source: Source, host: str = "", boot_id: str = "") -> SourceClocks:
    """Return what the trace of a Triton server says: ns of its host's monotonic clock."""
    json, found = JsonStream(source), _Found()
    if json.peek() == "[":
        for _ in json.elements():
            entry = json.value()
            stamps = entry.get("timestamps") if isinstance(entry, dict) else None
            for stamp in stamps if isinstance(stamps, list) else ():
                found.add([to_ns(stamp.get("ns"), 1) if isinstance(stamp, dict) else None])
    return found.clocks(source.name, "monotonic", host, boot_id)


def _objects(json: JsonStream) -> Iterator[None]:
    """Go through the objects of the list that comes next; anything else in it is passed over."""
    if json.peek() == "[":
        for _ in json.elements():
            if json.peek() == "{":
                yield


def _otlp_resource(json: JsonStream, found: _Found) -> None:
    for key in json.members():
        if key == "resource":
            found.hosts |= _host_names(json.value())
        elif key in _SCOPES:
            for _ in _objects(json):
                for inner in json.members():
                    if inner in _RECORDS:
                        for _ in _objects(json):
                            _otlp_record(json.value(), inner, found)


def _otlp_record(record: dict[str, Any], kind: str, found: _Found) -> None:
    if kind != "metrics":
        found.add([_unix_ns(record.get(key)) for key in _TIME_KEYS])
        return
    # gauge, sum, histogram, ...: each has its points
    for data in record.values():
        points = data.get("dataPoints") if isinstance(data, dict) else None
        for point in points if isinstance(points, list) else ():
            if isinstance(point, dict):
                # the start of a counter may be days ago: the point is when it was read
                found.add([_unix_ns(point.get("timeUnixNano"))])


def _host_names(resource: Any) -> set[str]:
    attributes = resource.get("attributes") if isinstance(resource, dict) else None
    return {
        shown(text)[:255]
        for one in (attributes if isinstance(attributes, list) else ())
        if isinstance(one, dict) and one.get("key") == "host.name" and isinstance(one.get("value"), dict)
        if isinstance(text := one["value"].get("stringValue"), str) and text
    }


def _unix_ns(value: Any) -> int | None:
    """Return a time of OTLP: 64-bit numbers are texts in its JSON, and plain numbers in some writers'."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS:
        value = int(value)
    return to_ns(value, 1) if type(value) is int else None


def _jaeger_trace(json: JsonStream, found: _Found, *, has_data: bool = True) -> None:
    for key in json.members():
        if key == "data" and has_data:
            for _ in _objects(json):
                _jaeger_trace(json, found, has_data=False)
        elif key == "spans":
            for _ in _objects(json):
                _jaeger_span(json.value(), found)
        elif key == "processes":
            processes = json.value()
            for process in processes.values() if isinstance(processes, dict) else ():
                found.hosts |= _hosts_of_process(process)
        elif key == "process":
            found.hosts |= _hosts_of_process(json.value())


def _jaeger_span(span: Any, found: _Found) -> None:
    if isinstance(span, dict):
        found.add(_us_times(span.get("startTime"), span.get("duration")))


def _hosts_of_process(process: Any) -> set[str]:
    tags = process.get("tags") if isinstance(process, dict) else None
    return {
        shown(text)[:255]
        for tag in (tags if isinstance(tags, list) else ())
        if isinstance(tag, dict) and tag.get("key") in ("hostname", "host.name")
        if isinstance(text := tag.get("value", tag.get("vStr")), str) and text
    }


def _us_times(start: Any, duration: Any) -> list[int | None]:
    start_ns = to_ns(start, 1000)
    length_ns = to_ns(duration, 1000, is_up=True)
    if start_ns is None or start_ns <= 0:
        return [None]
    return [start_ns, start_ns + max(length_ns or 0, 0)]
