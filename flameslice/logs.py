"""Opens the log that a command names: `sqlite:PATH`, `kafka://host:9092`, or the embedded one beside the store."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from flameslice.stored import data_url
from pipeline.errors import UsageError
from pipeline.log.protocol import CAPTURES, Log

if TYPE_CHECKING:
    from pipeline.control import Fact
    from pipeline.log.embedded import EmbeddedLog
    from pipeline.store.catalog import Catalog

LOG_FILE = "log.sqlite"
EMBEDDED_GROUP = "worker"
BACKLOG_BYTES = 256 << 20  # what an ingest may be ahead of its worker


def catalog_of(data: str | None) -> Catalog:
    """Return the store that a command names."""
    from pipeline.store.catalog import Catalog
    from pipeline.store.place import open_place

    return Catalog(open_place(data_url(data)))


def embedded_path(log: str | None, store_url: str) -> Path | None:
    """Return the file of an embedded log; None where log names another kind."""
    if not log:
        if "://" not in store_url:
            return Path(store_url) / LOG_FILE
        # a bucket cannot hold it: each has a log of its own on this machine
        tag = hashlib.sha256(store_url.encode()).hexdigest()[:16]
        return Path(data_url(None, _without_data())) / f"log-{tag}.sqlite"
    if log.startswith("sqlite:"):
        path = log.removeprefix("sqlite:").removeprefix("//")
        if not path:
            raise UsageError("--log sqlite: names no file", "give sqlite:PATH")
        return Path(path)
    if log.startswith("kafka://"):
        return None
    raise UsageError(f"no log of this kind: {log!r}", "give sqlite:PATH or kafka://host:9092")


def _without_data() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "FLAMESLICE_DATA"}


def open_embedded(path: Path, catalog: Catalog, *, backlog_bytes: int | None = None) -> EmbeddedLog:
    """Open an embedded log that hands over to this store."""
    from pipeline.log.embedded import EmbeddedLog

    log = EmbeddedLog(path, backlog_bytes=backlog_bytes)
    log.bind(catalog.store_id(), is_beside=path == Path(catalog.place.url) / LOG_FILE)
    return log


def open_kafka(log: str, config_file: str | None) -> Log:
    """Open a log on Kafka."""
    from pipeline.log import config
    from pipeline.log.kafka_log import KafkaLog

    servers = log.removeprefix("kafka://").rstrip("/")
    for server in servers.split(","):
        host, _, port = server.rpartition(":")
        if not host or not port.isdigit():
            raise UsageError(f"--log {log}: {server!r} is not host:port", "give kafka://host:9092")
    return KafkaLog(servers, config.load(Path(config_file)) if config_file else None)


def open_log(log: str | None, config_file: str | None, catalog: Catalog) -> Log:
    """Open the log that a command names."""
    path = embedded_path(log, catalog.place.url)
    if path is not None:
        if config_file:
            raise UsageError("--log-config is for Kafka", "leave it out")
        return open_embedded(path, catalog)
    assert log is not None
    return open_kafka(log, config_file)


def open_existing(log: str | None, config_file: str | None, catalog: Catalog) -> Log | None:
    """Open the log that a command names; None where it is embedded and was never made."""
    path = embedded_path(log, catalog.place.url)
    if path is not None and not path.exists():
        return None
    return open_log(log, config_file, catalog)


def group_of(log: str | None, catalog: Catalog) -> str:
    """Return the consumer group that works for a store: a new store has a new one, and so reads from the start."""
    return EMBEDDED_GROUP if embedded_path(log, "") is not None else f"flameslice-{catalog.store_id()}"


def pending_facts(log: Log) -> dict[str, list[Fact]]:
    """Return what the control topic says, by capture; on Kafka all of it, else what no worker has taken in yet."""
    from pipeline import control
    from pipeline.log.wire import PoisonError

    found: dict[str, list[Fact]] = {}
    for partition in log.partitions(CAPTURES):
        offset = 0
        while records := log.read(partition, offset):
            for record in records:
                try:
                    fact = control.of_message(record.message)
                except PoisonError:
                    continue  # the worker says so
                found.setdefault(fact.capture, []).append(fact)
            offset = records[-1].offset + 1
    return found
