"""The log on Apache Kafka (2.8 or newer), by kafka-python: idempotent producer, acks=all, commits by hand.

What a group committed counts for one incarnation of a topic: its id stands in the commit, so that a topic that was
deleted and made again is read from its beginning.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import kafka
from kafka import errors as kafka_errors
from kafka.structs import MemberState, OffsetAndMetadata, TopicPartition

from pipeline.errors import InputError, WorkError
from pipeline.log.config import LogConfig
from pipeline.log.protocol import CAPTURES, DEAD_LETTERS, MAX_MESSAGE_BYTES, Message, Partition, Record

_IN_FLIGHT_BYTES = 32 << 20
_POLL_RECORDS = 16  # of at most 900 KiB each
_REQUEST_MS = 15_000
_LOOK_AT_TOPICS_S = 2.0
_STUCK_S = 20.0  # our choice: a rebalance takes a second or two
_LARGEST_MESSAGE_BYTES = 2 << 20  # a dead letter carries the whole message and why
_CLIENT_LOGGER = logging.getLogger("kafka")
_CAUSES = (
    "SaslAuthenticationFailed",
    "SSL",
    "certificate",
    "ECONNREFUSED",
    "Name or service",
    "socket disconnected",
)
_MOVED_ON = (
    kafka_errors.CommitFailedError,
    kafka_errors.IllegalGenerationError,
    kafka_errors.UnknownMemberIdError,
    kafka_errors.RebalanceInProgressError,
    kafka_errors.RetriableError,
)


class _LastWords(logging.Handler):
    """Keeps what the client said last of a failed connection: its errors do not carry it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        words = record.getMessage()
        # of what it says about one failure, only this names the cause
        for cause in _CAUSES:
            if cause in words:
                self.text = words[words.index(cause) :].splitlines()[0][:200]
                return


