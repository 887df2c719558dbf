"""What is said about captures on the control topic, and kept in the store as facts: JSON, one fact a message.

    {"schema_version": "1.0", "kind": "capture", "capture": ID, "name": "server", "labels": {}, "sources": [...], ...}
    {"schema_version": "1.0", "kind": "source", "capture": ID, "source": SHA256, "messages": {"frames": 1, ...}, ...}
    {"schema_version": "1.0", "kind": "delete", "capture": ID}

A fact is never changed, and their order does not matter: two workers that take in the same ones agree.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

from pipeline import schema
from pipeline.errors import InputError
from pipeline.log.protocol import CAPTURES, MAX_MESSAGE_BYTES, Message
from pipeline.log.wire import PoisonError, is_capture_id, text_headers

_INT64 = 1 << 63
_MAJOR = schema.SCHEMA_VERSION.partition(".")[0]


@dataclass(frozen=True, slots=True)
class SourceBegin:
    """A source that a capture is going to hold."""

    source: str
    file: str
    format: str
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CaptureFact:
    """A capture begins, or gets more sources."""

    capture: str
    name: str
    labels: dict[str, str] = field(default_factory=dict)
    started_realtime_ns: int = 0
    host: str = ""
    recorded_status: str = "complete"  # of the recording: a partial one stays partial
    sources: tuple[SourceBegin, ...] = ()
    kind: str = "capture"


@dataclass(frozen=True, slots=True)
class SourceFact:
    """A source has ended: everything of it is in the log."""

    capture: str
    source: str
    status: str  # complete, failed
    problem: str = ""
    ended_realtime_ns: int = 0
    clock: str = ""
    rows: int = 0  # that the source holds, read or not: the base of --max-loss
    lost_rows: int = 0  # of them, those that could not be read
    messages: dict[str, int] = field(default_factory=dict)  # table -> how many
    table_rows: dict[str, int] = field(default_factory=dict)
    default_event: str = ""
    arch: str = ""
    unit: str = ""  # of stack_weights
    is_folded: bool = False  # of stack_weights
    meta: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    kind: str = "source"


@dataclass(frozen=True, slots=True)
class DeleteFact:
    """A capture is deleted; no replay brings it back."""

    capture: str
    kind: str = "delete"


@dataclass(frozen=True, slots=True)
class DeadFact:
    """A message of a capture went to the dead letters."""

    capture: str
    source: str
    table: str
    sequence: int
    reason: str
    kind: str = "dead"


Fact = CaptureFact | SourceFact | DeleteFact | DeadFact
_KINDS: dict[str, type[Any]] = {
    "capture": CaptureFact,
    "source": SourceFact,
    "delete": DeleteFact,
    "dead": DeadFact,
}
_Kind = TypeVar("_Kind")


def to_json(fact: Fact) -> bytes:
    """Return the text of a fact."""
    body = {"schema_version": schema.SCHEMA_VERSION, **asdict(fact)}
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def name_of(fact: Fact) -> str:
    """Return the file of a fact: the same fact has the same."""
    return f"{fact.kind}-{hashlib.sha256(to_json(fact)).hexdigest()[:24]}.json"


def to_message(fact: Fact) -> Message:
    """Return a fact as a message of the control topic."""
    value = to_json(fact)
    if len(value) > MAX_MESSAGE_BYTES:
        raise InputError(
            f"the description of capture {fact.capture} takes {len(value)} bytes, more than a message holds",
            "ingest its files in several captures",
        )
    headers = {
        "capture": fact.capture,
        "kind": fact.kind,
        "schema_version": schema.SCHEMA_VERSION,
        "sha256": hashlib.sha256(value).hexdigest(),
    }
    encoded = tuple((name, text.encode()) for name, text in headers.items())
    return Message(CAPTURES, fact.capture.encode(), value, encoded)


def of_message(message: Message) -> Fact:
    """Return the fact of a message; raises PoisonError with the reason."""
    if hashlib.sha256(message.value).hexdigest() != text_headers(message).get("sha256"):
        raise PoisonError("the checksum does not fit the value")
    return of_json(message.value)


def of_json(text: bytes) -> Fact:
    """Return the fact of a text; raises PoisonError with the reason."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        raise PoisonError("not JSON") from None
    if not isinstance(body, dict):
        raise PoisonError("not a fact")
    version = body.get("schema_version")
    if not isinstance(version, str) or version.partition(".")[0] != _MAJOR:
        raise PoisonError(f"schema version {str(version)[:40]!r} is not known")
    kind = _KINDS.get(str(body.get("kind")))
    if kind is None:
        raise PoisonError(f"unknown kind {str(body.get('kind'))[:40]!r}")
    if not isinstance(body.get("capture"), str) or not is_capture_id(body["capture"]):
        raise PoisonError(f"no usable capture id: {str(body.get('capture'))[:40]!r}")
    fact: Fact = _built(kind, body)
    return fact


def _built(kind: type[_Kind], body: Mapping[str, Any]) -> _Kind:
    """Return a value of kind from its JSON; what a newer minor version added is left out."""
    types = {"str": str, "int": int, "bool": bool}
    given: dict[str, Any] = {}
    for one in fields(kind):  # type: ignore[arg-type]
        if one.name not in body:
            continue
        value = body[one.name]
        expected = str(one.type)
        if expected in types:
            is_right = type(value) is types[expected] and not (
                isinstance(value, int) and abs(value) >= _INT64
            )
        elif expected.startswith("dict"):
            wanted = int if "int" in expected else str
            is_right = isinstance(value, dict) and all(type(each) is wanted for each in value.values())
        elif expected == "tuple[str, ...]":
            is_right = isinstance(value, list) and all(isinstance(each, str) for each in value)
            value = tuple(value) if is_right else value
        else:
            is_right = isinstance(value, list) and all(isinstance(each, dict) for each in value)
            value = tuple(_built(SourceBegin, each) for each in value) if is_right else value
        if not is_right:
            raise PoisonError(f"{one.name} of a fact is not {expected}")
        given[one.name] = value
    try:
        return kind(**given)
    except TypeError as error:
        raise PoisonError(f"a fact that lacks something: {error}") from None
