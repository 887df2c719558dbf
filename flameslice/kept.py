"""The captures that a command can name: those of the store, and those that so far only the log knows."""

from __future__ import annotations

from flameslice import logs
from flameslice.stored import PREFIX, StoredCaptureReader, data_url
from pipeline import control
from pipeline.control import DeleteFact, Fact
from pipeline.errors import FlamesliceError, InputError
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
            raise InputError(f"no such capture in {self._url}", "see flameslice captures list", path=name)
        return found

    def losses(self, capture: StoredCapture) -> tuple[Loss, ...]:
        """Return what was lost of a capture, as far as it is stored."""
        return StoredCaptureReader(self._catalog, capture).losses()

    def delete(self, capture: StoredCapture) -> None:
        """Delete a capture in the store, and say so in the log for whoever replays it."""
        fact = DeleteFact(capture.id)
        log = self._open_log()
        if log is not None:
            log.append([control.to_message(fact)])
            log.flush()
            log.close()
        self._catalog.add(fact)
