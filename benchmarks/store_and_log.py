"""Measures the log and the store: appending to Kafka against Kafka's own benchmark, the worker, and whole ingests."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RUNS = 3
APPEND_BYTES = 600 << 20


def kafka_cluster() -> Any:
    """Return a broker as the tests use it; None where there is no Java or Kafka."""
    spec = importlib.util.spec_from_file_location("kafka_broker", ROOT / "tools/kafka/broker.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    missing = module.why_missing()
    if missing:
        print(f"Kafka is left out: {missing}", file=sys.stderr)
        return None
    return module.Cluster(1), module.JARS


def noise_messages(size_bytes: int) -> list[Any]:
    """Return messages of random bytes: what is ready to be appended is compressed already."""
    from pipeline.log.protocol import Message

    generator = random.Random(1)
    values = [generator.randbytes(size_bytes) for _ in range(8)]
    return [
        Message(
            "flameslice.frames", b"%d" % (number % 64), values[number % 8], (("sequence", b"%d" % number),)
        )
        for number in range(APPEND_BYTES // size_bytes)
    ]


def timed(work: Callable[[], None]) -> float:
    """Return how long work took, in seconds."""
    before_s = time.perf_counter()
    work()
    return time.perf_counter() - before_s


def appending(folder: Path) -> None:
    """Print how fast ready messages are appended: ours on Kafka, Kafka's own benchmark, and the embedded log."""
    from pipeline.log.embedded import EmbeddedLog
    from pipeline.log.kafka_log import KafkaLog

    found = kafka_cluster()
    if found is None:
        return
    cluster, jars = found
    print(
        "| append of ready messages, acks=all | message | MB/s | our speed / Kafka's own |\n|---|---|---|---|"
    )
    with cluster:
        for size_bytes in (140_000, 900_000):
            messages = noise_messages(size_bytes)
            megabytes = len(messages) * size_bytes / 1e6
            ours, peers, embedded = [], [], []
            log = KafkaLog(cluster.bootstrap)
            log.append(messages[:10])
            log.flush()
            for run in range(RUNS):
                ours.append(timed(lambda: (log.append(messages), log.flush())[0]))  # noqa: B023
                peers.append(producer_performance(cluster.bootstrap, jars, size_bytes, len(messages)))
                path = folder / f"log{size_bytes}-{run}.sqlite"
                local = EmbeddedLog(path)
                embedded.append(timed(lambda: (local.append(messages), local.flush())[0]))  # noqa: B023
                local.close()
                path.unlink()
            log.close()
            peer = statistics.median(peers)
            for name, speed in (
                ("ours on Kafka", megabytes / statistics.median(ours)),
                ("ProducerPerformance", peer),
                ("ours, embedded", megabytes / statistics.median(embedded)),
            ):
                print(f"| {name} | {size_bytes // 1000} kB | {speed:.0f} | {speed / peer:.2f} |")
    print()


def producer_performance(bootstrap: str, jars: Path, size_bytes: int, count: int) -> float:
    """Return the MB/s of org.apache.kafka.tools.ProducerPerformance."""
    command = ["java", "-Xmx1g", "-cp", f"{jars}/*", "org.apache.kafka.tools.ProducerPerformance"]
    command += ["--topic", "flameslice.frames", "--num-records", str(count), "--record-size", str(size_bytes)]
    command += ["--throughput", "-1", "--producer-props", f"bootstrap.servers={bootstrap}", "acks=all"]
    command += ["batch.size=950000", "linger.ms=5", "buffer.memory=67108864"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    last = output.strip().splitlines()[-1]  # "... records/sec (86.12 MB/sec), ..."
    return float(last.partition("(")[2].split()[0]) * (1 << 20) / 1e6


def working(folder: Path, text: Path) -> None:
    """Print how many rows a second the worker stores, from the embedded log."""
    import polars as pl

    from collectors import perf_script
    from collectors.source import Source
    from flameslice import logs
    from pipeline.log.wire import Splitter
    from pipeline.store.catalog import Catalog
    from pipeline.store.place import open_place
    from pipeline.worker import TOPICS, Worker

    with Source.open_path(str(text)) as source:
        table = pl.concat([batch.perf_events for batch in perf_script.Stream(source).batches()])
    while table.height < 3_000_000:
        table = pl.concat([table, table])
    table = table.with_columns(clock=pl.lit("monotonic"))
    splitter = Splitter("c1", "s" * 64, "perf_events")
    messages = [*splitter.add(table), *splitter.finish()]
    speeds = []
    for run in range(RUNS):
        catalog = Catalog(open_place(str(folder / f"worker{run}")))
        log = logs.open_embedded(folder / f"worker{run}.sqlite", catalog)
        log.append(messages)
        log.flush()
        worker = Worker(log, log.consume("worker", TOPICS), catalog)

        def work() -> None:
            while worker.step(0.0):  # noqa: B023
                pass
            worker.flush()  # noqa: B023

        speeds.append(table.height / timed(work))
        worker.close()
        log.close()
        shutil.rmtree(folder / f"worker{run}")
        (folder / f"worker{run}.sqlite").unlink()
    print("| worker, embedded log | rows | messages | million rows a second |\n|---|---|---|---|")
    print(
        f"| samples of {text.name} | {table.height:,} | {len(messages)} | {statistics.median(speeds) / 1e6:.2f} |\n"
    )


PARSE = """
import sys
from collectors import perf_script
from collectors.source import Source
with Source.open_path(sys.argv[1]) as source:
    print(sum(batch.perf_events.height for batch in perf_script.Stream(source).batches()))
"""


def ingesting(folder: Path, text: Path) -> None:
    """Print whole ingests against parsing the same file alone with the same reader."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "FLAMESLICE_DATA": str(folder / "data")}
    parse = [sys.executable, "-c", PARSE, str(text)]
    ingest = [sys.executable, "-m", "flameslice", "ingest", str(text)]
    walls: dict[str, list[float]] = {"parse alone": [], "flameslice ingest": []}
    rows = 0
    for _ in range(RUNS):
        for name, command in (("parse alone", parse), ("flameslice ingest", ingest)):
            before_s = time.perf_counter()
            run = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            walls[name].append(time.perf_counter() - before_s)
            if name == "parse alone":
                rows = int(run.stdout)
        shutil.rmtree(folder / "data")
    base = statistics.median(walls["parse alone"])
    print(f"| {text.name}: {rows:,} samples | wall s | rows/s | speed / parsing alone |\n|---|---|---|---|")
    for name, seconds in walls.items():
        wall = statistics.median(seconds)
        print(f"| {name} | {wall:.1f} | {rows / wall:,.0f} | {base / wall:.2f} |")
    print()


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Give a folder on the disk of the checkout."""
    out = ROOT / "benchmarks/out"
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as folder:
        yield Path(folder)


def main(text: Path) -> None:
    """Measure and print."""
    with scratch() as folder:
        appending(folder)
        working(folder, text)
        ingesting(folder, text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