class KafkaLog:
    """A log on a cluster."""

    def __init__(self, servers: str, config: LogConfig | None = None, *, timeout_s: float = 10.0) -> None:
        """Connect; raises WorkError after timeout_s without an answer."""
        self._servers = servers
        self._config = config or LogConfig()
        self._timeout_s = timeout_s
        self._producer: Any = None
        self._sent: deque[tuple[Any, int]] = deque()
        self._sent_bytes = 0
        self._known_topics: set[str] = set()
        self._reader: Any = None
        self._last_words = _LastWords()
        _CLIENT_LOGGER.addHandler(self._last_words)
        _CLIENT_LOGGER.propagate = False  # what matters of it is in our errors
        with self.told():
            self.admin = kafka.KafkaAdminClient(**self._settings(kafka.KafkaAdminClient))
            self.identity: str = self.admin.describe_cluster()["cluster_id"]

    def _settings(self, client: Any, **own: Any) -> dict[str, Any]:
        """Return the settings of one client."""
        known = client.DEFAULT_CONFIG
        settings: dict[str, Any] = {
            "bootstrap_servers": self._servers.split(","),
            "bootstrap_timeout_ms": int(self._timeout_s * 1000),
            "request_timeout_ms": _REQUEST_MS,
            "client_id": "flameslice",
            "reconnect_backoff_max_ms": 5_000,
        }
        settings |= {key: value for key, value in self._config.client.items() if key in known}
        return {key: value for key, value in settings.items() if key in known} | own

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Turn the client's errors into one line."""
        try:
            yield
        except (kafka_errors.KafkaError, OSError, AssertionError, ValueError, TypeError) as error:
            raise self._error(error) from error

    def _error(self, error: BaseException) -> Exception:
        where = f"kafka://{self._servers}"
        words = str(error) or type(error).__name__
        if isinstance(error, kafka_errors.KafkaTimeoutError) and self._last_words.text:
            words = f"{words} ({self._last_words.text})"
        if isinstance(error, kafka_errors.AuthorizationError | kafka_errors.SaslAuthenticationFailedError):
            remedy = "check the user, the password and the rights in --log-config"
        elif isinstance(error, kafka_errors.KafkaTimeoutError | kafka_errors.KafkaConnectionError | OSError):
            remedy = (
                "check the address, that a broker runs there, and the security settings in --log-config; "
                "what was acknowledged is kept, and the same command goes on from there"
            )
        elif isinstance(
            error, AssertionError | ValueError | TypeError | kafka_errors.KafkaConfigurationError
        ):
            return InputError(f"a setting is wrong: {words}", "correct it", path=self._config.path or where)
        else:
            remedy = "run it again: it adds only what is missing"
        return WorkError(f"Kafka: {words}", remedy, path=where)

    # appending

    def append(self, messages: Iterable[Message]) -> None:
        """Send messages; wait while 32 MiB are on the way."""
        with self.told():
            if self._producer is None:
                self._producer = self._new_producer()
            for message in messages:
                self._make_topic(message.topic)
                future = self._producer.send(
                    message.topic, message.value, key=message.key, headers=list(message.headers)
                )
                self._sent.append((future, message.size_bytes))
                self._sent_bytes += message.size_bytes
                while self._sent_bytes > _IN_FLIGHT_BYTES:
                    self._settle_one()

    def _new_producer(self) -> Any:
        own: dict[str, Any] = {
            "batch_size": MAX_MESSAGE_BYTES + (16 << 10),
            "linger_ms": 5,
            "max_request_size": _LARGEST_MESSAGE_BYTES,
            "delivery_timeout_ms": 60_000,
        }
        own |= self._config.producer
        own |= {"acks": "all", "enable_idempotence": True, "compression_type": None}
        return kafka.KafkaProducer(**self._settings(kafka.KafkaProducer, **own))

    def _settle_one(self) -> None:
        future, size = self._sent.popleft()
        self._sent_bytes -= size
        future.get(timeout=120)

    def flush(self) -> None:
        """Wait until the brokers have acknowledged everything."""
        with self.told():
            while self._sent:
                self._settle_one()

    def _make_topic(self, topic: str) -> None:
        """Make a topic that is not there, as the configuration says; the control topic keeps everything."""
        if topic in self._known_topics:
            return
        if topic not in self.admin.list_topics():
            plan = self._config.topic(topic)
            settings = dict(plan.settings)
            partitions = plan.partitions
            if topic in (CAPTURES, DEAD_LETTERS):
                partitions = 1 if topic not in self._config.topics else partitions
                settings = {"retention.ms": "-1", "retention.bytes": "-1"} | dict(
                    self._config.topic(topic).settings if topic in self._config.topics else {}
                )
                settings.setdefault("max.message.bytes", str(_LARGEST_MESSAGE_BYTES))
            new = {
                topic: {
                    "num_partitions": partitions,
                    "replication_factor": plan.replication_factor,
                    "configs": settings,
                }
            }
            with contextlib.suppress(kafka_errors.TopicAlreadyExistsError):
                self.admin.create_topics(new, wait_for_metadata=True)
        self._known_topics.add(topic)

    # reading without a group's members

    def partitions(self, topic: str) -> list[Partition]:
        """Return the partitions of a topic; none where it is not there."""
        with self.told():
            if topic not in self.admin.list_topics():
                return []
            described = self.admin.describe_topics([topic])[0]
            return [
                Partition(topic, number)
                for number in sorted(p["partition_index"] for p in described["partitions"])
            ]

    def read(self, partition: Partition, offset: int, max_bytes: int = 8 << 20) -> list[Record]:
        """Return records from offset on."""
        with self.told():
            if self._reader is None:
                self._reader = kafka.KafkaConsumer(**self._consumer_settings(group_id=None))
            reader, wanted = self._reader, TopicPartition(partition.topic, partition.number)
            if wanted not in reader.assignment():
                reader.assign([wanted])
            first = reader.beginning_offsets([wanted])[wanted]
            end = reader.end_offsets([wanted])[wanted]
            offset = max(offset, first)
            records: list[Record] = []
            reader.seek(wanted, offset)
            deadline = time.monotonic() + _REQUEST_MS / 1000
            while offset < end and not records:
                found = reader.poll(timeout_ms=500).get(wanted, [])
                records += [_record(one) for one in found]
                if time.monotonic() > deadline:
                    raise kafka_errors.KafkaTimeoutError(f"nothing came from {partition.topic} at {offset}")
                offset = reader.position(wanted)  # what is no message (a transaction's mark) is passed over
            return records

    def position(self, group: str, partition: Partition) -> int:
        """Return where the group reads next."""
        with self.told(), self._member(group) as member:
            wanted = TopicPartition(partition.topic, partition.number)
            committed = member.committed(wanted)
            return int(member.beginning_offsets([wanted])[wanted] if committed is None else committed)

    def commit(self, group: str, positions: Mapping[Partition, int]) -> None:
        """Note where the group reads next."""
        with self.told(), self._member(group) as member:
            member.assign([TopicPartition(*partition) for partition in positions])
            member.commit(
                {
                    TopicPartition(*partition): OffsetAndMetadata(at, "", -1)
                    for partition, at in positions.items()
                }
            )

    @contextlib.contextmanager
    def _member(self, group: str) -> Iterator[Any]:
        member = self.new_member(group)
        try:
            yield member
        finally:
            member.close()

    def _consumer_settings(self, **own: Any) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "enable_incremental_fetch_sessions": False,
            "max_poll_records": _POLL_RECORDS,
            "fetch_max_bytes": 16 << 20,
            "max_partition_fetch_bytes": 4 << 20,
            "allow_auto_create_topics": False,
        }
        settings |= self._config.consumer
        settings |= {"enable_auto_commit": False, "auto_offset_reset": "earliest", **own}
        return self._settings(kafka.KafkaConsumer, **settings)

    def consume(self, group: str, topics: Sequence[str]) -> KafkaGroupConsumer:
        """Join a group."""
        with self.told():
            for topic in topics:
                self._make_topic(topic)
        return KafkaGroupConsumer(self, group, topics)

    def new_member(self, group: str) -> Any:
        """Return a client that can join a group."""
        return kafka.KafkaConsumer(**self._consumer_settings(group_id=group))

    def close(self) -> None:
        """Leave; what was appended and not flushed is waited for no longer."""
        for client in (self._producer, self._reader, self.admin):
            if client is not None:
                with contextlib.suppress(Exception):  # it is over anyway
                    client.close() if client is not self._producer else client.close(timeout=5)
        self._producer = self._reader = None
        _CLIENT_LOGGER.removeHandler(self._last_words)


