"""JIT maps are copied from a folder where anybody may write, so only plain files are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collectors import symbol_maps


def test_maps_of_the_seen_processes_are_copied(tmp_path: Path) -> None:
    (tmp_path / "perf-7.map").write_text("10 5 f\n")
    (tmp_path / "perf-8.map").write_text("10 5 g\n")
    names, notes = symbol_maps.copy_maps([7, 9, 7], tmp_path / "maps", tmp_path)
    assert (names, notes) == (["perf-7.map"], [])
    assert (tmp_path / "maps/perf-7.map").read_text() == "10 5 f\n"
    assert not (tmp_path / "maps/perf-8.map").exists()


def test_links_pipes_and_folders_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (tmp_path / "perf-1.map").symlink_to(secret)
    os.link(secret, tmp_path / "perf-2.map")
    os.mkfifo(tmp_path / "perf-3.map")
    (tmp_path / "perf-4.map").mkdir()
    names, notes = symbol_maps.copy_maps([1, 2, 3, 4], tmp_path / "maps", tmp_path)
    assert names == []
    assert not (tmp_path / "maps").exists()
    assert [note.split()[0] for note in notes] == ["perf-2.map", "perf-3.map", "perf-4.map"]


def test_sizes_are_bounded_one_by_one_and_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbol_maps, "MAX_FILE_BYTES", 10)
    monkeypatch.setattr(symbol_maps, "MAX_ALL_BYTES", 15)
    for pid, size in ((1, 11), (2, 10), (3, 6), (4, 5)):
        (tmp_path / f"perf-{pid}.map").write_bytes(b"x" * size)
    names, notes = symbol_maps.copy_maps([1, 2, 3, 4], tmp_path / "maps", tmp_path)
    assert names == ["perf-2.map", "perf-4.map"]
    assert notes == ["perf-1.map was left out: it has 11 bytes", "perf-3.map was left out: it has 6 bytes"]


def test_a_map_of_another_user_is_left_out_unless_root_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "perf-1.map").write_text("10 5 f\n")
    owner = (tmp_path / "perf-1.map").stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    _, notes = symbol_maps.copy_maps([1], tmp_path / "maps", tmp_path)
    assert notes == ["perf-1.map was left out: it belongs to another user"]
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert symbol_maps.copy_maps([1], tmp_path / "maps", tmp_path)[0] == ["perf-1.map"]
