"""Every version of the schema that was ever released is read: stores, and messages that still lie in a log."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import pytest

from analyzers import flame_graph
from analyzers.render import collapsed
from flameslice import api, logs
from pipeline.log.protocol import Message
from pipeline.store.catalog import Catalog
from pipeline.store.place import open_place
from pipeline.worker import TOPICS, Worker

DATA = Path(__file__).resolve().parents[1] / "data"
FOLDED = {
    "perf.txt": "server;main;wait 2000000\nserver;main;work 1000000\n",
    "stacks.folded": "main;wait 4\nmain;work 3\n",
}


def check(store: Path) -> None:
    for name, text in FOLDED.items():
        fold = api.fold(f"capture:{name}", data=str(store))
        graph = flame_graph.from_fold(fold, event=None, weight="period", title="", filters=())
        rendered = collapsed.render(graph)
        assert (rendered if isinstance(rendered, bytes) else rendered.encode()) == text.encode()
    rows = api.scan("perf_events", "perf.txt", data=str(store)).sort("row").collect()
    assert rows["raw_time"].to_list() == [100_000_000_000, 100_001_000_000]
    assert rows["tid"].to_list() == [10, 11]
    assert [one.labels for one in Catalog(open_place(str(store))).all()] == [{"k": "v"}] * 2


@pytest.mark.parametrize("version", ["1.0"])
def test_a_store_of_a_released_version_is_read(version: str, tmp_path: Path) -> None:
    shutil.copytree(DATA / f"store_{version}/captures", tmp_path / "captures")
    check(tmp_path)


@pytest.mark.parametrize("version", ["1.0"])
def test_messages_of_a_released_version_are_stored(version: str, tmp_path: Path) -> None:
    catalog = Catalog(open_place(str(tmp_path / "store")))
    log = logs.open_embedded(tmp_path / "log.sqlite", catalog)
    for line in (DATA / f"store_{version}/messages.jsonl").read_text().splitlines():
        body = json.loads(line)
        headers = tuple((name, text.encode()) for name, text in body["headers"])
        log.append([Message(body["topic"], body["key"].encode(), base64.b64decode(body["value"]), headers)])
    log.flush()
    worker = Worker(log, log.consume("worker", TOPICS), catalog)
    while worker.step(0.0):
        pass
    worker.flush()
    worker.close()
    log.close()
    assert [one.status for one in catalog.all()] == ["complete"] * 2
    check(tmp_path / "store")
