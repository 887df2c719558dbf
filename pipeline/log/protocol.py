"""What a log is: messages are appended to topics, read from an offset on, and a group commits how far it came.

Two logs keep this contract (`embedded`, `kafka_log`), and one test runs over both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

PREFIX = "flameslice."
CAPTURES = PREFIX + "captures"  # control: what a capture is, the end of each source, deletions
DEAD_LETTERS = PREFIX + "deadletter"
MAX_MESSAGE_BYTES = 900 << 10


class Partition(NamedTuple):
    """One ordered part of a topic."""

    topic: str
    number: int


@dataclass(frozen=True, slots=True)
class Message:
    """What is appended: messages of one key keep their order."""

    topic: str
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def size_bytes(self) -> int:
        """Return what the message takes in a log, roughly."""
        return len(self.key) + len(self.value) + sum(len(name) + len(text) for name, text in self.headers)


@dataclass(frozen=True, slots=True)
class Record:
    """A message where it lies."""

    partition: Partition
    offset: int
    message: Message


class Consumer(Protocol):
    """A member of a group: reads the partitions that are its own, each from where the group committed last."""

    def poll(self, timeout_s: float) -> Sequence[Record]:
        """Return what came next, in order within each partition; empty after timeout_s without any."""

    def lost(self) -> frozenset[Partition]:
        """Return the partitions that were taken away or must be read again since the last call.

        What was read from them and not committed is to be dropped: whoever has them now reads it again.
        """

    def commit(self, positions: Mapping[Partition, int]) -> bool:
        """Note for the group what to read next, durably; False: not all of it is this member's any more."""

    def lag(self) -> Mapping[Partition, int]:
        """Return how many messages of each partition were not read yet."""

    def close(self) -> None:
        """Leave the group."""


class Log(Protocol):
    """A log; every call may raise WorkError, which says what to do."""

    identity: str
    keeps_messages: bool  # what was committed is still there, and can be replayed into another store

    def append(self, messages: Iterable[Message]) -> None:
        """Take messages in, in bounded memory; they are durable only after `flush`."""

    def flush(self) -> None:
        """Return when everything appended is durable."""

    def partitions(self, topic: str) -> Sequence[Partition]:
        """Return the partitions of a topic; none where there is no such topic."""

    def read(self, partition: Partition, offset: int, max_bytes: int = 8 << 20) -> Sequence[Record]:
        """Return records from offset on, at least one where there is one; the end gives none."""

    def position(self, group: str, partition: Partition) -> int:
        """Return where the group reads next; where it never committed, the first offset that there is."""

    def commit(self, group: str, positions: Mapping[Partition, int]) -> None:
        """Note where the group reads next; for groups without members."""

    def lag(self, group: str, topics: Sequence[str]) -> Mapping[Partition, int]:
        """Return how many messages of each partition the group has not committed, whoever reads it."""

    def consume(self, group: str, topics: Sequence[str]) -> Consumer:
        """Join a group."""

    def close(self) -> None:
        """Let go of files and connections; what was not flushed may be gone."""
