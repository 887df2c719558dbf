"""The queries of docs/store.md and the notebook run as they are shown, and tell the truth of the demo's capture."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest

import flameslice.ingest
from flameslice import api
from pipeline import schema
from pipeline.store import compaction
from pipeline.store.catalog import Catalog
from pipeline.store.place import open_place

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "demo" / "capture" / "token_server.perf.txt.zst"
PAGE = (ROOT / "docs" / "store.md").read_text()
NOTEBOOK = ROOT / "docs" / "notebooks" / "stored-capture.ipynb"
Rows = list[tuple[str, int, int]]


def block(language: str, word: str) -> str:
    """Return the one block of the page in a language that holds a word."""
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.S)
    (found,) = [text for text in blocks if word in text]
    return found


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store called `kept` in the working directory, with the demo's capture in it."""
    monkeypatch.chdir(tmp_path)
    flameslice.ingest.ingest([str(DEMO)], data="kept", name="server", now_realtime_ns=0)
    return tmp_path / "kept"


def by_duckdb() -> Rows:
    with duckdb.connect() as connection:
        rows = connection.execute(block("sql", "read_parquet")).fetchall()
    return [(symbol, int(samples), int(cpu_ns)) for symbol, samples, cpu_ns in rows]


def by_polars() -> Rows:
    names: dict[str, Any] = {}
    exec(block("python", "import polars"), names)
    frame: pl.DataFrame = names["busiest"]
    return frame.rows()


def by_pandas() -> Rows:
    names: dict[str, Any] = {}
    exec(block("python", "import pandas"), names)
    frame: pd.DataFrame = names["busiest"]
    return [(str(one), int(samples), int(cpu_ns)) for one, samples, cpu_ns in frame.itertuples(index=False)]


def by_file() -> Rows:
    """The same from the file, without any store: what each leaf of the flame graph weighs."""
    fold = api.fold(DEMO)
    weights: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for (event, _, node), (samples, period) in fold.weights.items():
        if event == "cpu-clock" and node:
            symbol = fold.trie.frames[fold.trie.frame_of[node]].symbol
            weights[symbol] += period
            counts[symbol] += samples
    ranked = sorted(weights, key=lambda symbol: (-weights[symbol], symbol))
    return [(symbol, counts[symbol], weights[symbol]) for symbol in ranked[:10]]


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("query", [by_duckdb, by_polars, by_pandas], ids=lambda query: query.__name__)
def test_the_queries_of_the_page_agree_with_the_file(query: Any) -> None:
    expected = by_file()
    assert len(expected) == 10
    assert query() == expected


def test_the_api_calls_of_the_page_work(kept: Path) -> None:
    (call,) = re.findall(r"`(api\.to_pandas\(.*?\))`", PAGE)
    assert len(eval(call, {"api": api})) == api.read(DEMO).perf_events.height


def test_the_page_names_every_file_and_key_there_is(kept: Path) -> None:
    layout = PAGE.partition("## Queries")[0]
    (folder,) = (kept / "captures").iterdir()
    for path in [*kept.iterdir(), *folder.iterdir()]:
        if not path.name.startswith("log.sqlite"):
            assert path.name in layout, path
    manifest = json.loads((folder / "manifest.json").read_text())
    section = PAGE.partition("## manifest.json")[2].partition("## Parts")[0]
    for key in [*manifest, *manifest["sources"][0]]:
        assert f"`{key}`" in section, key
    parts = PAGE.partition("## Parts")[2].partition("## Compaction")[0]
    metadata = pq.read_metadata(next(folder.glob("perf_events/part-*.parquet"))).metadata
    ours = {key.decode() for key in metadata if key.startswith(b"flameslice.")}
    assert ours == set(re.findall(r"`(flameslice\.\w+)`", parts))


def test_parts_are_as_the_page_promises(kept: Path) -> None:
    (folder,) = (kept / "captures").iterdir()
    names = [path.name for path in folder.glob("*/part-*.parquet")]
    source = json.loads((folder / "manifest.json").read_text())["sources"][0]["source"]
    assert all(re.fullmatch(rf"part-{source[:32]}-\d{{8}}\.parquet", name) for name in names)
    for path in folder.glob("perf_events/part-*.parquet"):
        assert pl.read_parquet(path, hive_partitioning=False)["raw_time"].is_sorted()
        found = pq.ParquetFile(path).metadata
        assert max(found.row_group(one).num_rows for one in range(found.num_row_groups)) <= 262_144
        assert found.row_group(0).column(0).compression == "ZSTD"
    frames = next(folder.glob("frames/part-*.parquet"))
    frames.with_name(f"part-{source[:32]}-00000001.parquet").write_bytes(frames.read_bytes())
    compaction.run(Catalog(open_place(str(kept))))
    (compacted,) = folder.glob("frames/part-*.parquet")
    assert re.fullmatch(r"part-c\d+-\d+\.parquet", compacted.name)


def test_raw_gives_the_same_capture_in_an_empty_store(kept: Path, tmp_path: Path) -> None:
    (folder,) = (kept / "captures").iterdir()
    (done,) = flameslice.ingest.ingest([str(folder / "raw")], data=str(tmp_path / "new"), now_realtime_ns=1)
    assert f"capture={done.capture}" == folder.name
    assert done.name == "server"
    for table in schema.STORED:
        old = api.scan(table, "server", kept).sort("source", "row").collect()
        assert old.equals(api.scan(table, "server", tmp_path / "new").sort("source", "row").collect()), table


def cells(kind: str) -> list[dict[str, Any]]:
    body = json.loads(NOTEBOOK.read_text())
    assert (body["nbformat"], body["nbformat_minor"]) == (4, 5)
    found: list[dict[str, Any]] = [cell for cell in body["cells"] if cell["cell_type"] == kind]
    assert found
    return found


def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLAMESLICE_DATA", str(tmp_path / "kept"))
    flameslice.ingest.ingest([str(DEMO)], name="demo", now_realtime_ns=0)
    names: dict[str, Any] = {}
    for cell in cells("code"):
        exec("".join(cell["source"]), names)
    expected = by_file()[:8]
    busiest = names["busiest"]
    assert list(zip(busiest["symbol"], busiest["samples"], busiest["cpu_ns"], strict=True)) == expected
    bars = names["figure"].data
    drawn_ms = {bar.name: float(sum(bar.y)) for bar in bars}
    assert drawn_ms == {symbol: pytest.approx(cpu_ns / 1e6) for symbol, _, cpu_ns in expected}
    assert "clock_nanosleep" in names["waits_by_stack"]["stack"].iloc[0]  # the log's thread sleeps most


def test_the_notebook_is_kept_without_its_results() -> None:
    for cell in cells("code"):
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
    ids = [cell["id"] for kind in ("code", "markdown") for cell in cells(kind)]
    assert len(set(ids)) == len(ids)
