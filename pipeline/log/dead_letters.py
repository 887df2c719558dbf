"""Dead letters: messages that no worker could take in, each with the reason and where it lay.

They are in the topic `flameslice.deadletter`: the message's own headers, before them `reason`, `source_topic`,
`source_partition`, `source_offset`, and its value as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline import schema
from pipeline.log.protocol import CAPTURES, DEAD_LETTERS, PREFIX, Log, Message, Partition, Record

GROUP = "flameslice-deadletter"  # how far dead letters were replayed
_TOPICS = frozenset({CAPTURES, *(PREFIX + table for table in schema.STORED)})  # that workers read
_NUMBER = re.compile(r"[0-9]{1,18}")
_OWN = ("reason", "source_topic", "source_partition", "source_offset")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that lies among the dead letters."""

    record: Record
    reason: str
    topic: str
    partition: int
    offset: int
    original: Message


def wrap(record: Record, reason: str) -> Message:
    """Return the dead letter of a record."""
    own = (reason[:1000], record.partition.topic, str(record.partition.number), str(record.offset))
    headers = tuple((name, text.encode()) for name, text in zip(_OWN, own, strict=True))
    return Message(DEAD_LETTERS, record.message.key, record.message.value, headers + record.message.headers)


def pending(log: Log) -> Iterator[DeadLetter]:
    """Return the dead letters that were not replayed, each place once."""
    return (letter for letter, is_first in _not_replayed(log) if is_first)


def _not_replayed(log: Log) -> Iterator[tuple[DeadLetter, bool]]:
    """Yield the dead letters from the group's position on, and whether each is the first of its place."""
    seen: set[tuple[str, int, int]] = set()
    for partition in log.partitions(DEAD_LETTERS):
        offset = log.position(GROUP, partition)
        while records := log.read(partition, offset):
            for record in records:
                letter = unwrap(record)
                place = (letter.topic, letter.partition, letter.offset)
                yield letter, place not in seen  # a worker that was killed may have buried it twice
                seen.add(place)
            offset = records[-1].offset + 1


def unwrap(record: Record) -> DeadLetter:
    """Return what a record of the dead letters says; whatever else lies in that topic is its own reason."""
    given = [(name, text.decode("utf-8", "replace")) for name, text in record.message.headers[: len(_OWN)]]
    reason, topic, partition, offset = [text for _, text in given] + [""] * (len(_OWN) - len(given))
    is_ours = tuple(name for name, _ in given) == _OWN and topic in _TOPICS
    if not (is_ours and _NUMBER.fullmatch(partition) and _NUMBER.fullmatch(offset)):
        return DeadLetter(record, "not a dead letter of ours", "", -1, record.offset, record.message)
    original = Message(topic, record.message.key, record.message.value, record.message.headers[len(_OWN) :])
    return DeadLetter(record, reason, topic, int(partition), int(offset), original)


def replay(log: Log) -> int:
    """Append every pending dead letter to its topic again; return how many."""
    count = 0
    ends: dict[Partition, int] = {}
    for letter, is_first in _not_replayed(log):
        if letter.topic and is_first:
            log.append([letter.original])
            count += 1
        ends[letter.record.partition] = letter.record.offset + 1
    log.flush()
    if ends:
        log.commit(GROUP, ends)
    return count