class _Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    """Tells the consumer which partitions it lost; called in the client's own thread."""

    def __init__(self, consumer: KafkaGroupConsumer) -> None:
        self._consumer = consumer

    def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> None:
        self._consumer.forget(revoked)

    def on_partitions_lost(self, lost: Sequence[TopicPartition]) -> None:
        self._consumer.forget(lost)

    def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
        self._consumer.forget(assigned)


class KafkaGroupConsumer:
    """A member of a consumer group.

    A rebalance may come between any two steps, so each partition's records are taken in only from where the group
    committed last, without a gap; where a gap shows, reading goes back.
    """

    def __init__(self, log: KafkaLog, group: str, topics: Sequence[str]) -> None:
        self._log, self._group, self._topics = log, group, tuple(topics)
        self._guard = threading.Lock()
        self._lost: set[Partition] = set()
        self._next: dict[Partition, int] = {}  # what is to come next
        self._went_back: dict[Partition, int] = {}
        self._topic_ids: dict[str, str] = {}
        self._looked_at_topics_s = 0.0
        self._stable_s = time.monotonic()  # when the group was last seen to work
        with log.told():
            self._topic_ids = self._current_topic_ids()
            self._member = self._joining()

    def _joining(self) -> Any:
        member = self._log.new_member(self._group)
        member.subscribe(topics=list(self._topics), listener=_Listener(self))
        return member

    def _rejoin_if_stuck(self) -> None:
        """Begin anew where joining never ends: the client waits for ever for an answer that a broker's end took."""
        now_s = time.monotonic()
        if self._member.group_metadata().state == MemberState.STABLE:
            self._stable_s = now_s
        elif now_s - self._stable_s > _STUCK_S:
            self._stable_s = now_s
            with self._guard:
                gone = [TopicPartition(*partition) for partition in self._next]
            self.forget(gone)
            old, self._member = self._member, self._joining()
            with contextlib.suppress(Exception):  # the group forgets it anyway
                old.close(autocommit=False, timeout_ms=2000)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that partitions came or went: what was read of them counts no more."""
        with self._guard:
            for topic, number in partitions:
                self._lost.add(Partition(topic, number))
                self._next.pop(Partition(topic, number), None)

    def poll(self, timeout_s: float) -> list[Record]:
        """Return what came next."""
        with self._log.told():
            if time.monotonic() - self._looked_at_topics_s > _LOOK_AT_TOPICS_S:
                self._look_at_topics()
            found = self._member.poll(timeout_ms=int(timeout_s * 1000))
            self._rejoin_if_stuck()
            records: list[Record] = []
            for topic_partition, raw in found.items():
                partition = Partition(topic_partition.topic, topic_partition.partition)
                records += self._in_order(partition, [_record(one) for one in raw])
            return records

    def _in_order(self, partition: Partition, records: list[Record]) -> list[Record]:
        """Return records if they go on where the last ones ended; else go back there."""
        with self._guard:
            expected = self._next.get(partition)
        if expected is None:
            return []  # it came just now: `lost` says where to begin
        if records[0].offset > expected and self._went_back.get(partition) != expected:
            self._went_back[partition] = expected  # once: a gap that stays was made by retention
            self._go_to(partition, expected)
            return []
        with self._guard:
            if partition in self._next:
                self._next[partition] = records[-1].offset + 1
        return records

    def _go_to(self, partition: Partition, offset: int) -> None:
        with contextlib.suppress(kafka_errors.IllegalStateError, AssertionError):  # taken away meanwhile
            self._member.seek(TopicPartition(*partition), offset)

    def _committed(self, partition: Partition) -> int:
        """Return where the group reads next in this incarnation of the topic."""
        wanted = TopicPartition(*partition)
        committed = self._member.committed(wanted, metadata=True)
        if committed is None or committed.metadata not in ("", self._topic_ids.get(partition.topic, "")):
            return int(self._member.beginning_offsets([wanted])[wanted])
        return int(committed.offset)

    def lost(self) -> frozenset[Partition]:
        """Return the partitions that came or went since the last call; reading those here begins at the commit."""
        with self._guard:
            lost, self._lost = frozenset(self._lost), set()
        try:
            with self._log.told():
                self._begin(lost)
        except BaseException:
            with self._guard:
                self._lost |= lost
            raise
        return lost

    def _begin(self, partitions: Iterable[Partition]) -> None:
        """Read what is still this member's from where the group committed."""
        for partition in partitions:
            if TopicPartition(*partition) in self._member.assignment():
                offset = self._committed(partition)
                with self._guard:
                    self._next[partition] = offset
                self._go_to(partition, offset)

    def _current_topic_ids(self) -> dict[str, str]:
        self._looked_at_topics_s = time.monotonic()
        described = self._log.admin.describe_topics(list(self._topics))
        return {
            one["name"]: str(one["topic_id"])
            for one in described
            if not one.get("error_code") and one.get("topic_id")
        }

    def _look_at_topics(self) -> None:
        """Read topics from their beginning that were deleted and made again."""
        current = self._current_topic_ids()
        changed = {topic for topic, known in self._topic_ids.items() if current.get(topic, known) != known}
        self._topic_ids |= current
        if changed:
            self.forget(one for one in self._member.assignment() if one.topic in changed)

    def commit(self, positions: Mapping[Partition, int]) -> bool:
        """Commit what is still this member's."""
        with self._log.told():
            self._look_at_topics()
            with self._guard:
                if not self._lost.isdisjoint(positions):
                    return False
            offsets = {
                TopicPartition(*partition): OffsetAndMetadata(
                    at, self._topic_ids.get(partition.topic, ""), -1
                )
                for partition, at in positions.items()
            }
            try:
                self._member.commit(offsets, timeout_ms=_REQUEST_MS)
            except _MOVED_ON:
                self.forget(TopicPartition(*partition) for partition in positions)
                return False
            return True

    def lag(self) -> dict[Partition, int]:
        """Return how many messages of each own partition were not read yet."""
        with self._log.told():
            own = list(self._member.assignment())
            ends = self._member.end_offsets(own) if own else {}
            with self._guard:
                known = dict(self._next)
            return {
                Partition(*one): max(0, end - known[Partition(*one)])
                for one, end in ends.items()
                if Partition(*one) in known
            }

    def close(self) -> None:
        """Leave the group."""
        with contextlib.suppress(Exception):  # the group forgets this member anyway
            self._member.close(autocommit=False)


def _record(raw: Any) -> Record:
    headers = tuple((name, text or b"") for name, text in raw.headers)
    message = Message(raw.topic, raw.key or b"", raw.value or b"", headers)
    return Record(Partition(raw.topic, raw.partition), raw.offset, message)
