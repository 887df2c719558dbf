"""A capture of 200,000 rows in over 300 messages, appended to a log; and what the store must hold in the end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flameslice import logs
from pipeline import control, schema
from pipeline.control import CaptureFact, SourceBegin, SourceFact
from pipeline.log.protocol import Log, Message
from pipeline.log.wire import Splitter
from pipeline.store.catalog import Catalog
from pipeline.store.place import open_place
from pipeline.store.states import StoredCapture

ROOT = Path(__file__).resolve().parents[3]
WORKER = Path(__file__).with_name("faulty_worker.py")
ROWS = 100_000  # of each of two captures
MESSAGE_BYTES = 60_000


def events(rows: int, seed: int) -> pl.DataFrame:
    """Return samples whose every row differs from every other."""
    number = pl.int_range(rows, dtype=pl.Int64, eager=True)
    return pl.DataFrame(
        {
            "host": ["box"] * rows,
            "cpu": number % 8,
            "pid": number // 1000,
            "tid": number % 5000,
            "comm": "worker-" + (number % 16).cast(pl.String),
            "event": ["cpu-clock"] * rows,
            "period": number * 7 + seed,
            "clock": ["monotonic"] * rows,
            "raw_time": 10**15 + number * 1009 + seed,
            "stack_id": number % 300,
            "args": [None] * rows,
        }
    ).cast(dict(schema.PERF_EVENTS))  # type: ignore[arg-type]


@dataclass
class Made:
    """Two captures as messages, and as the rows that must come out."""

    tables: dict[str, pl.DataFrame] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)


def _made() -> Made:
    made = Made()
    streams = []
    for seed, capture in enumerate(("one", "two")):
        source = f"{seed:064x}"
        table = events(ROWS, seed)
        made.tables[capture] = table
        begin = CaptureFact(capture, capture, sources=(SourceBegin(source, "f", "perf_script"),))
        splitter = Splitter(capture, source, "perf_events", MESSAGE_BYTES)
        rows = [*splitter.add(table), *splitter.finish()]
        end = SourceFact(
            capture,
            source,
            "complete",
            rows=ROWS,
            messages={"perf_events": splitter.messages},
            table_rows={"perf_events": splitter.rows},
        )
        streams.append([control.to_message(begin), *rows, control.to_message(end)])
    # interleaved: a batch of the worker holds parts of both
    for pair in zip(*streams, strict=True):
        made.messages += pair
    assert len(made.messages) >= 300
    return made


MADE = _made()


@dataclass
class Bench:
    """A log and a store, and what is done to them."""

    log_url: str
    data: Path
    open_log: Callable[[], Log]
    made: Made = field(default_factory=lambda: MADE)

    def append(self, messages: list[Message] | None = None) -> None:
        log = self.open_log()
        log.append(MADE.messages if messages is None else messages)
        log.flush()
        log.close()

    def worker(self, point: str = "never", number: int = 1) -> subprocess.Popen[bytes]:
        Path(f"{self.data}.started").unlink(missing_ok=True)
        return subprocess.Popen(
            [sys.executable, str(WORKER), self.log_url, str(self.data), point, str(number)],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
        )

    @contextlib.contextmanager
    def service(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run `flameslice worker` while entered; then SIGTERM ends it, and it must say that all went well."""
        command = [
            sys.executable,
            "-m",
            "flameslice",
            "worker",
            "--log",
            self.log_url,
            "--data",
            str(self.data),
        ]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        with subprocess.Popen([*command, *options], env=environment, stderr=subprocess.PIPE) as process:
            try:
                assert process.stderr is not None
                process.stderr.readline()  # it says that it works: it has joined, and outages are its to outlive
                yield process
                process.terminate()
                _, errors = process.communicate(timeout=60)
            except BaseException as error:
                process.kill()
                error.add_note(process.communicate()[1].decode())  # what the worker said
                raise
            assert process.returncode == 0, errors.decode()

    def wait_until_complete(self, timeout_s: float = 90) -> None:
        """Wait until the store says that both captures are complete."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            found = [self.catalog.get(name) for name in self.made.tables]
            if all(one is not None and one.status == "complete" for one in found):
                return
            assert time.monotonic() < deadline_s, [one and one.status for one in found]
            time.sleep(0.2)

    def run_worker(self, point: str = "never", number: int = 1) -> int:
        with self.worker(point, number) as process:
            _, errors = process.communicate(timeout=120)
        assert process.returncode in (0, -9), errors.decode()
        return process.returncode

    def wait_until_started(self, process: subprocess.Popen[bytes]) -> None:
        deadline_s = time.monotonic() + 30
        while not Path(f"{self.data}.started").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline_s
            time.sleep(0.01)

    @property
    def catalog(self) -> Catalog:
        return Catalog(open_place(str(self.data)))

    def capture(self, name: str) -> StoredCapture:
        found = self.catalog.get(name)
        assert found is not None
        return found

    def stored(self, capture: str) -> pl.DataFrame:
        """Return the rows that a plain glob finds, in the order of their source."""
        pattern = f"{self.data}/captures/capture={capture}/perf_events/part-*.parquet"
        return pl.read_parquet(pattern, hive_partitioning=False).sort("row")

    def check(self) -> None:
        """Fail unless each row of the source is stored once, and the captures are complete."""
        for capture, table in MADE.tables.items():
            stored = self.stored(capture)
            assert stored["row"].to_list() == list(range(ROWS))
            assert stored.select(schema.PERF_EVENTS.names()).equals(table)
            assert self.capture(capture).status == "complete"


@pytest.fixture
def embedded(tmp_path: Path) -> Bench:
    """A bench on the embedded log."""
    path = tmp_path / "log.sqlite"
    data = tmp_path / "data"

    def open_log() -> Any:
        return logs.open_embedded(path, Catalog(open_place(str(data))))

    return Bench(f"sqlite:{path}", data, open_log)


@pytest.fixture
def kafka_bench(fresh_kafka: str, tmp_path: Path) -> Bench:
    """A bench on Kafka, without any topics of ours."""
    return bench_on(fresh_kafka, tmp_path)


def bench_on(servers: str, tmp_path: Path) -> Bench:
    """Return a bench on a broker."""

    def open_log() -> Any:
        from pipeline.log.kafka_log import KafkaLog

        return KafkaLog(servers)

    return Bench(f"kafka://{servers}", tmp_path / "data", open_log)


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.xdist_group("kafka"))])
def bench(request: pytest.FixtureRequest) -> Bench:
    """A bench on each log."""
    found: Bench = request.getfixturevalue("embedded" if request.param == "embedded" else "kafka_bench")
    return found


@pytest.fixture(name="bench_on")
def bench_on_fixture() -> Callable[[str, Path], Bench]:
    """Make a bench on a broker of one's own."""
    return bench_on
