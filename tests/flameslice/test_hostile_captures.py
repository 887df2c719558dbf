"""A capture.json and a store that lie: one line each, nothing written, the others are still listed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline import control
from pipeline.control import CaptureFact, DeadFact, SourceBegin, SourceFact
from pipeline.store.catalog import Catalog
from pipeline.store.place import open_place

RunCli = Callable[..., Any]
SOURCE = {"file": "perf.txt", "format": "perf_script"}
GOOD = {"schema_version": "1.0", "id": "c1", "name": "n", "status": "complete", "sources": [SOURCE]}


def capture(folder: Path, **changes: object) -> Path:
    folder.mkdir()
    (folder / "capture.json").write_text(json.dumps(GOOD | changes))
    (folder / "perf.txt").write_text("a 1 [000] 1.000000: 1 cpu-clock:\n\t55d0 f (x)\n\n")
    return folder


def test_the_capture_as_it_is_can_be_ingested(run_cli: RunCli, tmp_path: Path) -> None:
    assert run_cli("ingest", capture(tmp_path / "c")).status == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "../../etc"},
        {"id": ".hidden"},
        {"start_realtime_ns": 10**30},
        {"start_realtime_ns": "now"},
        {"labels": "abc"},
        {"labels": {"a": 1}},
        {"name": 7},
        {"host": ["x"]},
        {"sources": [SOURCE | {"file": "../secret"}]},
        {"sources": [SOURCE | {"clock": 7}]},
        {"sources": [SOURCE | {"format": "../x"}]},
        {"labels": {"long": "x" * 1_000_000}},
        {"status": "perfect"},
        {"schema_version": "9.0"},
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_what_a_description_cannot_be_is_told_and_nothing_is_written(
    run_cli: RunCli, tmp_path: Path, changes: dict[str, object]
) -> None:
    (tmp_path / "secret").write_text("a 1 [000] 1.000000: 1 cpu-clock:\n")
    ran = run_cli("ingest", capture(tmp_path / "c", **changes), "--data", "D")
    assert ran.status == 1
    assert ran.stderr.count("\n") == 1
    assert "flameslice failed" not in ran.stderr
    assert not list((tmp_path / "D").rglob("captures/*/*"))


def lying_store(root: Path) -> Catalog:
    catalog = Catalog(open_place(str(root)))
    source = "s" * 64
    catalog.add(CaptureFact("lies", "lies", sources=(SourceBegin(source, "f", "perf_script"),)))
    catalog.add(SourceFact("lies", source, "complete", messages={"perf_events": 10**15, "frames": -(10**15)}))
    catalog.add(DeadFact("lies", source, "perf_events", 10**14, "poison"))
    catalog.add(CaptureFact("good", "good", started_realtime_ns=-(1 << 62)))
    return catalog


def test_facts_that_announce_any_number_are_counted_and_never_walked_through(tmp_path: Path) -> None:
    found = lying_store(tmp_path).get("lies")
    assert found is not None
    assert found.status == "receiving"
    assert (found.sources[0].missing, found.sources[0].dead) == (10**15, 1)


def test_a_damaged_capture_does_not_hide_the_others(run_cli: RunCli, tmp_path: Path) -> None:
    lying_store(tmp_path / "D")
    facts = list((tmp_path / "D/captures/capture=lies/facts").iterdir())
    facts[0].write_text("{")
    ran = run_cli("captures", "list", "--data", "D")
    assert ran.status == 1
    assert b"good" in ran.stdout
    assert facts[0].name in ran.stderr
    assert run_cli("captures", "show", "good", "--data", "D").status == 0


def test_a_damaged_part_is_named_with_what_to_do(run_cli: RunCli, tmp_path: Path) -> None:
    assert run_cli("ingest", capture(tmp_path / "c"), "--data", "D").status == 0
    (part,) = (tmp_path / "D").rglob("perf_events/part-*.parquet")
    part.write_bytes(part.read_bytes()[:100])
    ran = run_cli("flamegraph", "c1", "--data", "D")
    assert ran.status == 1
    assert part.name in ran.stderr
    part.unlink()
    ran = run_cli("flamegraph", "c1", "--data", "D")
    assert ran.status == 1
    assert "receiving" in ran.stderr
    assert run_cli("ingest", tmp_path / "c", "--data", "D").status == 0
    assert run_cli("flamegraph", "c1", "--data", "D").status == 0


def test_a_store_that_lost_its_id_goes_on_with_its_log(run_cli: RunCli, tmp_path: Path) -> None:
    assert run_cli("ingest", capture(tmp_path / "c"), "--data", "D").status == 0
    (tmp_path / "D/store.json").unlink()
    assert run_cli("ingest", tmp_path / "c", "--data", "D").status == 0


def test_a_number_that_no_fact_can_hold_is_poison() -> None:
    text = json.dumps(
        {
            "schema_version": "1.0",
            "kind": "capture",
            "capture": "c1",
            "name": "n",
            "started_realtime_ns": 10**30,
        }
    )
    with pytest.raises(control.PoisonError, match="started_realtime_ns"):
        control.of_json(text.encode())
