"""polars, DuckDB, pandas and our own reader give the same answer of the same store, while it is compacted too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pytest

from flameslice import stored
from flameslice.commands.options import Asked
from flameslice.stored import StoredCaptureReader
from pipeline import schema
from pipeline.control import CaptureFact, SourceBegin, SourceFact
from pipeline.log import wire
from pipeline.log.wire import Splitter
from pipeline.store import compaction
from pipeline.store.catalog import Catalog
from pipeline.store.parts import Origin, StoredTable
from pipeline.store.place import open_place

ROOT = Path(__file__).resolve().parents[3]
ROWS = 3_000
SOURCES = ("a" * 64, "b" * 64)  # ROWS each
TABLE = "perf_events"


@dataclass(frozen=True, slots=True)
class Checksum:
    """What of a capture's samples must not depend on who reads them."""

    rows: int
    row_sum: int
    period_sum: int
    stacks: int
    first_time: int
    last_time: int


def samples(shift: int) -> pl.DataFrame:
    """Return rows whose every tenth has no time and every seventh no period, with numbers no float can hold."""
    number = pl.int_range(ROWS, dtype=pl.Int64, eager=True)
    columns: dict[str, object] = {name: [None] * ROWS for name in schema.PERF_EVENTS}
    columns |= {"raw_time": 2**62 + number * 1009 + shift, "period": 2**40 + number, "stack_id": number % 101}
    table = pl.DataFrame(columns).cast(dict(schema.PERF_EVENTS))  # type: ignore[arg-type]
    return table.with_columns(
        raw_time=pl.when(number % 10 != 0).then("raw_time"),
        period=pl.when(number % 7 != 0).then("period"),
        stack_id=pl.col("stack_id") + (2**64 - 101),  # the highest bit set: a signed reader is caught
    )


def expected() -> Checksum:
    """The checksum by plain Python, from how the rows are made."""
    numbers = range(ROWS)
    periods = sum(2**40 + number for number in numbers if number % 7)
    return Checksum(
        rows=2 * ROWS,
        row_sum=2 * sum(numbers),
        period_sum=2 * periods,
        stacks=101,
        first_time=2**62 + 1009,
        last_time=2**62 + (ROWS - 1) * 1009 + 1,
    )


def fill(data: Path, capture: str = "c1") -> Catalog:
    """Store a capture in more than a hundred parts."""
    catalog = Catalog(open_place(str(data)))
    for shift, source in enumerate(SOURCES):
        splitter = Splitter(capture, source, TABLE, row_bytes=3_000)
        rows = [wire.decode(one) for one in (*splitter.add(samples(shift)), *splitter.finish())]
        table = StoredTable(catalog.place, capture, TABLE)
        for one in rows:
            table.publish(source, [one], Origin("log", TABLE, 0, 0, 0))
        table.close()
        begin = SourceBegin(source, f"{shift}.txt", "perf_script")
        catalog.add(CaptureFact(capture, "name", sources=(begin,)))
        catalog.add(SourceFact(capture, source, "complete", messages={TABLE: splitter.messages}))
    catalog.write_manifest(capture)
    return catalog


# ------------------------------------------------------------------ readers: of one table folder of one store


def by_polars(data: Path) -> Checksum:
    rows = pl.scan_parquet(f"{data}/captures/capture=*/{TABLE}/part-*.parquet")
    return _of_polars(rows.filter(pl.col("capture") == "c1"))


def by_manifest(data: Path) -> Checksum:
    folder = data / "captures/capture=c1"
    names = json.loads((folder / "manifest.json").read_text())["parts"][TABLE]
    return _of_polars(pl.scan_parquet([folder / name for name in names], hive_partitioning=False))


def by_ourselves(data: Path) -> Checksum:
    catalog = Catalog(open_place(str(data)))
    capture = catalog.get("c1")
    assert capture is not None
    reader = StoredCaptureReader(catalog, capture)
    return _of_frame(stored.again_if_moved(lambda: reader.collect(_asked(reader.scan(TABLE)))))


def _asked(rows: pl.LazyFrame) -> pl.LazyFrame:
    return rows.select(
        pl.len(),
        pl.sum("row"),
        pl.sum("period"),
        pl.col("stack_id").n_unique(),
        pl.min("raw_time").alias("first"),
        pl.max("raw_time").alias("last"),
    )


def _of_polars(rows: pl.LazyFrame) -> Checksum:
    return _of_frame(_asked(rows).collect())


def _of_frame(answer: pl.DataFrame) -> Checksum:
    return Checksum(*answer.row(0))


