"""Reads JSON that may be hostile: too deep, cut off, odd numbers. One clear line instead of a traceback."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from collectors.source import Source
from pipeline.errors import InputError

# a document stands in memory as objects, several times its size
MAX_BYTES = 1 << 29


def load(source: Source, *, closes_array: bool = False) -> Any:
    """Return the document of a source; numbers with a point are Decimal, so that none is rounded.

    closes_array: an array that is cut off after an element counts as ended there, as Chrome reads its traces.
    """
    text = bytearray()
    for chunk in source.chunks():
        text += chunk
        if len(text) > MAX_BYTES:
            raise InputError(
                f"JSON of more than {MAX_BYTES >> 20} MiB", "record for a shorter time", path=source.name
            )
    try:
        return _parsed(bytes(text))
    except RecursionError:
        raise InputError(
            "JSON nested too deeply", "it was not written by a profiler", path=source.name
        ) from None
    except ValueError as error:
        if closes_array:
            cut = bytes(text).rstrip().removesuffix(b",")
            end = cut.rfind(b"}")
            if cut.lstrip().startswith(b"[") and end > 0:
                try:
                    found = _parsed(cut[: end + 1] + b"]")
                except (ValueError, RecursionError):
                    found = None
                if found is not None:
                    return found
        line = getattr(error, "lineno", None)
        problem = getattr(error, "msg", str(error)).lower()
        raise InputError(
            f"not valid JSON: {problem}", "was it cut off? Export it again", path=source.name, line=line
        ) from None


def _parsed(text: bytes) -> Any:
    # the codec keeps lone surrogates and odd bytes, which names may hold
    return json.loads(text.decode("utf-8", "surrogateescape"), parse_float=Decimal, parse_constant=_no_number)


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number")
