"""Files of every source format, and a store that commands of their own process fill and read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flameslice import logs
from pipeline import schema
from pipeline.log.protocol import Log, Message
from pipeline.store.catalog import Catalog
from pipeline.store.place import open_place

DEMO = Path(__file__).resolve().parents[2] / "demo" / "capture" / "token_server.perf.txt.zst"
Run = Callable[..., Any]

STACK = "\t    401010 inner+0x10 (/bin/a)\n\t    401000 main+0x1 (/bin/a)\n\n"


def _perf_text(samples: int, *, comm: str = "app", pid: int = 7) -> bytes:
    """Return samples of perf script that all differ in time and period, over 50 stacks."""
    lines = []
    for number in range(samples):
        seconds, nanos = divmod(10**12 + number * 250_007, 10**9)
        lines.append(
            f"{comm} {pid}/{pid + number % 3} [{number % 2:03}] {seconds}.{nanos:09}: {number + 1} cpu-clock: \n"
            f"\t    40{number % 50:04x} leaf_{number % 50}+0x1 (/bin/a)\n{STACK}"
        )
    return "".join(lines).encode()


@dataclass
class Kept:
    """A store of its own, by the command line."""

    run: Run
    data: Path
    log: str = ""

    def ingest(self, *args: str | Path, status: int = 0, **options: Any) -> list[str]:
        """Ingest; return the ids of the captures."""
        ran = self("ingest", *args, **options)
        assert ran.status == status, ran.stderr
        ids: list[str] = ran.stdout.decode().split()
        return ids

    def __call__(self, command: str, *args: str | Path, **options: Any) -> Any:
        """Run a command on this store."""
        more = (
            []
            if not self.log or command in ("flamegraph", "slices", "chart", "compact")
            else ["--log", self.log]
        )
        words = command.split()
        return self.run(*words, *args, "--data", self.data, *more, **options)

    def open_log(self) -> Log:
        """Open the log in this process."""
        return logs.open_log(self.log or None, None, Catalog(open_place(str(self.data))))

    def append(self, messages: Sequence[Message]) -> None:
        """Put messages into the log as any producer may."""
        log = self.open_log()
        try:
            log.append(messages)
            log.flush()
        finally:
            log.close()

    def work(self) -> None:
        """Let a worker store what the log holds."""
        ran = self("worker --until-empty")
        assert ran.status == 0, ran.stderr

    def shown(self, capture: str) -> dict[str, Any]:
        """Return what `captures show --json` says."""
        ran = self("captures show", capture, "--json")
        assert ran.status == 0, ran.stderr
        body: dict[str, Any] = json.loads(ran.stdout)
        return body

    def listed(self) -> list[dict[str, Any]]:
        """Return what `captures list --json` says."""
        ran = self("captures list", "--json")
        assert ran.status == 0, ran.stderr
        captures: list[dict[str, Any]] = json.loads(ran.stdout)["captures"]
        return captures

    def folded(self, argument: str | Path, *options: str) -> bytes:
        """Return the folded stacks of every event of a stored capture or a file."""
        ran = self("flamegraph", argument, "--format", "folded", "--event", "all", *options)
        assert ran.status == 0, ran.stderr
        lines: bytes = ran.stdout
        assert lines
        return lines

    def folder(self, capture: str) -> Path:
        return self.data / "captures" / f"capture={capture}"

    def parts(self, capture: str) -> list[str]:
        """Return the files with rows of a capture."""
        folder = self.folder(capture)
        return sorted(str(path.relative_to(folder)) for path in folder.glob("*/part-*.parquet"))

    def table(self, capture: str, name: str) -> pl.DataFrame:
        """Return the stored rows of a table, in the order of their sources."""
        files = sorted(self.folder(capture).glob(f"{name}/part-*.parquet"))
        columns = {**schema.KEYS, **schema.TABLES[name]}
        if not files:
            return pl.DataFrame(schema=columns)
        return pl.read_parquet(files, hive_partitioning=False).select(list(columns)).sort("source", "row")

    def tables(self, capture: str) -> dict[str, pl.DataFrame]:
        """Return every stored table of a capture, without its id."""
        return {name: self.table(capture, name).drop("capture") for name in schema.STORED}

    def holds_the_same(self, capture: str, tables: dict[str, pl.DataFrame]) -> bool:
        """Return whether a capture holds these rows in this order, no more and no fewer."""
        return all(mine.equals(tables[name]) for name, mine in self.tables(capture).items())

    def tree(self) -> dict[str, bytes]:
        """Return every file of the store with its bytes, but for the log."""
        return {
            str(path.relative_to(self.data)): path.read_bytes()
            for path in sorted(self.data.rglob("*"))
            if path.is_file() and not path.name.startswith("log.sqlite")
        }


@pytest.fixture
def kept(run_cli: Run, tmp_path: Path) -> Kept:
    """A store on the embedded log."""
    return Kept(run_cli, tmp_path / "kept")


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.xdist_group("kafka"))])
def kept_anywhere(request: pytest.FixtureRequest) -> Kept:
    """A store on each log in turn."""
    found: Kept = request.getfixturevalue("kept" if request.param == "embedded" else "kept_on_kafka")
    return found


@pytest.fixture
def kept_on_kafka(run_cli: Run, tmp_path: Path, fresh_kafka: str) -> Kept:
    """A store on Kafka."""
    return Kept(run_cli, tmp_path / "kept", f"kafka://{fresh_kafka}")


@pytest.fixture
def perf_text() -> Callable[..., bytes]:
    """Makes perf script text: perf_text(samples, comm=..., pid=...)."""
    return _perf_text


@pytest.fixture
def demo() -> Path:
    """A recorded capture of the demo server: perf script text, compressed."""
    return DEMO
