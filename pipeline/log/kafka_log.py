"""The log on Apache Kafka (2.8 or newer), by kafka-python: idempotent producer, acks=all, commits by hand.

What a group committed counts for one incarnation of a topic: its id stands in the commit, so that a topic that was
deleted and made again is read from its beginning.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kafka import errors as kafka_errors
from kafka.structs import OffsetAndMetadata, TopicPartition

from pipeline.log.config import LogConfig
from pipeline.log.kafka_clients import LARGEST_MESSAGE_BYTES, REQUEST_MS, KafkaClients, record_of
from pipeline.log.kafka_group import KafkaGroupConsumer
from pipeline.log.protocol import CAPTURES, DEAD_LETTERS, Message, Partition, Record

_IN_FLIGHT_BYTES = 32 << 20


class KafkaLog:
    """A log on a cluster."""

    keeps_messages = True

    def __init__(self, servers: str, config: LogConfig | None = None, *, timeout_s: float = 10.0) -> None:
        """Connect; raises WorkError after timeout_s without an answer."""
        self._clients = KafkaClients(servers, config or LogConfig(), timeout_s)
        self._producer: Any = None
        self._sent: deque[tuple[Any, int]] = deque()
        self._sent_bytes = 0
        self._known_topics: set[str] = set()
        self._reader: Any = None
        with self._clients.told():
            self.identity: str = self._clients.admin.describe_cluster()["cluster_id"]

    # appending

    def append(self, messages: Iterable[Message]) -> None:
        """Send messages; wait while 32 MiB are on the way."""
        with self._clients.told():
            if self._producer is None:
                self._producer = self._clients.new_producer()
            for message in messages:
                self._make_topic(message.topic)
                future = self._producer.send(
                    message.topic, message.value, key=message.key, headers=list(message.headers)
                )
                self._sent.append((future, message.size_bytes))
                self._sent_bytes += message.size_bytes
                while self._sent_bytes > _IN_FLIGHT_BYTES:
                    self._settle_one()

    def _settle_one(self) -> None:
        future, size = self._sent.popleft()
        self._sent_bytes -= size
        future.get(timeout=120)

    def flush(self) -> None:
        """Wait until the brokers have acknowledged everything."""
        with self._clients.told():
            while self._sent:
                self._settle_one()

    def _make_topic(self, topic: str) -> None:
        """Make a topic that is not there, as the configuration says; the control topic keeps everything."""
        if topic in self._known_topics:
            return
        if topic not in self._clients.admin.list_topics():
            plan = self._clients.config.topic(topic)
            partitions, settings = plan.partitions, dict(plan.settings)
            if topic in (CAPTURES, DEAD_LETTERS):
                is_configured = topic in self._clients.config.topics
                kept = {"retention.ms": "-1", "retention.bytes": "-1"}
                settings = {
                    "max.message.bytes": str(LARGEST_MESSAGE_BYTES),
                    **kept,
                    **(settings if is_configured else {}),
                }
                partitions = partitions if is_configured else 1
            new = {
                topic: {
                    "num_partitions": partitions,
                    "replication_factor": plan.replication_factor,
                    "configs": settings,
                }
            }
            self._create(new)
        self._known_topics.add(topic)

    def _create(self, topic: dict[str, dict[str, Any]]) -> None:
        for delay_s in (0.5, 1.0, 2.0, 4.0, None):
            try:
                self._clients.admin.create_topics(topic, wait_for_metadata=True)
                return
            except kafka_errors.TopicAlreadyExistsError:
                return
            except kafka_errors.InvalidReplicationFactorError:
                # a cluster that has just started says so until its brokers know each other
                if delay_s is None:
                    raise
                time.sleep(delay_s)

    # reading without a group's members

    def partitions(self, topic: str) -> list[Partition]:
        """Return the partitions of a topic; none where it is not there."""
        with self._clients.told():
            if topic not in self._clients.admin.list_topics():
                return []
            described = self._clients.admin.describe_topics([topic])[0]
            return [
                Partition(topic, number)
                for number in sorted(p["partition_index"] for p in described["partitions"])
            ]

    def read(self, partition: Partition, offset: int, max_bytes: int = 8 << 20) -> list[Record]:
        """Return records from offset on."""
        with self._clients.told():
            if self._reader is None:
                self._reader = self._clients.new_consumer(None)
            reader, wanted = self._reader, TopicPartition(partition.topic, partition.number)
            if wanted not in reader.assignment():
                reader.assign([wanted])
            first = reader.beginning_offsets([wanted])[wanted]
            end = reader.end_offsets([wanted])[wanted]
            offset = max(offset, first)
            records: list[Record] = []
            reader.seek(wanted, offset)
            deadline = time.monotonic() + REQUEST_MS / 1000
            while offset < end and not records:
                found = reader.poll(timeout_ms=500).get(wanted, [])
                records += [record_of(one) for one in found]
                if time.monotonic() > deadline:
                    raise kafka_errors.KafkaTimeoutError(f"nothing came from {partition.topic} at {offset}")
                offset = reader.position(wanted)  # what is no message (a transaction's mark) is passed over
            return records

    def position(self, group: str, partition: Partition) -> int:
        """Return where the group reads next."""
        with self._clients.told(), self._member(group) as member:
            wanted = TopicPartition(partition.topic, partition.number)
            committed = member.committed(wanted)
            return int(member.beginning_offsets([wanted])[wanted] if committed is None else committed)

    def commit(self, group: str, positions: Mapping[Partition, int]) -> None:
        """Note where the group reads next."""
        with self._clients.told(), self._member(group) as member:
            member.assign([TopicPartition(*partition) for partition in positions])
            member.commit(
                {
                    TopicPartition(*partition): OffsetAndMetadata(at, "", -1)
                    for partition, at in positions.items()
                }
            )

    def lag(self, group: str, topics: Sequence[str]) -> dict[Partition, int]:
        """Return how many messages of each partition the group has not committed."""
        with self._clients.told():
            if self._reader is None:
                self._reader = self._clients.new_consumer(None)
            described = [
                one for one in self._clients.admin.describe_topics(list(topics)) if not one["error_code"]
            ]
            ids = {one["name"]: str(one["topic_id"]) for one in described}
            wanted = [
                TopicPartition(one["name"], part["partition_index"])
                for one in described
                for part in one["partitions"]
            ]
            begins, ends = self._reader.beginning_offsets(wanted), self._reader.end_offsets(wanted)
            committed = self._clients.admin.list_group_offsets({group: wanted})[group]
            lags = {}
            for one in wanted:
                known = committed.get(one)
                is_ours = known is not None and known.offset >= 0 and known.metadata in ("", ids[one.topic])
                at = max(known.offset, begins[one]) if is_ours else begins[one]
                lags[Partition(*one)] = max(0, ends[one] - at)
            return lags

    @contextlib.contextmanager
    def _member(self, group: str) -> Iterator[Any]:
        member = self._clients.new_consumer(group)
        try:
            yield member
        finally:
            member.close()

    def consume(self, group: str, topics: Sequence[str]) -> KafkaGroupConsumer:
        """Join a group."""
        with self._clients.told():
            for topic in topics:
                self._make_topic(topic)
        return KafkaGroupConsumer(self._clients, group, topics)

    def close(self) -> None:
        """Leave; what was appended and not flushed is waited for no longer."""
        with contextlib.suppress(Exception):  # it is over anyway
            if self._producer is not None:
                self._producer.close(timeout=5)
        with contextlib.suppress(Exception):
            if self._reader is not None:
                self._reader.close()
        self._producer = self._reader = None
        self._clients.close()
