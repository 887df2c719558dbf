"""Compaction: the same rows before, during and after, wherever it is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from pipeline import schema
from pipeline.control import CaptureFact, SourceBegin, SourceFact
from pipeline.errors import InputError
from pipeline.log import wire
from pipeline.log.wire import Splitter
from pipeline.store import compaction
from pipeline.store.catalog import Catalog
from pipeline.store.parts import Origin, StoredTable
from pipeline.store.place import LocalPlace

ROOT = Path(__file__).resolve().parents[3]
ROWS, PARTS = 2_000, 20
ORIGIN = Origin("log", "flameslice.perf_events", 0, 0, 0)


def events(rows: int = ROWS) -> pl.DataFrame:
    number = pl.int_range(rows, dtype=pl.Int64, eager=True)
    columns: dict[str, object] = {name: [None] * rows for name in schema.PERF_EVENTS}
    # times go up and down, some are equal, some are not there
    times = (number * 7919 % 1000).to_frame("t").select(pl.when(number % 50 != 0).then("t")).to_series()
    columns |= {"raw_time": times, "period": number, "stack_id": number % 7}
    return pl.DataFrame(columns).cast(dict(schema.PERF_EVENTS))  # type: ignore[arg-type]


def stored_capture(root: Path, capture: str = "c1", *, is_complete: bool = True) -> Catalog:
    """Make a capture of two tables in many parts."""
    catalog = Catalog(LocalPlace(root))
    tables = {
        "perf_events": events(),
        "frames": pl.DataFrame(
            {name: [None] * 40 for name in schema.FRAMES}, schema=schema.FRAMES
        ).with_columns(frame_id=pl.int_range(40, dtype=pl.UInt64), symbol=pl.lit("f")),
    }
    messages: dict[str, int] = {}
    for table, rows in tables.items():
        splitter = Splitter(capture, "s" * 64, table, row_bytes=rows.height * 3)
        decoded = [wire.decode(one) for one in (*splitter.add(rows), *splitter.finish())]
        messages[table] = splitter.messages
        stored = StoredTable(catalog.place, capture, table)
        size = max(1, len(decoded) // PARTS)
        for start in range(0, len(decoded), size):
            stored.publish("s" * 64, decoded[start : start + size], ORIGIN)
        stored.close()
    catalog.add(CaptureFact(capture, "name", sources=(SourceBegin("s" * 64, "f", "perf_script"),)))
    if is_complete:
        catalog.add(SourceFact(capture, "s" * 64, "complete", messages=messages))
    catalog.write_manifest(capture)
    return catalog


def by_glob(root: Path, table: str = "perf_events") -> pl.DataFrame:
    pattern = f"{root}/captures/capture=c1/{table}/part-*.parquet"
    return pl.read_parquet(pattern, hive_partitioning=False).sort("row")


def by_manifest(root: Path, table: str = "perf_events") -> pl.DataFrame:
    folder = root / "captures/capture=c1"
    names = json.loads((folder / "manifest.json").read_text())["parts"][table]
    return pl.read_parquet([folder / name for name in names], hive_partitioning=False).sort("row")


def check(root: Path) -> None:
    for read in (by_glob, by_manifest):
        rows = read(root)
        assert rows["row"].to_list() == list(range(ROWS))
        assert rows.select(schema.PERF_EVENTS.names()).equals(events())
        assert read(root, "frames")["row"].to_list() == list(range(40))


def folders(root: Path) -> list[str]:
    return [path.name for path in (root / "captures/capture=c1").iterdir()]


def part_names(root: Path, table: str = "perf_events") -> list[str]:
    return sorted(path.name for path in (root / f"captures/capture=c1/{table}").glob("part-*.parquet"))


def test_many_parts_become_few_in_order_of_time(tmp_path: Path) -> None:
    catalog = stored_capture(tmp_path)
    check(tmp_path)
    assert len(part_names(tmp_path)) >= PARTS
    (done,) = compaction.run(catalog, part_rows=700)
    assert (done.capture, done.after) == ("c1", 5)
    names = part_names(tmp_path)
    assert len(names) == 4  # 2,000 rows, those without a time by themselves
    check(tmp_path)
    parts = [pl.read_parquet(tmp_path / f"captures/capture=c1/perf_events/{name}") for name in names]
    times = pl.concat(parts)["raw_time"].drop_nulls()
    assert times.is_sorted()
    found = catalog.get("c1")
    assert found is not None
    assert found.status == "complete"
    assert sorted(folders(tmp_path)) == [
        "facts",
        "frames",
        "manifest.json",
        "perf_events",
    ]


def test_once_is_enough(tmp_path: Path) -> None:
    catalog = stored_capture(tmp_path)
    compaction.run(catalog)
    names = part_names(tmp_path)
    assert compaction.run(catalog) == []
    assert part_names(tmp_path) == names


def test_only_complete_captures(tmp_path: Path) -> None:
    catalog = stored_capture(tmp_path, is_complete=False)
    names = part_names(tmp_path)
    assert compaction.run(catalog) == []
    with pytest.raises(InputError, match="receiving"):
        compaction.run(catalog, ["c1"])
    assert part_names(tmp_path) == names


def test_a_worker_that_knew_the_old_parts_adds_nothing_to_the_new_ones(tmp_path: Path) -> None:
    catalog = stored_capture(tmp_path)
    stale = StoredTable(catalog.place, "c1", "perf_events")
    stale.sequences("s" * 64).clear()  # it was stopped before anything was stored
    compaction.run(catalog)
    splitter = Splitter("c1", "s" * 64, "perf_events", row_bytes=ROWS * 3)
    decoded = [wire.decode(one) for one in (*splitter.add(events()), *splitter.finish())]
    assert stale.publish("s" * 64, decoded, ORIGIN) == 0
    stale.close()
    check(tmp_path)


STEPS = """
import os, signal, sys
from pathlib import Path
from pipeline.store import compaction
from pipeline.store.catalog import Catalog
from pipeline.store.place import LocalPlace

left = [int(sys.argv[2])]

def dying(real):
    def call(*args, **options):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **options)
    return call

# every call that changes a folder or makes something durable
for name in ("link", "fsync", "rename", "replace", "unlink", "rmdir", "mkdir"):
    setattr(os, name, dying(getattr(os, name)))
compaction.exchange = dying(compaction.exchange)
catalog = Catalog(LocalPlace(Path(sys.argv[1])))
compaction.run(catalog, part_rows=700)
"""


def test_killed_before_each_of_its_steps_it_is_never_seen_half_way(tmp_path: Path) -> None:
    script = tmp_path / "steps.py"
    script.write_text(STEPS)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    killed = 0
    step = 1
    while True:
        root = tmp_path / f"store{step}"
        catalog = stored_capture(root)
        run = subprocess.run([sys.executable, str(script), str(root), str(step)], env=environment, timeout=60)
        check(root)
        if run.returncode == 0:
            break
        assert run.returncode == -signal.SIGKILL
        killed += 1
        compaction.run(catalog, part_rows=700)
        check(root)
        assert len(part_names(root)) == 4
        names = folders(root)
        left = sorted(name for name in names if not name.startswith(".draft-"))  # swept after a day
        assert left == ["facts", "frames", "manifest.json", "perf_events"]
        step += 1 if step < 12 else 3
    assert killed > 12


def test_a_file_system_that_cannot_swap_is_told(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        compaction.exchange(tmp_path / "a", tmp_path / "b")
