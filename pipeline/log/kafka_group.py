"""A member of a Kafka consumer group that never passes anything over, whatever a rebalance does in between."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import kafka
from kafka import errors as kafka_errors
from kafka.structs import MemberState, OffsetAndMetadata, TopicPartition

from pipeline.log.kafka_clients import REQUEST_MS, KafkaClients, record_of
from pipeline.log.protocol import Partition, Record

_LOOK_AT_TOPICS_S = 2.0
_STUCK_S = 20.0  # our choice: a rebalance takes a second or two
_MOVED_ON = (
    kafka_errors.CommitFailedError,
    kafka_errors.IllegalGenerationError,
    kafka_errors.UnknownMemberIdError,
    kafka_errors.RebalanceInProgressError,
    kafka_errors.RetriableError,
)


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

    def __init__(self, clients: KafkaClients, group: str, topics: Sequence[str]) -> None:
        self._clients, self._group, self._topics = clients, group, tuple(topics)
        self._guard = threading.Lock()
        self._lost: set[Partition] = set()
        self._next: dict[Partition, int] = {}  # what is to come next
        self._went_back: dict[Partition, int] = {}
        self._topic_ids: dict[str, str] = {}
        self._looked_at_topics_s = 0.0
        self._stable_s = time.monotonic()  # when the group was last seen to work
        with clients.told():
            self._topic_ids = self._current_topic_ids()
            self._member = self._joining()

    def _joining(self) -> Any:
        member = self._clients.new_consumer(self._group)
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
        with self._clients.told():
            self._rejoin_if_stuck()
            if time.monotonic() - self._looked_at_topics_s > _LOOK_AT_TOPICS_S:
                self._look_at_topics()
            found = self._member.poll(timeout_ms=int(timeout_s * 1000))
            records: list[Record] = []
            for topic_partition, raw in found.items():
                partition = Partition(topic_partition.topic, topic_partition.partition)
                records += self._in_order(partition, [record_of(one) for one in raw])
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
            with self._clients.told():
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
        described = self._clients.admin.describe_topics(list(self._topics))
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
        with self._clients.told():
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
                self._member.commit(offsets, timeout_ms=REQUEST_MS)
            except _MOVED_ON:
                self.forget(TopicPartition(*partition) for partition in positions)
                return False
            return True

    def lag(self) -> dict[Partition, int]:
        """Return how many messages of each own partition were not read yet."""
        with self._clients.told():
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
