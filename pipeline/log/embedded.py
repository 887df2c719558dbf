"""The embedded log: one SQLite file in WAL mode, nothing to start.

Every topic has one partition. A commit and a flush return only when the disk has what they promise (synchronous=FULL).
What a group commits is deleted: this log is a hand-over, the store keeps what matters. One consumer at a time holds a
group, by a lock on a file beside (`log.sqlite.GROUP.lock`) that ends with its process.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pipeline.errors import InputError, WorkError, from_os_error
from pipeline.log.protocol import Message, Partition, Record

FORMAT = 1
_TRANSACTION_BYTES = 8 << 20
_PAGE_BYTES = 32 << 10  # messages are large: measured twice as fast as SQLite's 4 KiB
_POLL_BYTES = 8 << 20
_WAIT_S = 0.02  # between looks for new messages
_BUSY_S = 60.0
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS log(format INTEGER NOT NULL, id TEXT NOT NULL, store TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS topics(topic TEXT PRIMARY KEY, next_offset INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS positions(
  "group" TEXT NOT NULL, topic TEXT NOT NULL, next_offset INTEGER NOT NULL,
  PRIMARY KEY ("group", topic)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS messages(
  topic TEXT NOT NULL, "offset" INTEGER NOT NULL, key BLOB NOT NULL, headers TEXT NOT NULL, value BLOB NOT NULL,
  size_bytes INTEGER NOT NULL, UNIQUE (topic, "offset"));
INSERT INTO log SELECT {FORMAT}, '%s', '' WHERE NOT EXISTS (SELECT 1 FROM log);
"""


