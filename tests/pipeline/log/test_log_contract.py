"""One contract, two logs: the embedded one and Apache Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.log.embedded import EmbeddedLog
from pipeline.log.protocol import MAX_MESSAGE_BYTES, Consumer, Log, Message, Partition, Record

TOPICS = ("flameslice.frames", "flameslice.stacks")
OpenLog = Callable[[], Log]


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.xdist_group("kafka"))])
def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenLog]:
    """Return what opens the same log again and again, empty at first."""
    opened: list[Log] = []
    if request.param == "embedded":

        def make() -> Log:
            return EmbeddedLog(tmp_path / "log.sqlite")
    else:
        servers = request.getfixturevalue("fresh_kafka")

        def make() -> Log:
            from pipeline.log.kafka_log import KafkaLog

            return KafkaLog(servers)

    def remembered() -> Log:
        opened.append(make())
        return opened[-1]

    yield remembered
    for log in opened:
        log.close()


def message(number: int, topic: str = TOPICS[0], key: bytes = b"k", size: int = 0) -> Message:
    return Message(topic, key, b"%d" % number + b"x" * size, (("n", b"%d" % number), ("raw", b"\x00\xff")))


def all_of(log: Log, topic: str, max_bytes: int = 8 << 20) -> list[Record]:
    records: list[Record] = []
    for partition in log.partitions(topic):
        offset = 0
        while found := log.read(partition, offset, max_bytes):
            records += found
            offset = found[-1].offset + 1
    return records


def taken(consumer: Consumer, count: int) -> list[Record]:
    """Poll until count messages came, or fail after some seconds."""
    records: list[Record] = []
    deadline_s = time.monotonic() + 30
    while len(records) < count and time.monotonic() < deadline_s:
        found = consumer.poll(0.5)
        lost = consumer.lost()
        records = [one for one in records if one.partition not in lost]
        records += [one for one in found if one.partition not in lost]
    assert len(records) == count
    return records


def test_messages_come_back_as_they_were_in_order_within_a_key(open_log: OpenLog) -> None:
    log = open_log()
    sent = [message(number, key=b"%d" % (number % 3)) for number in range(30)]
    log.append(sent)
    log.flush()
    found = [record.message for record in all_of(open_log(), TOPICS[0])]
    assert sorted(found, key=lambda one: int(one.headers[0][1])) == sent
    for key in (b"0", b"1", b"2"):
        assert [one for one in found if one.key == key] == [one for one in sent if one.key == key]


def test_reading_begins_at_an_offset_and_ends_at_the_end(open_log: OpenLog) -> None:
    log = open_log()
    log.append(message(number) for number in range(10))
    log.flush()
    records = all_of(log, TOPICS[0])
    assert len({record.partition for record in records}) == 1
    partition = records[0].partition
    seventh = records[7]
    assert log.read(partition, seventh.offset)[0].message == message(7)
    assert list(log.read(partition, records[-1].offset + 1)) == []


def test_a_topic_that_is_not_there_has_no_partitions(open_log: OpenLog) -> None:
    assert list(open_log().partitions("flameslice.spans")) == []


def test_the_largest_message_passes_and_small_reads_pass_one_by_one(open_log: OpenLog) -> None:
    log = open_log()
    sent = [message(number, size=MAX_MESSAGE_BYTES - 100) for number in range(3)]
    log.append(sent)
    log.flush()
    assert [record.message for record in all_of(log, TOPICS[0], max_bytes=1)] == sent


def test_a_group_goes_on_where_it_committed(open_log: OpenLog) -> None:
    log = open_log()
    log.append(message(number) for number in range(6))
    log.append(message(number, TOPICS[1]) for number in range(100, 103))
    log.flush()
    consumer = log.consume("g", TOPICS)
    records = taken(consumer, 9)
    third = [record for record in records if record.partition.topic == TOPICS[0]][2]
    assert consumer.commit({third.partition: third.offset + 1})
    consumer.close()

    again = open_log()
    consumer = again.consume("g", TOPICS)
    numbers = sorted(int(record.message.headers[0][1]) for record in taken(consumer, 6))
    assert numbers == [3, 4, 5, 100, 101, 102]
    assert again.position("g", third.partition) == third.offset + 1
    consumer.close()


def test_what_comes_later_is_polled_too(open_log: OpenLog) -> None:
    log = open_log()
    log.append([message(1)])
    log.flush()
    consumer = log.consume("g", TOPICS)
    taken(consumer, 1)
    assert list(consumer.poll(0.1)) == []
    writer = open_log()
    writer.append([message(2)])
    writer.flush()
    assert taken(consumer, 1)[0].message == message(2)
    consumer.close()


def test_lag_is_what_was_not_read(open_log: OpenLog) -> None:
    log = open_log()
    log.append(message(number) for number in range(5))
    log.flush()
    consumer = log.consume("g", TOPICS)
    taken(consumer, 5)
    writer = open_log()
    writer.append(message(number) for number in range(3))
    writer.flush()
    assert sum(consumer.lag().values()) == 3
    taken(consumer, 3)
    assert sum(consumer.lag().values()) == 0
    consumer.close()


def test_lag_of_a_group_is_what_it_has_not_committed_whoever_reads(open_log: OpenLog) -> None:
    log = open_log()
    log.append(message(number) for number in range(5))
    log.append(message(number, TOPICS[1]) for number in range(2))
    log.flush()
    assert sum(log.lag("g", TOPICS).values()) == 7
    assert sum(log.lag("g", TOPICS[:1]).values()) == 5
    partition = all_of(log, TOPICS[0])[0].partition
    log.commit("g", {partition: 3})
    assert open_log().lag("g", TOPICS)[partition] == 2
    assert sum(log.lag("another", TOPICS).values()) >= 4
    assert not any(log.lag("g", ["flameslice.never_made"]).values())


def test_positions_without_members(open_log: OpenLog) -> None:
    log = open_log()
    log.append(message(number) for number in range(4))
    log.flush()
    partition = all_of(log, TOPICS[0])[0].partition
    assert log.position("lonely", partition) == 0
    log.commit("lonely", {partition: 3})
    assert open_log().position("lonely", partition) == 3


def test_nothing_appended_is_nothing_flushed(open_log: OpenLog) -> None:
    log = open_log()
    log.append([])
    log.flush()
    assert log.identity


def test_identity_belongs_to_the_log_and_not_to_the_opening(open_log: OpenLog) -> None:
    assert open_log().identity == open_log().identity


# the embedded log alone


def test_committed_messages_of_the_embedded_log_are_deleted(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path / "log.sqlite")
    log.append(message(number) for number in range(10))
    log.flush()
    consumer = log.consume("g", TOPICS)
    records = taken(consumer, 10)
    consumer.commit({records[0].partition: 4})
    assert [record.offset for record in log.read(Partition(TOPICS[0], 0), 0)] == [4, 5, 6, 7, 8, 9]
    log.append([message(10)])
    log.flush()
    assert log.read(Partition(TOPICS[0], 0), 10)[0].offset == 10, "offsets are never used again"
    consumer.close()
    log.close()


def test_one_consumer_at_a_time(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path / "log.sqlite")
    consumer = log.consume("g", TOPICS)
    assert log.try_consume("g", TOPICS) is None
    consumer.close()
    second = log.try_consume("g", TOPICS)
    assert second is not None
    second.close()
    log.close()


def test_a_full_backlog_makes_append_wait(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path / "log.sqlite", backlog_bytes=1 << 20)
    waited = []

    def drain() -> None:
        waited.append(log.backlog_bytes())
        reader = EmbeddedLog(tmp_path / "log.sqlite")
        reader.commit("g", {Partition(TOPICS[0], 0): 10**6})
        reader.close()

    log.on_wait = drain
    log.append(message(number, size=512 << 10) for number in range(60))
    log.flush()
    assert waited
    assert max(waited) <= (1 << 20) + (9 << 20)
    log.close()
