"""What a capture is and how far it has come: follows from the facts about it and from which messages are stored.

A capture is `complete` when every message that its sources announced is stored, `receiving` while some are missing,
`partial` when they will not come (a source failed, a message went to the dead letters, the recording was cut), `failed`
when no source was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pipeline import schema
from pipeline.control import CaptureFact, DeadFact, DeleteFact, Fact, SourceBegin, SourceFact
from pipeline.store.parts import Ranges

Status = Literal["receiving", "complete", "partial", "failed"]


@dataclass(frozen=True, slots=True)
class SourceState:
    """A source of a capture, and how much of it is stored."""

    begin: SourceBegin
    end: SourceFact | None
    missing: int  # messages that were announced and are not stored
    dead: int  # of them in the dead letters

    @property
    def status(self) -> Status:
        """Return how far it has come."""
        if self.end is None:
            return "receiving"
        if self.end.status != "complete":
            return "failed"
        if self.missing == 0:
            return "complete"
        return "partial" if self.dead >= self.missing else "receiving"


@dataclass(frozen=True, slots=True)
class StoredCapture:
    """A capture as the store or the log knows it."""

    id: str
    name: str
    labels: Mapping[str, str]
    started_realtime_ns: int
    host: str
    recorded_status: str
    sources: tuple[SourceState, ...]
    parts: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # table -> paths in the capture's folder

    @property
    def status(self) -> Status:
        """Return the status of the whole."""
        states = {source.status for source in self.sources}
        if not states or "receiving" in states:
            return "receiving"
        if states == {"failed"}:
            return "failed"
        if states == {"complete"} and self.recorded_status == "complete":
            return "complete"
        return "partial"

    @property
    def rows(self) -> int:
        """Return how many rows its sources hold, read or not, as `ingest` says it."""
        return sum(one.end.rows for one in self.sources if one.end is not None)

    @property
    def lost_rows(self) -> int:
        """Return how many of them could not be read."""
        return sum(one.end.lost_rows for one in self.sources if one.end is not None)


def describe(capture: StoredCapture) -> dict[str, Any]:
    """Return a capture for JSON."""
    return {
        "schema_version": schema.SCHEMA_VERSION,
        "id": capture.id,
        "name": capture.name,
        "status": capture.status,
        "labels": dict(capture.labels),
        "started_realtime_ns": capture.started_realtime_ns,
        "host": capture.host,
        "rows": capture.rows,
        "lost_rows": capture.lost_rows,
        "sources": [_describe_source(one) for one in capture.sources],
    }


def _describe_source(state: SourceState) -> dict[str, Any]:
    body: dict[str, Any] = {
        "source": state.begin.source,
        "file": state.begin.file,
        "format": state.begin.format,
        "size_bytes": state.begin.size_bytes,
        "status": state.status,
        "missing_messages": state.missing,
        "dead_letters": state.dead,
    }
    if state.end is not None:
        body |= {
            "clock": state.end.clock,
            "rows": state.end.rows,
            "lost_rows": state.end.lost_rows,
            "table_rows": dict(state.end.table_rows),
            "problem": state.end.problem,
            "notes": list(state.end.notes),
        }
    return body


def capture_of(
    capture: str,
    facts: Mapping[str, Fact],
    parts: Mapping[str, tuple[str, ...]],
    stored: Mapping[str, Mapping[str, Ranges]],
) -> StoredCapture:
    begins: dict[str, SourceBegin] = {}
    ends: dict[str, SourceFact] = {}
    dead: dict[str, set[tuple[str, int]]] = {}
    first: CaptureFact | None = None
    labels: dict[str, str] = {}
    for _, fact in sorted(facts.items()):
        match fact:
            case CaptureFact():
                first = (
                    fact if first is None or fact.started_realtime_ns < first.started_realtime_ns else first
                )
                labels |= fact.labels
                begins |= {begin.source: begin for begin in fact.sources}
            case SourceFact():
                known = ends.get(fact.source)
                if known is None or _rank(fact) > _rank(known):
                    ends[fact.source] = fact
            case DeadFact():
                dead.setdefault(fact.source, set()).add((fact.table, fact.sequence))
            case DeleteFact():
                pass
    for source in ends:
        begins.setdefault(source, SourceBegin(source, "", ""))
    states = []
    for source, begin in begins.items():
        end = ends.get(source)
        missing, buried = _missing(end, stored, dead.get(source, set())) if end is not None else (0, 0)
        states.append(SourceState(begin, end, missing, buried))
    return StoredCapture(
        id=capture,
        name=first.name if first is not None else capture,
        labels=labels,
        started_realtime_ns=first.started_realtime_ns if first is not None else 0,
        host=first.host if first is not None else "",
        recorded_status=first.recorded_status if first is not None else "complete",
        sources=tuple(sorted(states, key=lambda one: (one.begin.file, one.begin.source))),
        parts=parts,
    )


def _missing(
    end: SourceFact, stored: Mapping[str, Mapping[str, Ranges]], dead: set[tuple[str, int]]
) -> tuple[int, int]:
    """Return how many messages that a source announced are not stored, and how many of them are dead letters."""
    missing = buried = 0
    for table, count in end.messages.items():
        have = stored.get(table, {}).get(end.source, [])
        # by ranges: what a fact announces may be any number
        missing += max(0, count) - sum(max(0, min(last, count - 1) - first + 1) for first, last in have)
        buried += sum(
            name == table and 0 <= number < count and not any(first <= number <= last for first, last in have)
            for name, number in dead
        )
    return missing, buried


def _rank(fact: SourceFact) -> tuple[bool, int]:
    return fact.status == "complete", fact.ended_realtime_ns
