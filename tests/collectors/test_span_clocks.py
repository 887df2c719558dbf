"""What OTLP, Jaeger, Zipkin and Triton JSON say of their clock: golden values, one per format and shape."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from collectors import source_clocks, span_clocks
from collectors.source import Source
from pipeline.clock_domains import SourceClocks
from pipeline.errors import FlamesliceError, InputError

START_NS = 1_706_678_909_209_712_123


def source(*documents: Any) -> Source:
    text = "\n".join(json.dumps(one) for one in documents)
    return Source("s.json", io.BytesIO(text.encode()))


def of_otlp(*documents: Any) -> SourceClocks:
    return span_clocks.of_otlp(source(*documents))


def spans(*times: tuple[Any, Any], host: Any = "web-1", scope: str = "scopeSpans") -> dict[str, Any]:
    attributes = [{"key": "service.name", "value": {"stringValue": "a"}}]
    if host is not None:
        attributes.append({"key": "host.name", "value": {"stringValue": host}})
    records = [{"name": "f", "startTimeUnixNano": start, "endTimeUnixNano": end} for start, end in times]
    inner = [{"scope": {"name": "lib"}, "spans": records}]
    return {"resourceSpans": [{"resource": {"attributes": attributes}, scope: inner}]}


def test_spans_are_wall_clock_times_of_their_host() -> None:
    found = of_otlp(spans((str(START_NS), str(START_NS + 123)), (START_NS - 7, START_NS)))
    assert found == SourceClocks("s.json", "realtime", "web-1", first=START_NS - 7, last=START_NS + 123)


def test_one_document_per_line_is_one_source() -> None:
    first, second = (spans((START_NS + n, START_NS + n + 5)) for n in (10, 0))
    assert of_otlp(first, second) == SourceClocks(
        "s.json", "realtime", "web-1", first=START_NS, last=START_NS + 15
    )


def test_the_old_name_of_a_scope_is_read() -> None:
    assert of_otlp(spans((START_NS, START_NS), scope="instrumentationLibrarySpans")).first == START_NS


def test_spans_of_two_hosts_are_on_no_one_hosts_clock() -> None:
    found = of_otlp(spans((START_NS, START_NS)), spans((START_NS, START_NS), host="web-2"))
    assert found.host == ""
    assert found.notes == ("it holds times of 2 hosts, whose wall clocks may differ: web-1, web-2",)


def test_logs_and_metrics_have_times_too() -> None:
    logs = {
        "resourceLogs": [
            {"scopeLogs": [{"logRecords": [{"timeUnixNano": "0", "observedTimeUnixNano": "5"}]}]}
        ]
    }
    assert (of_otlp(logs).first, of_otlp(logs).last) == (5, 5)
    point = {"startTimeUnixNano": "1", "timeUnixNano": "9"}
    metrics = {
        "resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "n", "sum": {"dataPoints": [point]}}]}]}]
    }
    # a counter was read at 9; that it counts since 1 is no event
    assert (of_otlp(metrics).first, of_otlp(metrics).last) == (9, 9)


@pytest.mark.parametrize("odd", ["soon", "-5", "٣", None, True, 1.5, [1], "9" * 25, 10**30, 0, ""])
def test_a_time_that_is_none_is_counted(odd: Any) -> None:
    found = of_otlp(spans((odd, odd), (START_NS, START_NS)))
    assert (found.first, found.last) == (START_NS, START_NS)
    assert found.notes == ("1 of 2 records have no usable time",)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"resourceSpans": 5},
        {"resourceSpans": [5, None, []]},
        {"resourceSpans": [{"resource": 5, "scopeSpans": [5, {"spans": [5, []]}]}]},
        {"resourceSpans": [{"resource": {"attributes": [5, {"key": "host.name", "value": 5}]}}]},
        {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"sum": {"dataPoints": [5]}}, {"gauge": 5}]}]}]},
    ],
)
def test_odd_shapes_hold_no_times(document: Any) -> None:
    found = of_otlp(document)
    assert (found.clock, found.first, found.last, len(found.notes)) == ("", None, None, 1)


def test_a_cut_document_is_one_line() -> None:
    text = json.dumps(spans((START_NS, START_NS)))[:-20]
    with pytest.raises(InputError, match="the JSON ends in the middle"):
        span_clocks.of_otlp(Source("s.json", io.BytesIO(text.encode())))


def test_documents_within_documents_end() -> None:
    text = '{"resourceSpans": [' * 100_000
    with pytest.raises(FlamesliceError):
        span_clocks.of_otlp(Source("s.json", io.BytesIO(text.encode())))


SPAN = {"traceID": "1", "operationName": "f", "startTime": 1_706_678_909_209_712, "duration": 123}
JAEGER = SourceClocks(
    "s.json", "realtime", "web-1", first=1_706_678_909_209_712_000, last=1_706_678_909_209_835_000
)


@pytest.mark.parametrize(
    "document",
    [
        {"data": [{"spans": [SPAN], "processes": {"p1": {"tags": [{"key": "hostname", "value": "web-1"}]}}}]},
        {
            "traceID": "1",
            "processes": {"p1": {"tags": [{"key": "host.name", "value": "web-1"}]}},
            "spans": [SPAN],
        },
        {"process": {"serviceName": "a", "tags": [{"key": "hostname", "vStr": "web-1"}]}, "spans": [SPAN]},
    ],
)
def test_jaegers_microseconds_are_wall_clock_time(document: Any) -> None:
    assert span_clocks.of_jaeger(source(document)) == JAEGER


def test_jaegers_spans_in_a_list() -> None:
    found = span_clocks.of_jaeger(
        source([SPAN, {"traceID": "2", "startTime": "x", "duration": "invalid"}, 5])
    )
    assert (found.first, found.last) == (JAEGER.first, JAEGER.last)
    assert found.notes == ("1 of 2 records have no usable time",)


def test_zipkins_microseconds_are_wall_clock_time() -> None:
    found = span_clocks.of_zipkin(
        source(
            [{"timestamp": 1_541_405_397_200_023, "duration": 26}, {"timestamp": 1_541_405_397_200_020}, {}]
        )
    )
    assert (found.clock, found.first, found.last) == (
        "realtime",
        1_541_405_397_200_020_000,
        1_541_405_397_200_049_000,
    )
    assert found.notes == ("1 of 3 records have no usable time",)


def test_tritons_times_are_taken_to_be_monotonic() -> None:
    found = span_clocks.of_triton(
        source([{"id": 1, "timestamps": [{"name": "A", "ns": 700}, {"name": "B", "ns": 500}]}, {"id": 2}, 5])
    )
    assert found == SourceClocks("s.json", "monotonic", first=500, last=700, is_assumed=True)


@pytest.mark.parametrize(
    ("file", "clock", "host", "first", "last"),
    [
        ("jaeger-ui/otlp2jaeger-in.json", "realtime", "", 1706678909209712000, 1706678909209835000),
        ("jaeger-ui/otlp2jaeger-multi-in.jsonl", "realtime", "", 1711138246940000000, 1711138247116321958),
        (
            "jaeger-ui/otlp2jaeger-multi-in-combined.json",
            "realtime",
            "",
            1711138246940000000,
            1711138247116321958,
        ),
        ("jaeger-ui/otlp2jaeger-out.json", "realtime", "", 1706678909209712000, 1706678909209835000),
        ("jaeger/thrift_batch_01.json", "realtime", "api246-sjc1", 1485467191639875000, 1485467191662813000),
        ("otlp-proto/trace.json", "realtime", "", 1544712660000000000, 1544712661000000000),
        ("otlp-proto/logs.json", "realtime", "", 1544712660300000000, 1544712660300000000),
        ("otlp-proto/metrics.json", "realtime", "", 1544712660300000000, 1544712660300000000),
        ("vllm/vllm-0.29.0-otel.json", "realtime", "", 1790341371953418752, 1790341372208341144),
        ("zipkin/skew.json", "realtime", "", 1470150004008761000, 1470150004170479000),
        ("triton/trace-timestamps.json", "monotonic", "", 2356425054587444, 2356425057712991),
    ],
)
def test_real_files(corpus: Path, file: str, clock: str, host: str, first: int, last: int) -> None:
    found = source_clocks.of(corpus / "otel" / file)
    assert (found.clock, found.host, found.first, found.last) == (clock, host, first, last)
