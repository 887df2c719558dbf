"""Numbers with units, as options take them: `1.5G` bytes, `process=vllm` labels, `12,13` process ids."""

from __future__ import annotations

import re
from decimal import Decimal

from pipeline.errors import UsageError

_BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGT]?)(?:i?B)?")
_SCALE = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_bytes(text: str) -> int:
    """Return a size such as 500M or 1.5G in bytes; units are powers of 1024."""
    match = _BYTES.fullmatch(text.strip())
    size_bytes = 0 if match is None else int(Decimal(match[1]) * 1024 ** _SCALE[match[2]])
    if size_bytes <= 0:
        raise UsageError(f"{text!r} is not a size", "write it like 500M or 2G")
    return size_bytes


def parse_pids(texts: tuple[str, ...]) -> tuple[int, ...]:
    """Return process ids, given one by one or separated by commas."""
    words = [word for text in texts for word in text.split(",") if word]
    for word in words:
        if not word.isascii() or not word.isdigit() or int(word) < 1:
            raise UsageError(f"{word!r} is not a process id", "write it like --pid 1234 or --pid 12,13")
    return tuple(dict.fromkeys(map(int, words)))


def parse_labels(texts: tuple[str, ...]) -> dict[str, str]:
    """Return labels given as KEY=VALUE."""
    labels = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"{text!r} is not a label", "write it like --label service=vllm")
        labels[key] = value
    return labels
