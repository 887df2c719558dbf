"""`flameslice worker` as a service, on both logs: its metrics, spans, log lines, signals and refusals."""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import polars as pl
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from prometheus_client.parser import text_string_to_metric_families

from flameslice import ingest
from flameslice.gathering import gathered
from flameslice.worker_metrics import Metrics
from pipeline import control, schema
from pipeline.control import CaptureFact
from pipeline.log.protocol import CAPTURES, Message, Partition, Record
from pipeline.log.wire import Splitter
from pipeline.worker import TOPICS

ROOT = Path(__file__).resolve().parents[2]
Scrape = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Service:
    """A worker that runs until it is told to stop."""

    def __init__(self, kept: Any, *options: str, env: dict[str, str] | None = None) -> None:
        log = ["--log", kept.log] if kept.log else []
        command = [sys.executable, "-m", "flameslice", "worker", "--data", str(kept.data), *log, *options]
        own = {
            key: value for key, value in os.environ.items() if not key.startswith(("FLAMESLICE_", "OTEL_"))
        }
        own |= {"PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(kept.data.parent)}
        self.process = subprocess.Popen(
            command, env=own | (env or {}), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        wait(lambda: any("working" in line for line in self.lines), self)

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(iter(self.process.stderr.readline, ""))

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal; return the exit status."""
        self.process.send_signal(number)
        self.process.wait(60)
        self._reader.join(10)
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(10)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def wait(is_so: Callable[[], bool], service: Service | None = None) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        assert service is None or service.process.poll() is None, service.lines
        time.sleep(0.05)


@pytest.fixture
def service(kept_anywhere: Any) -> Iterator[Callable[..., Service]]:
    """Starts workers on the store; those that still run in the end are killed."""
    started: list[Service] = []

    def start(*options: str, env: dict[str, str] | None = None) -> Service:
        started.append(Service(kept_anywhere, *options, env=env))
        return started[-1]

    yield start
    for one in started:
        one.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def scrape(port: int) -> Scrape:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(found: Scrape, name: str, **labels: str) -> float:
    """Return a metric's value, 0 where it was never counted."""
    return found.get((f"flameslice_worker_{name}", tuple(sorted(labels.items()))), 0.0)


def poison(topic: str) -> Message:
    headers = (("capture", b"c"), ("source", b"s"), ("table", topic[11:].encode()), ("sequence", b"0"))
    return Message(topic, b"", b"x", headers)


# ------------------------------------------------------------------ metrics


def test_metrics_count_what_the_worker_did(
    kept_anywhere: Any, service: Any, demo: Path, tmp_path: Path
) -> None:
    kept = kept_anywhere
    (tmp_path / "lossy").write_bytes(b"a;f 1\nno number\nno number\n" + b"a;f 1\n" * 50)
    port = free_port()
    one = service("--metrics-port", str(port))
    kept.ingest(demo)
    kept.ingest("lossy")
    kept.append([poison("flameslice.frames"), poison("flameslice.perf_events")])
    wait(lambda: of(scrape(port), "dead_letters_total", reason="schema version") == 2, one)
    wait(lambda: of(scrape(port), "losses_total", reason="unreadable_line") == 2, one)
    found = scrape(port)
    tables = {one["name"]: one["sources"][0]["table_rows"] for one in kept.listed() if one["name"] != "c"}
    assert tables.keys() == {demo.name, "lossy"}
    for table in ("perf_events", "frames", "stacks", "stack_weights", "losses"):
        rows = sum(counts.get(table, 0) for counts in tables.values())
        assert rows > 0
        assert of(found, "rows_stored_total", table=table) == rows
        assert of(found, "stored_bytes_total", table=table) > rows
        assert of(found, "messages_read_total", topic=f"flameslice.{table}") >= 1
        assert of(found, "read_bytes_total", topic=f"flameslice.{table}") > 100
    assert of(found, "messages_read_total", topic=CAPTURES) == 4
    commits = of(found, "commit_seconds_count")
    assert commits >= 1
    assert of(found, "commit_seconds_bucket", le="+Inf") == commits
    assert of(found, "commit_seconds_sum") > 0


def test_the_same_again_stores_no_rows(kept_anywhere: Any, service: Any, tmp_path: Path) -> None:
    kept = kept_anywhere
    (tmp_path / "f").write_bytes(b"a;f 1\n")
    kept.ingest("f")
    kept.work()
    port = free_port()
    one = service("--metrics-port", str(port))
    kept.ingest("f")
    wait(lambda: of(scrape(port), "messages_read_total", topic=CAPTURES) >= 2, one)
    wait(lambda: of(scrape(port), "commit_seconds_count") >= 1, one)
    found = scrape(port)
    assert of(found, "messages_read_total", topic="flameslice.stack_weights") == 1
    assert of(found, "rows_stored_total", table="stack_weights") == 0
    assert of(found, "stored_bytes_total", table="stack_weights") == 0


def test_lag_is_told_for_every_partition(kept_anywhere: Any, service: Any) -> None:
    """While the worker is held up messages wait; once it goes on none do."""
    kept = kept_anywhere
    port = free_port()
    one = service("--metrics-port", str(port))
    kept.append([control.to_message(CaptureFact("c", "c"))])

    def lags() -> dict[tuple[str, str], float]:
        return {
            (dict(labels)["topic"], dict(labels)["partition"]): value
            for (name, labels), value in scrape(port).items()
            if name == "flameslice_worker_lag_messages"
        }

    wait(lambda: (CAPTURES, "0") in lags(), one)
    # the embedded log has one partition of a topic, made or not
    partitions = topics_of(kept) if kept.log else {(topic, "0") for topic in TOPICS}
    assert len(partitions) == (4 * (len(TOPICS) - 1) + 1 if kept.log else len(TOPICS))
    wait(lambda: lags() == dict.fromkeys(partitions, 0.0), one)


def topics_of(kept: Any) -> set[tuple[str, str]]:
    log = kept.open_log()
    try:
        return {(topic, str(one.number)) for topic in TOPICS for one in log.partitions(topic)}
    finally:
        log.close()


def test_lag_is_what_was_not_read(kept: Any) -> None:
    """Of the embedded log, by hand: there it can be stopped between two reads."""
    metrics = Metrics()
    kept.append([control.to_message(CaptureFact("c", f"{number}")) for number in range(3)])
    log = kept.open_log()
    consumer = log.consume("worker", [CAPTURES])
    samples = []
    for _ in range(2):
        metrics.set_lag(consumer.lag())
        labels = {"topic": CAPTURES, "partition": "0"}
        samples.append(metrics.registry.get_sample_value("flameslice_worker_lag_messages", labels))
        consumer.poll(1.0)
    consumer.close()
    log.close()
    assert samples == [3.0, 0.0]


def test_metrics_are_this_machine_s_alone(kept: Any, tmp_path: Path) -> None:
    port = free_port()
    one = Service(kept, "--metrics-port", str(port))
    try:
        listening = [
            line.split()[1]
            for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
            if line.split()[3] == "0A"
        ]
        assert [at for at in listening if int(at[9:], 16) == port] == [f"0100007F:{port:04X}"]
        assert one.stop() == 0
    finally:
        one.close()


def test_a_port_in_use_is_one_line(kept_anywhere: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ran = kept_anywhere("worker --until-empty", "--metrics-port", str(port))
    assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (1, b"", 1)
    assert f"127.0.0.1:{port}" in ran.stderr
    assert "--metrics-port" in ran.stderr


def test_hostile_messages_make_few_series() -> None:
    """A label with words of a message would fill the memory of the worker and of Prometheus."""
    metrics = Metrics()
    record = Record(Partition("flameslice.frames", 0), 0, Message("flameslice.frames", b"", b""))
    for number in range(300):
        metrics.dead(f"schema version '{number}' is not known", record)
        metrics.dead(f"unknown table 'x{number}'", record)
        metrics.dead(f"unpacks to {number} bytes, more than 5", record)
        metrics.dead("words " + chr(0x4E00 + number), record)
        metrics.lost(f"reason-{number}", 1)
    found = {family.name: family.samples for family in metrics.registry.collect()}
    counts = {
        sample.labels["reason"]: sample.value
        for sample in found["flameslice_worker_dead_letters"]
        if sample.name.endswith("_total")
    }
    assert {counts[kind] for kind in ("schema version", "unknown table", "unpacks to")} == {300.0}
    assert len(counts) <= 51
    assert sum(counts.values()) == 1200
    lost = [sample for sample in found["flameslice_worker_losses"] if sample.name.endswith("_total")]
    assert [(sample.labels["reason"], sample.value) for sample in lost] == [("other", 300.0)]


# ------------------------------------------------------------------ spans


class Receiver(http.server.ThreadingHTTPServer):
    """Takes spans by OTLP/HTTP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taking)
        self.spans: list[Span] = []
        self.services: set[str] = set()
        self.headers: list[str | None] = []

    def take(self, request: Any) -> None:
        for resource in request.resource_spans:
            self.services |= {
                one.value.string_value for one in resource.resource.attributes if one.key == "service.name"
            }
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]


class Taking(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert isinstance(self.server, Receiver)
        if self.path == "/v1/traces":
            self.server.take(trace_service_pb2.ExportTraceServiceRequest.FromString(body))
            self.server.headers.append(self.headers["authorization"])
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def attributes(span: Span) -> dict[str, Any]:
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


def check_spans(spans: list[Span], capture: str) -> None:
    """Fail unless these are the spans of a worker that stored a capture of folded stacks and buried a letter."""
    assert {span.name for span in spans} == {"read", "publish", "commit", "dead letter"}
    for span in spans:
        assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
    published = [attributes(span) for span in spans if span.name == "publish"]
    rows = {one["flameslice.table"]: one["flameslice.rows"] for one in published}
    assert rows == {"frames": 2, "stacks": 2, "stack_weights": 1}
    assert {one["flameslice.capture"] for one in published} == {capture}
    read = [attributes(span)["flameslice.messages"] for span in spans if span.name == "read"]
    assert sum(read) == 6  # begin, end, three tables, poison
    (dead,) = [attributes(span) for span in spans if span.name == "dead letter"]
    assert dead["flameslice.reason"] == "schema version '' is not known"


def test_spans_go_where_the_environment_says(kept_anywhere: Any, receiver: Receiver, tmp_path: Path) -> None:
    kept = kept_anywhere
    capture = appended(kept, tmp_path)
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver.server_port}",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20x",
        "OTEL_SERVICE_NAME": "worker-of-test",
    }
    ran = kept("worker --until-empty", env=env)
    assert ran.status == 0, ran.stderr
    check_spans(receiver.spans, capture)
    assert receiver.services == {"worker-of-test"}
    assert set(receiver.headers) == {"Bearer x"}


def appended(kept: Any, tmp_path: Path) -> str:
    """Put a capture and a poison into the log, without storing them; return the capture's id."""
    (tmp_path / "f").write_bytes(b"a;f 1\n")
    log = kept.open_log()
    try:
        with gathered([str(tmp_path / "f")], name="f", labels={}) as (inputs,):
            ingest.run(inputs, log, now_realtime_ns=1)
            kept.append([poison("flameslice.frames")])
            return inputs.manifest.id
    finally:
        log.close()


def test_spans_by_grpc(kept: Any, tmp_path: Path) -> None:
    spans: list[Span] = []

    class Servicer(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            spans.extend(
                span
                for resource in request.resource_spans
                for scope in resource.scope_spans
                for span in scope.spans
            )
            return trace_service_pb2.ExportTraceServiceResponse()

    server = grpc.server(futures.ThreadPoolExecutor(1))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Servicer(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    capture = appended(kept, tmp_path)
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    ran = kept("worker --until-empty", env=env)
    server.stop(None).wait()
    assert ran.status == 0, ran.stderr
    check_spans(spans, capture)


def test_without_an_endpoint_there_are_no_spans(kept: Any, receiver: Receiver, tmp_path: Path) -> None:
    appended(kept, tmp_path)
    port = str(receiver.server_port)
    # even where the usual port is open: only the variable asks for spans
    ran = kept("worker --until-empty", env={"OTEL_EXPORTER_OTLP_HEADERS": "a=b", "PORT": port})
    assert ran.status == 0
    assert receiver.spans == []
    code = "import sys; from flameslice import worker_spans as w; print(w.start(), 'opentelemetry' in sys.modules)"
    env = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    env["PYTHONPATH"] = str(ROOT)
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert loaded.stdout == "[] False\n"


@pytest.mark.parametrize("answers", [False, True])
def test_an_endpoint_that_is_down_or_hangs_does_not_hold_up_the_worker(
    kept: Any, tmp_path: Path, answers: bool
) -> None:
    capture = appended(kept, tmp_path)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if answers:
            listener.listen(50)  # takes connections and says nothing, ever
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{listener.getsockname()[1]}"}
        ran = kept("worker --until-empty", env=env, timeout=60)
    assert ran.status == 0
    assert kept.shown(capture)["status"] == "complete"
    for line in ran.stderr.splitlines():
        assert json.loads(line)["severity"] in ("info", "warning", "error")


def test_a_protocol_that_there_is_not_is_wrong_usage(kept: Any) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_PROTOCOL": "pigeon"}
    ran = kept("worker --until-empty", env=env)
    assert (ran.status, ran.stderr.count("\n")) == (2, 1)
    assert "pigeon" in ran.stderr


# ------------------------------------------------------------------ what it says, and how it ends


def test_log_lines_are_json_or_text(kept: Any) -> None:
    for options, is_json in ((["--log-format", "json"], True), (["--log-format", "text"], False), ([], True)):
        ran = kept("worker --until-empty", *options)
        assert (ran.status, ran.stdout) == (0, b"")
        lines = ran.stderr.splitlines()
        assert len(lines) == 2
        if is_json:
            bodies = [json.loads(line) for line in lines]
            assert [body["message"] for body in bodies] == ["working", "stopped"]
            assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", body["time"]) for body in bodies)
            assert (bodies[0]["severity"], bodies[0]["data"]) == ("info", str(kept.data))
        else:
            assert lines == [f"working log=embedded data={kept.data}", "stopped"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_after_it_stored_what_it_holds(
    kept_anywhere: Any, service: Any, number: signal.Signals
) -> None:
    """Rows whose source has not ended are held for 5 s: the signal comes before that."""
    kept = kept_anywhere
    port = free_port()
    one = service("--metrics-port", str(port))
    weights = pl.DataFrame(
        [("e", None, 0, n, n) for n in range(3)], schema=schema.STACK_WEIGHTS, orient="row"
    )
    splitter = Splitter("c", "s" * 64, "stack_weights", row_bytes=60)
    kept.append(list(splitter.add(weights)))
    wait(lambda: of(scrape(port), "messages_read_total", topic="flameslice.stack_weights") == 1, one)
    assert kept.parts("c") == []
    assert one.stop(number) == 0
    assert kept.table("c", "stack_weights")["samples"].to_list() == [0]
    bodies = [json.loads(line) for line in one.lines]
    assert bodies[-1]["message"] == "stopped"


def test_a_second_worker_of_an_embedded_log_is_refused(kept: Any) -> None:
    one = Service(kept)
    try:
        ran = kept("worker --until-empty")
        assert (ran.status, ran.stderr.count("\n")) == (1, 1)
        assert "another worker" in ran.stderr
        assert one.stop() == 0
        assert kept("worker --until-empty").status == 0
    finally:
        one.close()


def test_trouble_is_said_and_tried_again(kept: Any, tmp_path: Path) -> None:
    """Something stands where a capture's folder must go: the worker says so, waits, and goes on once it is gone."""
    (kept.data / "captures").mkdir(parents=True)
    stone = kept.data / "captures" / "capture=c"
    stone.write_bytes(b"")
    one = Service(kept)
    try:
        kept.append([control.to_message(CaptureFact("c", "c"))])
        wait(lambda: len(one.lines) >= 3, one)
        bodies = [json.loads(line) for line in one.lines[1:3]]
        assert [body["severity"] for body in bodies] == ["error", "error"]
        assert [body["retry_in_s"] for body in bodies] == [0.5, 1.0]  # later and later
        assert all(str(stone) in body["message"] for body in bodies)
        stone.unlink()
        wait(lambda: [found["id"] for found in kept.listed()] == ["c"] and stone.is_dir(), one)
        assert one.stop() == 0
    finally:
        one.close()


def test_it_says_what_became_of_captures_and_which_messages_died(kept_anywhere: Any, tmp_path: Path) -> None:
    kept = kept_anywhere
    (tmp_path / "f").write_bytes(b"a;f 1\nno number\n")
    kept.append(
        [
            Message("flameslice.frames", b"k", b"?", (("capture", b"c"),)),
            control.to_message(CaptureFact("c", "f")),
        ]
    )
    if kept.log:
        (capture,) = kept.ingest("f", status=3)
        ran = kept("worker --until-empty", "--log-format", "text")
        assert f"complete: {capture} (f) rows=2 lost_rows=1\n" in ran.stderr
    else:
        ran = kept("worker --until-empty", "--log-format", "text")
    (dead,) = [line for line in ran.stderr.splitlines() if line.startswith("dead letter: ")]
    assert "topic=flameslice.frames partition=" in dead
    assert " offset=" in dead
    listed = kept("deadletter list").stdout.decode().splitlines()
    assert listed[0].split() == ["TOPIC", "PARTITION", "OFFSET", "CAPTURE", "REASON"]
    assert len(listed) == 2
