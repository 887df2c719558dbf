"""The captures that a command can name: those of the store, and those that so far only the log knows."""

from __future__ import annotations

from collections.abc import Sequence

from flameslice import logs
from flameslice.stored import PREFIX, StoredCaptureReader, data_url
from pipeline import control
from pipeline.control import DeleteFact, Fact
from pipeline.errors import FlamesliceError, InputError, UsageError
from pipeline.log.protocol import Log
from pipeline.losses import Loss
from pipeline.store.catalog import Catalog
from pipeline.store.place import open_place
from pipeline.store.states import StoredCapture


class Kept:
    """What is kept under --data, and what waits in --log."""

    def __init__(self, data: str | None, log: str | None, log_config: str | None) -> None:
        self._url = data_url(data)
        self._catalog = Catalog(open_place(self._url))
        self._log_url, self._log_config = log, log_config
        self._facts: dict[str, list[Fact]] | None = None

    def _open_log(self) -> Log | None:
        return logs.open_existing(self._log_url, self._log_config, self._catalog)

    def facts(self) -> dict[str, list[Fact]]:
        """Return what the log says of captures."""
        if self._facts is None:
            log = self._open_log()
            self._facts = {} if log is None else logs.pending_facts(log)
            if log is not None:
                log.close()
        return self._facts

    def all(self) -> tuple[list[StoredCapture], list[FlamesliceError]]:
        """Return all captures, the newest first, and what is wrong with those that cannot be told."""
        problems: list[FlamesliceError] = []
        return self._catalog.all(self.facts(), problems.append), problems

    def find(self, name: str) -> StoredCapture:
        """Return the capture of an id or name."""
        found = self._catalog.resolve(name.removeprefix(PREFIX), self.facts())
        if found is None:
            problem = self.missing_store() or f"no such capture in {self._url}"
            raise InputError(problem, "see flameslice captures list, or give --data", path=name)
        return found

    def losses(self, capture: StoredCapture) -> tuple[Loss, ...]:
        """Return what was lost of a capture, as far as it is stored."""
        return StoredCaptureReader(self._catalog, capture).losses()

    def delete(self, captures: Sequence[StoredCapture], *, only_here: bool = False) -> None:
        """Delete captures in the store, and say so in the log for whoever replays it.

        Raises UsageError before any is deleted where a log that holds one's messages would not be told.
        """
        log = self._open_log()
        try:
            for one in captures:
                fed_by = self._catalog.log_of(one.id)
                if fed_by is not None and not only_here and (log is None or log.identity != fed_by):
                    raise UsageError(
                        f"{one.id} came by way of Kafka (cluster {fed_by}), and a replay of that would bring it back",
                        "give its --log kafka://HOST:PORT, or --only-here to delete it in this store alone",
                    )
            facts = [DeleteFact(one.id) for one in captures]
            if log is not None:
                log.append([control.to_message(fact) for fact in facts])
                log.flush()
        finally:
            if log is not None:
                log.close()
        for fact in facts:
            self._catalog.add(fact)

    def missing_store(self) -> str | None:
        """Return a line that there is no store where one is looked for; None: there is one, or the log knows some."""
        if self._catalog.is_there() or self.facts():
            return None
        return f"no store at {self._url}: nothing was ingested there yet"
