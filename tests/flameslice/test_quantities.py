"""Sizes, process ids and labels as options take them."""

from __future__ import annotations

import pytest

from flameslice.quantities import parse_bytes, parse_labels, parse_pids
from pipeline.errors import UsageError


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("1", 1), ("500M", 500 << 20), ("1.5G", 3 << 29), ("2k", 2048), ("7 MB", 7 << 20), ("1T", 1 << 40)],
)  # fmt: skip
def test_sizes(text: str, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "0", "-1", "1X", "G", "1e9", "0.1"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size: write it like 500M or 2G"):
        parse_bytes(text)


def test_process_ids_are_taken_once_each_in_order() -> None:
    assert parse_pids(("12,7", "12", "3")) == (12, 7, 3)
    assert parse_pids(()) == ()


@pytest.mark.parametrize("text", ["x", "0", "-1", "1.5", "²"])
def test_what_is_no_process_id(text: str) -> None:
    with pytest.raises(UsageError):
        parse_pids((text,))


def test_labels() -> None:
    assert parse_labels(("a=b=c", "d=")) == {"a": "b=c", "d": ""}
    for wrong in ("a", "=b"):
        with pytest.raises(UsageError):
            parse_labels((wrong,))
