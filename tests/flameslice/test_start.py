"""The command line starts without the heavy libraries: they come in where a table or a picture needs them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

HEAVY = {
    "asyncio",
    "concurrent",
    "crc32c",
    "grpc",
    "importlib.metadata",
    "kafka",
    "lz4",
    "multiprocessing",
    "narwhals",
    "numpy",
    "opentelemetry",
    "pandas",
    "plotly",
    "polars",
    "pyarrow",
    "pynvml",
    "requests",
    "rich",
    "scipy",
    "sqlite3",
    "urllib.request",
    "zstandard",
}


@pytest.mark.parametrize("args", [("--help",), ("flamegraph", "--help"), ("slices", "--help"), ("nonsense",)])
def test_help_imports_nothing_heavy(run_cli: Callable[..., Any], args: tuple[str, ...]) -> None:
    ran = run_cli(*args, python_options=("-X", "importtime"))
    imported = set(re.findall(r"^import time: +\d+ \| +\d+ \| +(\S+)$", ran.stderr, flags=re.M))
    assert "flameslice.cli" in imported  # the list is there
    assert sorted(name for name in imported for heavy in HEAVY if f"{name}.".startswith(f"{heavy}.")) == []