class EmbeddedLog:
    """A log in one file. Threads each open their own."""

    keeps_messages = False

    def __init__(self, path: Path, *, backlog_bytes: int | None = None) -> None:
        """Open or make the file; with backlog_bytes, `append` waits while as much lies there unread."""
        self.path = path
        self._backlog_bytes = backlog_bytes
        self._pending: list[Message] = []
        self._pending_bytes = 0
        self.on_wait: Callable[[], None] = lambda: None  # called while append waits; may raise
        self._lock = threading.RLock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise from_os_error(error, str(path)) from error
        with self._told():
            self._db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            self._db.execute(f"PRAGMA page_size={_PAGE_BYTES}")  # of a new file
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript("BEGIN IMMEDIATE;" + _SCHEMA % secrets.token_hex(16) + "COMMIT;")
            version, self.identity = self._db.execute("SELECT format, id FROM log").fetchone()
        if version != FORMAT:
            raise InputError(
                f"log format {version} is not known", "install a newer flameslice", path=str(path)
            )

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Turn SQLite's errors into one line."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            remedies = {
                sqlite3.SQLITE_FULL: "free space on that disk and run it again: nothing appended so far is lost",
                sqlite3.SQLITE_NOTADB: "give a file that flameslice made, or a new name",
                sqlite3.SQLITE_CORRUPT: "move it away and ingest again: captures in the store are not in it",
                sqlite3.SQLITE_BUSY: "another process holds it for very long: end that, or wait",
                sqlite3.SQLITE_READONLY: "check the permissions",
                sqlite3.SQLITE_IOERR: "check the disk (is it full?), then run it again",
            }
            with contextlib.suppress(AttributeError, sqlite3.Error):
                self._db.rollback()
            raise WorkError(
                f"the log failed: {error}", remedies.get(code, ""), path=str(self.path)
            ) from error

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._told():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def bind(self, store_id: str, *, is_beside: bool = False) -> None:
        """Say which store this log hands over to; raises InputError where it is another's.

        is_beside: the log lies in the store itself, so it is that one's, whatever id it had.
        """
        with self._transaction() as db:
            db.execute("UPDATE log SET store = ? WHERE store = '' OR ?", (store_id, is_beside))
            known = db.execute("SELECT store FROM log").fetchone()[0]
        if known != store_id:
            raise InputError(
                "this log hands over to another store",
                "give the --data it was made with, or another --log",
                path=str(self.path),
            )

    def append(self, messages: Iterable[Message]) -> None:
        """Take messages in, a transaction for every few megabytes."""
        for message in messages:
            self._pending.append(message)
            self._pending_bytes += message.size_bytes
            if self._pending_bytes >= _TRANSACTION_BYTES:
                self._wait_for_room()
                self.flush()

    def flush(self) -> None:
        """Write what was appended in one transaction."""
        if not self._pending:
            return
        with self._transaction() as db:
            nexts: dict[str, int] = dict(db.execute("SELECT topic, next_offset FROM topics"))
            rows = []
            for message in self._pending:
                offset = nexts.get(message.topic, 0)
                nexts[message.topic] = offset + 1
                headers = json.dumps([[name, text.decode("latin-1")] for name, text in message.headers])
                rows.append((message.topic, offset, message.key, headers, message.value, message.size_bytes))
            db.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?)", rows)
            db.executemany("INSERT OR REPLACE INTO topics VALUES (?, ?)", nexts.items())
        self._pending, self._pending_bytes = [], 0

    def _wait_for_room(self) -> None:
        while self._backlog_bytes is not None and self.backlog_bytes() > self._backlog_bytes:
            self.on_wait()
            time.sleep(_WAIT_S)

    def backlog_bytes(self) -> int:
        """Return how much lies there that no worker has taken over."""
        with self._lock, self._told():
            query = "SELECT coalesce(sum(size_bytes), 0) FROM messages WHERE topic <> 'flameslice.deadletter'"
            return int(self._db.execute(query).fetchone()[0])

    def partitions(self, topic: str) -> list[Partition]:
        """Return the one partition of a topic that was ever appended to."""
        with self._lock, self._told():
            known = self._db.execute("SELECT 1 FROM topics WHERE topic = ?", (topic,)).fetchone()
        return [Partition(topic, 0)] if known else []

    def read(self, partition: Partition, offset: int, max_bytes: int = _POLL_BYTES) -> list[Record]:
        """Return records from offset on."""
        records: list[Record] = []
        taken = 0
        query = (
            'SELECT "offset", key, headers, value FROM messages WHERE topic = ? AND "offset" >= ?'
            ' ORDER BY "offset"'
        )
        with self._lock, self._told():
            for at, key, headers, value in self._db.execute(query, (partition.topic, offset)):
                pairs = tuple((name, text.encode("latin-1")) for name, text in json.loads(headers))
                records.append(Record(partition, at, Message(partition.topic, key, value, pairs)))
                taken += len(value)
                if taken >= max_bytes:
                    break
        return records

    def position(self, group: str, partition: Partition) -> int:
        """Return where the group reads next."""
        query = 'SELECT next_offset FROM positions WHERE "group" = ? AND topic = ?'
        with self._lock, self._told():
            found = self._db.execute(query, (group, partition.topic)).fetchone()
        return int(found[0]) if found else 0

    def commit(self, group: str, positions: Mapping[Partition, int]) -> None:
        """Note where the group reads next, and delete what lies before."""
        with self._transaction() as db:
            for partition, position in positions.items():
                db.execute(
                    "INSERT OR REPLACE INTO positions VALUES (?, ?, ?)", (group, partition.topic, position)
                )
                db.execute(
                    'DELETE FROM messages WHERE topic = ? AND "offset" < ?', (partition.topic, position)
                )

    def lag(self, group: str, topics: Sequence[str]) -> dict[Partition, int]:
        """Return how many messages of each topic the group has not committed."""
        query = """SELECT topics.topic, topics.next_offset - coalesce(positions.next_offset, 0) FROM topics
                   LEFT JOIN positions ON positions.topic = topics.topic AND positions."group" = ?"""
        with self._lock, self._told():
            return {
                Partition(topic, 0): lag
                for topic, lag in self._db.execute(query, (group,))
                if topic in topics
            }

    def consume(self, group: str, topics: Sequence[str]) -> EmbeddedConsumer:
        """Become the group's consumer; raises WorkError where another process is it."""
        consumer = self.try_consume(group, topics)
        if consumer is None:
            raise WorkError(
                "another worker reads this log", "end that one, or let it do the work", path=str(self.path)
            )
        return consumer

    def try_consume(self, group: str, topics: Sequence[str]) -> EmbeddedConsumer | None:
        """Become the group's consumer, or return None where another process is it."""
        try:
            handle = os.open(f"{self.path}.{group}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise from_os_error(error, str(self.path)) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return None
        return EmbeddedConsumer(self, group, topics, handle)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()


class EmbeddedConsumer:
    """The one reader of a group; it holds the group's lock until it is closed."""

    def __init__(self, log: EmbeddedLog, group: str, topics: Sequence[str], lock: int) -> None:
        self._log, self._group, self._lock = log, group, lock
        self._topics = tuple(topics)
        self._next: dict[Partition, int] = {}

    def poll(self, timeout_s: float) -> list[Record]:
        """Return what came next in every topic, a few megabytes at most."""
        deadline = time.monotonic() + timeout_s
        while True:
            records: list[Record] = []
            left_bytes = _POLL_BYTES
            for topic in self._topics:
                partition = Partition(topic, 0)
                if partition not in self._next:
                    self._next[partition] = self._log.position(self._group, partition)
                found = self._log.read(partition, self._next[partition], left_bytes)
                if found:
                    self._next[partition] = found[-1].offset + 1
                    records += found
                    left_bytes -= sum(len(record.message.value) for record in found)
                if left_bytes <= 0:
                    break
            if records or time.monotonic() >= deadline:
                return records
            time.sleep(_WAIT_S)

    def lost(self) -> frozenset[Partition]:
        """Return nothing: the lock keeps others out."""
        return frozenset()

    def commit(self, positions: Mapping[Partition, int]) -> bool:
        """Note where to read next, and delete what lies before."""
        self._log.commit(self._group, positions)
        return True

    def lag(self) -> dict[Partition, int]:
        """Return how many messages of each topic were not read yet; of one that nobody made yet, none."""
        lags = {Partition(topic, 0): 0 for topic in self._topics} | self._log.lag(self._group, self._topics)
        return {
            partition: lag - (self._next[partition] - self._log.position(self._group, partition))
            if partition in self._next
            else lag
            for partition, lag in lags.items()
        }

    def close(self) -> None:
        """Let the group's lock go."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
