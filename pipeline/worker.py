"""The worker: takes messages from the log and stores them as parts, each message once.

It holds rows for at most 5 seconds (or until a source ends, or memory says so), publishes a part per source and table,
and commits. What is delivered once rests on the parts, not on the commit: a message that a part holds is passed over.
A message that cannot be read goes to the dead letters with its reason, and the rest goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from pipeline import control, schema
from pipeline.control import DeadFact
from pipeline.errors import WorkError
from pipeline.log import dead_letters, wire
from pipeline.log.protocol import CAPTURES, PREFIX, Consumer, Log, Partition, Record
from pipeline.log.wire import PoisonError, Rows
from pipeline.store.catalog import Catalog
from pipeline.store.parts import Origin, StoredTable
from pipeline.store.states import StoredCapture

HOLD_S = 5.0
HOLD_BYTES = 48 << 20  # of rows; publishing them takes about three times as much
TOPICS = (CAPTURES, *(PREFIX + table for table in schema.STORED))
_TABLES_KNOWN = 256  # whose stored messages are remembered
_RETRY_FROM_S, _RETRY_TO_S, _RETRIES = 0.5, 30.0, 20


OnProblem = Callable[[WorkError, float], None]  # told what failed, and in how many seconds it is tried again
_Result = TypeVar("_Result")


class Observer(Protocol):
    """What watches a worker: its metrics."""

    def read(self, records: Sequence[Record]) -> None:
        """Records came from the log."""

    def stored(self, capture: str, table: str, rows: int, size_bytes: int, seconds: float) -> None:
        """Rows were published; 0: all of them were stored before. size_bytes is what they take in memory."""

    def lost(self, reason: str, count: int) -> None:
        """A stored source says that a collector lost so much."""

    def dead(self, reason: str, record: Record) -> None:
        """A message went to the dead letters."""

    def dropped(self, capture: str, messages: int) -> None:
        """Messages of a capture that was deleted were passed over."""

    def changed(self, capture: StoredCapture) -> None:
        """More of a capture is stored, or known."""

    def committed(self, seconds: float) -> None:
        """A commit took so long."""


class Unwatched:
    """Watches nothing."""

    def read(self, records: Sequence[Record]) -> None:
        """Do nothing."""

    def stored(self, capture: str, table: str, rows: int, size_bytes: int, seconds: float) -> None:
        """Do nothing."""

    def lost(self, reason: str, count: int) -> None:
        """Do nothing."""

    def dead(self, reason: str, record: Record) -> None:
        """Do nothing."""

    def dropped(self, capture: str, messages: int) -> None:
        """Do nothing."""

    def changed(self, capture: StoredCapture) -> None:
        """Do nothing."""

    def committed(self, seconds: float) -> None:
        """Do nothing."""


def patiently(
    work: Callable[[], _Result], is_stopped: Callable[[], bool], on_problem: OnProblem
) -> _Result | None:
    """Return what work returns; where it fails try again, later and later, and raise what fails for minutes.

    None: it was told to stop meanwhile.
    """
    for failures in range(_RETRIES):
        try:
            return work()
        except WorkError as error:
            delay_s = min(_RETRY_TO_S, _RETRY_FROM_S * 2**failures)
            on_problem(error, delay_s)
        until_s = time.monotonic() + delay_s
        while time.monotonic() < until_s:
            if is_stopped():
                return None
            time.sleep(0.1)
    return work()


@dataclass(slots=True)
class _Held:
    """Messages of one source and table that are not stored yet."""

    rows: list[Rows] = field(default_factory=list)
    records: list[tuple[Partition, int]] = field(default_factory=list)


class Worker:
    """Moves messages from a log into a store."""

    def __init__(
        self,
        log: Log,
        consumer: Consumer,
        catalog: Catalog,
        *,
        observer: Observer | None = None,
        now_s: Callable[[], float] = time.monotonic,
        hold_s: float = HOLD_S,
        hold_bytes: int = HOLD_BYTES,
    ) -> None:
        self._log, self._consumer, self._catalog = log, consumer, catalog
        self._observer: Observer = observer or Unwatched()
        self._now_s = now_s
        self._hold_s, self._hold_bytes = hold_s, hold_bytes
        self._stored: dict[tuple[str, str], StoredTable] = {}
        self._noted: set[str] = set()  # captures of which the store knows the log
        self._forget()

    def _forget(self) -> None:
        """Drop what was read and not committed: it is read again, here or elsewhere."""
        self._held: dict[tuple[str, str, str], _Held] = {}
        self._poison: list[tuple[Record, str]] = []
        self._facts: list[control.Fact] = []
        self._positions: dict[Partition, int] = {}
        self._bytes = 0
        self._since_s: float | None = None
        self._ended = False

    def step(self, timeout_s: float = 1.0) -> int:
        """Read once, publish where it is due; return how many messages came."""
        if self._is_due():  # it was tried before and failed: nothing more is held until it is done
            self.flush()
        if self._since_s is not None:
            timeout_s = max(0.0, min(timeout_s, self._since_s + self._hold_s - self._now_s()))
        records = self._consumer.poll(timeout_s)
        lost = self._consumer.lost()
        if lost:
            # another may store what is held here: begin again from what is committed and stored
            kept = self._positions.keys() - lost
            if kept:
                self.flush(only=frozenset(kept))
            self._forget()
            self._close_tables()
            records = [record for record in records if record.partition not in lost]
        if records:
            self._observer.read(records)
            for record in records:
                self._take(record)
        if self._is_due():
            self.flush()
        return len(records)

    def _is_due(self) -> bool:
        if self._since_s is None:
            return False
        return self._ended or self._bytes >= self._hold_bytes or self._now_s() - self._since_s >= self._hold_s

    def _take(self, record: Record) -> None:
        """Take one record in."""
        self._positions[record.partition] = record.offset + 1
        if self._since_s is None:
            self._since_s = self._now_s()
        self._bytes += record.message.size_bytes
        try:
            if record.partition.topic == CAPTURES:
                self._facts.append(control.of_message(record.message))
                self._ended = True
                return
            rows = wire.decode(record.message)
        except PoisonError as error:
            self._poison.append((record, str(error)))
            return
        identity = rows.identity
        held = self._held.setdefault((identity.capture, identity.source, identity.table), _Held())
        held.rows.append(rows)
        held.records.append((record.partition, record.offset))
        self._bytes += rows.size_bytes
        self._ended |= rows.is_last

    def flush(self, only: frozenset[Partition] | None = None) -> None:
        """Store what is held, then commit; `only`: what came from these partitions."""
        touched: set[str] = set()
        for record, reason in self._poison:
            if only is None or record.partition in only:
                self._bury(record, reason, touched)
        if self._poison:
            self._log.flush()
            self._poison = []  # if the rest fails and is tried again, these are buried
        for fact in self._facts:
            self._catalog.add(fact)
            touched.add(fact.capture)
        for (capture, source, table), held in self._held.items():
            if only is None or held.records[0][0] in only:
                self._publish(capture, source, table, held)
                touched.add(capture)
        for capture in sorted(touched):
            known = {table: stored for (one, table), stored in self._stored.items() if one == capture}
            changed = self._catalog.write_manifest(capture, known)
            if changed is not None:
                self._note(capture)  # one without rows could be brought back just as well
                self._catalog.forget_if_deleted(capture)
                self._observer.changed(changed)
        positions = {
            partition: position
            for partition, position in self._positions.items()
            if only is None or partition in only
        }
        started_s = self._now_s()
        is_ours = self._consumer.commit(positions) if positions else True
        self._observer.committed(self._now_s() - started_s)
        self._forget()
        if not is_ours:
            self._close_tables()

    def _publish(self, capture: str, source: str, table: str, held: _Held) -> None:
        if self._catalog.is_deleted(capture):
            self._observer.dropped(capture, len(held.records))
            return
        self._note(capture)
        offsets = [offset for _, offset in held.records]
        partition = held.records[0][0]
        origin = Origin(self._log.identity, partition.topic, partition.number, min(offsets), max(offsets))
        started_s = self._now_s()
        added = self._table(capture, table).publish(source, held.rows, origin)
        if self._catalog.forget_if_deleted(capture):
            self._close_tables()
            return
        size_bytes = sum(rows.size_bytes for rows in held.rows)
        self._observer.stored(capture, table, added, size_bytes, self._now_s() - started_s)
        if table == "losses" and added:
            for rows in held.rows:
                for reason, count in rows.table.select("reason", "count").iter_rows():
                    self._observer.lost(reason, count)

    def _note(self, capture: str) -> None:
        """Keep which log feeds a capture, where it could feed it to another store again."""
        if self._log.keeps_messages and capture not in self._noted:
            self._catalog.note_log(capture, self._log.identity)
            self._noted.add(capture)

    def _table(self, capture: str, table: str) -> StoredTable:
        key = (capture, table)
        if key not in self._stored and len(self._stored) >= _TABLES_KNOWN:
            self._close_tables()
        return self._stored.setdefault(key, StoredTable(self._catalog.place, capture, table))

    def _bury(self, record: Record, reason: str, touched: set[str]) -> None:
        self._log.append([dead_letters.wrap(record, reason)])
        self._observer.dead(reason, record)
        try:
            identity = wire.identity_of(wire.text_headers(record.message))
        except PoisonError:
            return
        if record.partition.topic != CAPTURES:
            fact = DeadFact(
                identity.capture, identity.source, identity.table, identity.sequence, reason[:300]
            )
            self._facts.append(fact)
            touched.add(identity.capture)

    def _close_tables(self) -> None:
        for stored in self._stored.values():
            stored.close()
        self._stored = {}

    def run(self, is_stopped: Callable[[], bool], *, on_problem: OnProblem) -> None:
        """Work until told to stop; what fails is tried again, later and later, and in the end raised."""
        while not is_stopped():
            patiently(self.step, is_stopped, on_problem)
        self.flush()

    def close(self) -> None:
        """Leave the log; what was not published is read again."""
        self._close_tables()
        self._consumer.close()
