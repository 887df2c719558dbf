"""docs/operations.md names what there is to watch, and what it shows works."""

from __future__ import annotations

import re
from pathlib import Path

from flameslice.worker_metrics import Metrics
from pipeline import schema
from pipeline.log import config
from pipeline.log.protocol import CAPTURES, DEAD_LETTERS, PREFIX

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text()


def test_every_metric_is_named() -> None:
    families = list(Metrics().registry.collect())
    assert len(families) >= 8
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert f"| `{name}` |" in PAGE, f"docs/operations.md does not name {name}"
    named = set(re.findall(r"^\| `(flameslice_worker_\w+)` \|", PAGE, flags=re.M))
    assert len(named) == len(families)


def test_every_topic_is_named() -> None:
    for topic in (CAPTURES, DEAD_LETTERS, *(PREFIX + table for table in schema.STORED)):
        assert f"`{topic}`" in PAGE


def test_the_settings_shown_are_taken(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.S)
    (tmp_path / "log.toml").write_text(example)
    (tmp_path / "password").write_text("hush\n")
    found = config.load(tmp_path / "log.toml")
    assert found.client["security_protocol"] == "SASL_SSL"
    assert found.client["sasl_plain_password"] == "hush"
    assert found.topic("flameslice.perf_events").partitions == 16
    assert found.topic("flameslice.frames").settings == {
        "min.insync.replicas": "2",
        "retention.ms": "604800000",
    }
