"""Which captures a store holds, and how far each has come.

captures/capture=ID/facts/*.json   what was said of it on the control topic, one file a fact, never changed
captures/capture=ID/log.json       which log fed it that still holds its messages
captures/capture=ID/manifest.json  what follows from the facts and the parts: rewritten whenever they change
deleted/ID.json                    it was deleted: nothing brings it back
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from pipeline import schema
from pipeline.control import (
    DeleteFact,
    Fact,
    SourceFact,
    name_of,
    of_json,
    to_json,
)
from pipeline.errors import FlamesliceError, InputError
from pipeline.log.wire import PoisonError, is_capture_id
from pipeline.store.parts import PART, Ranges, StoredTable, folder_of, identities_of, ranges_of
from pipeline.store.place import Place
from pipeline.store.states import StoredCapture, capture_of, describe

_STORE_FILE = "store.json"
_LOG_FILE = "log.json"
_MAJOR = schema.SCHEMA_VERSION.partition(".")[0]


class Catalog:
    """The captures of one store."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def store_id(self) -> str:
        """Return the random id of this store, made where it has none."""
        while True:
            text = self.place.read(_STORE_FILE)
            if text is not None:
                break
            body = {"schema_version": schema.SCHEMA_VERSION, "id": secrets.token_hex(8)}
            self.place.create(_STORE_FILE, json.dumps(body).encode())
        try:
            return str(json.loads(text)["id"])
        except (ValueError, KeyError, TypeError):
            path = self.place.target(_STORE_FILE)
            raise InputError("not the file of a store", "move it away", path=path) from None

    def is_there(self) -> bool:
        """Return whether anything was ever kept here."""
        return self.place.read(_STORE_FILE) is not None or bool(self.place.folders("captures"))

    # where captures came from

    def note_log(self, capture: str, identity: str) -> None:
        """Keep which log feeds a capture, where that log could feed it to another store again."""
        body = {"schema_version": schema.SCHEMA_VERSION, "log": identity}
        self.place.create(f"{self._folder(capture)}/{_LOG_FILE}", json.dumps(body).encode())

    def log_of(self, capture: str) -> str | None:
        """Return the identity of the log that fed a capture and still holds its messages; None: there is none."""
        text = self.place.read(f"{self._folder(capture)}/{_LOG_FILE}")
        try:
            return None if text is None else str(json.loads(text)["log"])
        except (ValueError, KeyError, TypeError):
            return ""  # damaged: some log, nobody knows which

    # facts

    def add(self, fact: Fact) -> None:
        """Keep a fact; the same one again changes nothing."""
        if isinstance(fact, DeleteFact):
            self.place.create(f"deleted/{fact.capture}.json", to_json(fact))
            self.place.remove(f"captures/capture={fact.capture}")
            return
        if self.is_deleted(fact.capture) or self._is_known(fact):
            return
        self.place.create(f"{self._folder(fact.capture)}/facts/{name_of(fact)}", to_json(fact))
        self.forget_if_deleted(fact.capture)

    def _is_known(self, fact: Fact) -> bool:
        """Return whether the end of a source was told before, at another time: it was ingested once more."""
        if not isinstance(fact, SourceFact):
            return False
        return any(
            isinstance(known, SourceFact) and replace(known, ended_realtime_ns=fact.ended_realtime_ns) == fact
            for known in self.facts(fact.capture).values()
        )

    def is_deleted(self, capture: str) -> bool:
        """Return whether a capture was deleted."""
        return self.place.read(f"deleted/{capture}.json") is not None

    def forget_if_deleted(self, capture: str) -> bool:
        """Remove what was written of a capture while another process deleted it; return whether it was."""
        if not self.is_deleted(capture):
            return False
        self.place.remove(f"captures/capture={capture}")
        return True

    def facts(self, capture: str) -> dict[str, Fact]:
        """Return what is known of a capture, by the names of the files, sorted."""
        folder = f"{self._folder(capture)}/facts"
        found: dict[str, Fact] = {}
        for name in self.place.names(folder):
            text = self.place.read(f"{folder}/{name}")
            try:
                if text is not None:
                    found[name] = of_json(text)
            except PoisonError as error:
                path = self.place.target(f"{folder}/{name}")
                raise InputError(f"a damaged fact: {error}", "move it away", path=path) from None
        return found

    @staticmethod
    def _folder(capture: str) -> str:
        return f"captures/capture={capture}"

    # captures

    def ids(self) -> list[str]:
        """Return the ids of all captures, sorted."""
        names = self.place.folders("captures")
        return [name.removeprefix("capture=") for name in names if name.startswith("capture=")]

    def get(self, capture: str, more: Iterable[Fact] = ()) -> StoredCapture | None:
        """Return a capture as it stands now; `more` are facts that no worker has taken in yet.

        The manifest is believed where it speaks of the same facts and parts as there are.
        """
        if self.is_deleted(capture):
            return None
        facts = self.facts(capture)
        for fact in more:
            if isinstance(fact, DeleteFact):
                return None
            facts.setdefault(name_of(fact), fact)
        if not facts:
            return None
        parts = self.parts(capture)
        known = self.manifest(capture)
        if known is not None and known.get("as_of") == _as_of(facts, parts):
            stored = {
                key: {source: [(a, b) for a, b in ranges] for source, ranges in per_source.items()}
                for key, per_source in known["stored"].items()
            }
        else:
            stored = {table: self._stored(capture, table, names) for table, names in parts.items()}
        return capture_of(capture, facts, parts, stored)

    def _stored(self, capture: str, table: str, names: Iterable[str]) -> dict[str, Ranges]:
        """Return which messages of each source the parts of a table hold, by reading their metadata."""
        sequences: dict[str, set[int]] = {}
        for name in names:
            target = self.place.target(f"{self._folder(capture)}/{name}")
            for source, ranges in identities_of(target, self.place, name).items():
                for first, last in ranges:
                    sequences.setdefault(source, set()).update(range(first, last + 1))
        return {source: ranges_of(numbers) for source, numbers in sequences.items()}

    def parts(self, capture: str) -> dict[str, tuple[str, ...]]:
        """Return the live parts of each table, as paths in the capture's folder."""
        found = {}
        for table in schema.STORED:
            names = [name for name in self.place.names(folder_of(capture, table)) if name.startswith(PART)]
            if names:
                found[table] = tuple(f"{table}/{name}" for name in names)
        return found

    def manifest(self, capture: str) -> dict[str, Any] | None:
        """Return what manifest.json says, None where there is none or it is of another major version."""
        text = self.place.read(f"{self._folder(capture)}/manifest.json")
        try:
            body = None if text is None else json.loads(text)
        except ValueError:
            return None  # it follows from the facts: made anew with the next change
        if not isinstance(body, dict) or str(body.get("schema_version", "")).partition(".")[0] != _MAJOR:
            return None
        return body

    def write_manifest(
        self, capture: str, known: Mapping[str, StoredTable] | None = None
    ) -> StoredCapture | None:
        """Make manifest.json follow from facts and parts; return the capture.

        known: what a worker knows of its tables, to spare it reading every part's metadata.
        """
        if self.is_deleted(capture):
            return None
        facts = self.facts(capture)
        if not facts:
            return None
        parts = self.parts(capture)
        sources = {fact.source for fact in facts.values() if isinstance(fact, SourceFact)}
        stored: dict[str, dict[str, Ranges]] = {}
        for table, names in parts.items():
            if known is not None and table in known:
                known[table].refresh()
                stored[table] = {one: ranges_of(known[table].sequences(one)) for one in sorted(sources)}
            else:
                stored[table] = self._stored(capture, table, names)
        found = capture_of(capture, facts, parts, stored)
        body = describe(found) | {
            "parts": {table: list(names) for table, names in parts.items()},
            "stored": stored,
            "as_of": _as_of(facts, parts),
        }
        text = json.dumps(body, indent=1, sort_keys=True).encode() + b"\n"
        self.place.replace(f"{self._folder(capture)}/manifest.json", text)
        self.forget_if_deleted(capture)
        return found

    def all(
        self,
        more: Mapping[str, list[Fact]] | None = None,
        on_problem: Callable[[FlamesliceError], None] | None = None,
    ) -> list[StoredCapture]:
        """Return every capture, the newest first; `more` are facts by capture that no worker has taken in yet.

        on_problem: told what is damaged, and the rest is returned; without it that is raised.
        """
        more = more or {}
        captures = []
        for one in sorted({*self.ids(), *more}):
            try:
                found = self.get(one, more.get(one, ()))
            except InputError as error:
                if on_problem is None:
                    raise
                on_problem(error)
                continue
            if found is not None:
                captures.append(found)
        return sorted(captures, key=lambda one: (-one.started_realtime_ns, one.id))

    def resolve(self, text: str, more: Mapping[str, list[Fact]] | None = None) -> StoredCapture | None:
        """Return the capture of an id, or of a name that only one has; raises InputError where several have it."""
        more = more or {}
        by_id = self.get(text, more.get(text, ())) if is_capture_id(text) else None
        if by_id is not None:
            return by_id
        problems: list[FlamesliceError] = []
        named = [one for one in self.all(more, problems.append) if one.name == text]
        if not named and problems:
            raise problems[0]  # it may be this one
        if len(named) > 1:
            ids = ", ".join(one.id for one in named[:5]) + (" ..." if len(named) > 5 else "")
            raise InputError(f"{len(named)} captures have this name", f"give an id: {ids}", path=text)
        return named[0] if named else None


def _as_of(facts: Iterable[str], parts: Mapping[str, tuple[str, ...]]) -> list[str]:
    return sorted({*facts, *(name for names in parts.values() for name in names)})