def by_duckdb(data: Path) -> Checksum:
    query = f"""
        SELECT count(*), sum("row"), sum(period), count(DISTINCT stack_id), min(raw_time), max(raw_time)
        FROM read_parquet('{data}/captures/capture=*/{TABLE}/part-*.parquet', hive_partitioning = true)
        WHERE capture = 'c1'"""
    with duckdb.connect() as connection:
        answer = connection.execute(query).fetchone()
    assert answer is not None
    return Checksum(*map(int, answer))


def by_pandas(data: Path) -> Checksum:
    rows = pd.read_parquet(data / f"captures/capture=c1/{TABLE}", dtype_backend="numpy_nullable")
    return Checksum(
        len(rows),
        int(rows["row"].sum()),
        int(rows["period"].sum()),
        rows["stack_id"].nunique(),
        int(rows["raw_time"].min()),
        int(rows["raw_time"].max()),
    )


Reader = Callable[[Path], Checksum]
READERS: list[Reader] = [by_polars, by_manifest, by_ourselves, by_duckdb, by_pandas]
every_reader = pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)


@every_reader
def test_the_same_answer_of_many_parts_and_of_one(reader: Reader, tmp_path: Path) -> None:
    catalog = fill(tmp_path)
    assert len(catalog.parts("c1")[TABLE]) > 100
    assert reader(tmp_path) == expected()
    compaction.run(catalog)
    assert len(catalog.parts("c1")[TABLE]) == 1
    assert reader(tmp_path) == expected()


@every_reader
def test_another_capture_changes_nothing(reader: Reader, tmp_path: Path) -> None:
    fill(tmp_path)
    fill(tmp_path, "c2")
    assert reader(tmp_path) == expected()


# ------------------------------------------------------------------ while it is compacted


# compacts again and again, though nothing is to join; the parts change their names each time
COMPACTIONS = 8
COMPACTOR = """
import sys
from pipeline.store import compaction
from pipeline.store.catalog import Catalog
from pipeline.store.place import open_place

compaction._is_worth_it = lambda *anything: True
catalog = Catalog(open_place(sys.argv[1]))
print("begins", flush=True)
for number in range(int(sys.argv[2])):
    assert compaction.run(catalog, part_rows=(400, 1500)[number % 2])
"""


@contextmanager
def compacting(data: Path) -> Iterator[subprocess.Popen[str]]:
    """Compact in another process while entered; it ends by itself."""
    command = [sys.executable, "-c", COMPACTOR, str(data), str(COMPACTIONS)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        yield process


# what a reader may meet where a part went away between finding and reading it; it tries again
GONE: tuple[type[Exception], ...] = (FileNotFoundError, duckdb.IOException, stored.MovedError)


def insisting(reader: Reader, data: Path) -> Checksum:
    """Return what a reader gives, begun anew where parts went away."""
    for _ in range(100):
        try:
            return reader(data)
        except GONE:
            continue
        except pl.exceptions.ComputeError as error:  # polars' word for a glob that finds nothing
            if "expanded paths were empty" not in str(error):
                raise
    raise AssertionError("the parts are never there")


@every_reader
def test_the_same_answer_while_it_is_compacted(reader: Reader, tmp_path: Path) -> None:
    catalog = fill(tmp_path)
    answers = []
    with compacting(tmp_path) as process:
        while process.poll() is None:
            answers.append(insisting(reader, tmp_path))
    assert process.returncode == 0
    assert catalog.parts("c1")[TABLE][0].startswith(f"{TABLE}/part-c{COMPACTIONS:04d}-")
    assert set(answers) == {expected()}


def test_our_own_reader_tries_again_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = fill(tmp_path)
    capture = catalog.get("c1")
    assert capture is not None
    compaction.run(catalog)
    reader = StoredCaptureReader(catalog, capture)
    looks: list[Any] = [capture.parts, {}, catalog.parts("c1")]  # as listed before, amid, and after
    monkeypatch.setattr(Catalog, "parts", lambda self, one: looks.pop(0))
    rows = stored.again_if_moved(lambda: reader.collect(_asked(reader.scan(TABLE))))
    assert _of_frame(rows) == expected()
    assert looks == []


def test_our_own_reader_gives_up_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = fill(tmp_path)
    capture = catalog.get("c1")
    assert capture is not None
    monkeypatch.setattr(Catalog, "parts", lambda self, one: {})
    with pytest.raises(stored.MovedError, match="run it again"):
        StoredCaptureReader(catalog, capture).fold(Asked())
