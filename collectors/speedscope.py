"""speedscope's JSON: profiles of samples with weights, or of frames that open and close.

    {"$schema": "https://www.speedscope.app/file-format-schema.json",
     "shared": {"frames": [{"name": "main", "file": "a.py", "line": 3}]},
     "profiles": [{"type": "sampled", "name": "thread 1", "unit": "seconds", "samples": [[0]], "weights": [0.01]}]}

Format: speedscope's src/lib/file-format-spec.ts. Times become integer nanoseconds, exactly; a profile's name is the
process that its stacks hang under where there are several profiles.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

from collectors import json_text
from collectors.source import Source
from pipeline.errors import InputError
from pipeline.folds import Fold
from pipeline.stacks import EMPTY_STACK, Frame, FrameKind

EVENT = "samples"
_SCALES = {
    "seconds": 10**9,
    "milliseconds": 10**6,
    "microseconds": 10**3,
    "nanoseconds": 1,
    "bytes": 1,
    "none": 1,
}
_LARGEST = 10**30
_PYTHON_FILES = (".py", ".pyx", ".pyw", ".ipynb")


def sniff(head: bytes) -> bool | None:
    """Return whether the beginning of a file is a speedscope document; None: more bytes are needed."""
    stripped = head.lstrip()
    if not stripped:
        return None
    if not stripped.startswith(b"{"):
        return False
    return b"speedscope.app/file-format-schema" in head or None


def fold(source: Source) -> Fold:
    """Count the stacks of all profiles. Raises InputError with the JSON path of what does not fit the format."""
    document = json_text.load(source)
    fold = Fold(is_folded=True)
    frames = _frames(document, source)
    profiles = _get(document, "profiles", list, "$", source)
    units = {_get(profile, "unit", str, f"$.profiles[{at}]", source) for at, profile in enumerate(profiles)}
    is_time = units <= {"seconds", "milliseconds", "microseconds", "nanoseconds"}
    if len(units) > 1 and not is_time:
        raise InputError(f"profiles of different units: {', '.join(sorted(units))}", path=source.name)
    fold.unit = "ns" if is_time and units else ("bytes" if units == {"bytes"} else "")
    sums: dict[int, Fraction] = {}
    counts: dict[int, int] = {}
    for at, profile in enumerate(profiles):
        where = f"$.profiles[{at}]"
        name = _get(profile, "name", str, where, source)
        base = fold.trie.push(EMPTY_STACK, fold.trie.frame(Frame(name))) if len(profiles) > 1 else EMPTY_STACK
        kind = _get(profile, "type", str, where, source)
        scale = _SCALES.get(_get(profile, "unit", str, where, source))
        if scale is None:
            raise InputError(f"{where}.unit is unknown", f"known are {', '.join(_SCALES)}", path=source.name)
        if kind == "sampled":
            stacks = _sampled(profile, where, source)
        elif kind == "evented":
            stacks = _evented(profile, where, source, fold)
        else:
            raise InputError(f"{where}.type is neither sampled nor evented", path=source.name)
        for indices, weight in stacks:
            node = base
            for index in indices:
                if index >= len(frames):
                    raise InputError(f"{where}: frame {index} of {len(frames)}", path=source.name)
                node = fold.trie.push(node, fold.trie.frame(frames[index]))
            sums[node] = sums.get(node, Fraction(0)) + weight * scale
            counts[node] = counts.get(node, 0) + 1
    _add(fold, sums, counts)
    return fold


def _add(fold: Fold, sums: dict[int, Fraction], counts: dict[int, int]) -> None:
    rounded = 0
    for node, total in sums.items():
        whole = int(total + Fraction(1, 2))
        rounded += total.denominator != 1
        fold.add(EVENT, "", node, counts[node], whole)
        fold.rows += counts[node]
    if rounded:
        fold.losses.add("rounded_weight", rounded)


def _frames(document: Any, source: Source) -> list[Frame]:
    shared = _get(document, "shared", dict, "$", source)
    frames = []
    for at, entry in enumerate(_get(shared, "frames", list, "$.shared", source)):
        name = _get(entry, "name", str, f"$.shared.frames[{at}]", source)
        file, line = entry.get("file"), entry.get("line")
        file = file if isinstance(file, str) else ""
        kind: FrameKind = "python" if file.endswith(_PYTHON_FILES) else "user"
        frames.append(Frame(name, "", kind, file, line if isinstance(line, int) and 0 <= line < 2**31 else 0))
    return frames


def _sampled(profile: Any, where: str, source: Source) -> list[tuple[list[int], Fraction]]:
    samples = _get(profile, "samples", list, where, source)
    weights = _get(profile, "weights", list, where, source)
    if len(samples) != len(weights):
        raise InputError(f"{where}: {len(samples)} samples and {len(weights)} weights", path=source.name)
    out = []
    for at, (stack, weight) in enumerate(zip(samples, weights, strict=True)):
        if not isinstance(stack, list) or not all(_is_index(index) for index in stack):
            raise InputError(f"{where}.samples[{at}] is not a list of frame numbers", path=source.name)
        amount = _number(weight, f"{where}.weights[{at}]", source)
        if amount < 0:
            raise InputError(f"{where}.weights[{at}] is negative", path=source.name)
        out.append((stack, amount))
    return out


def _evented(profile: Any, where: str, source: Source, fold: Fold) -> list[tuple[list[int], Fraction]]:
    out: list[tuple[list[int], Fraction]] = []
    stack: list[int] = []
    last = _number(profile.get("startValue", 0), f"{where}.startValue", source)
    for at, event in enumerate(_get(profile, "events", list, where, source)):
        here = f"{where}.events[{at}]"
        kind = _get(event, "type", str, here, source)
        time = _number(event.get("at") if isinstance(event, dict) else None, f"{here}.at", source)
        frame = event.get("frame")
        if not _is_index(frame):
            raise InputError(f"{here}.frame is not a frame number", path=source.name)
        if time < last:
            raise InputError(f"{here}.at goes back in time", path=source.name)
        if stack and time > last:
            out.append((stack.copy(), time - last))
        last = time
        if kind == "O":
            stack.append(frame)
        elif kind == "C" and stack and stack[-1] == frame:
            stack.pop()
        else:
            fold.losses.add("unmatched_end", example=f"{here}")
    if stack:
        fold.losses.add("unmatched_begin", len(stack))
    return out


def _is_index(value: Any) -> bool:
    return type(value) is int and value >= 0


def _number(value: Any, where: str, source: Source) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not -_LARGEST < value < _LARGEST:
        raise InputError(f"{where} is not a usable number", path=source.name)
    return Fraction(value)


def _get(container: Any, key: str, kind: type[Any], where: str, source: Source) -> Any:
    value = container.get(key) if isinstance(container, dict) else None
    if not isinstance(value, kind):
        wanted = {"list": "a list", "dict": "an object", "str": "text"}[kind.__name__]
        raise InputError(f"{where}.{key} is not {wanted}", "is this a speedscope file?", path=source.name)
    return value
