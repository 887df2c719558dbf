"""speedscope's JSON: profiles of samples with weights, or of frames that open and close.

    {"$schema": "https://www.speedscope.app/file-format-schema.json",
     "shared": {"frames": [{"name": "main", "file": "a.py", "line": 3}]},
     "profiles": [{"type": "sampled", "name": "thread 1", "unit": "seconds", "samples": [[0]], "weights": [0.01]}]}

Format: speedscope's src/lib/file-format-spec.ts. Times become integer nanoseconds, exactly. Where there are several
profiles, a profile's name is the outermost frame of its stacks; not so for py-spy, whose profiles are the threads of
one graph and whose other formats add no such frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

from collectors.json_stream import JsonStream, as_name
from collectors.source import Source
from pipeline.errors import InputError
from pipeline.folds import Fold
from pipeline.stacks import EMPTY_STACK, Frame, FrameKind, StackTrie

_NS_PER_UNIT = {"seconds": 10**9, "milliseconds": 10**6, "microseconds": 10**3, "nanoseconds": 1}
_OTHER_UNITS = ("bytes", "none")
_SAMPLES, _WALL = "samples", "wall"
_LARGEST = 10**30
# weights are added up as integers of this fraction of their unit: py-spy writes 0.009999999999999998
_PARTS = 10**18
_PYTHON_FILES = (".py", ".pyx", ".pyw", ".ipynb")

Amount = int | Fraction


def sniff(head: bytes) -> bool | None:
    """Return whether the beginning of a file is a speedscope document; None: more bytes are needed."""
    stripped = head.lstrip()
    if not stripped:
        return None
    if not stripped.startswith(b"{"):
        return False
    return b"speedscope.app/file-format-schema" in head or None


@dataclass(slots=True)
class _Profile:
    """One profile: per stack its number of samples and its weight in parts of the unit."""

    name: str = ""
    unit: str = ""
    type: str = ""
    stacks: list[int] | None = None  # of samples, until their weights come
    weights: list[Amount] | None = None
    counts: dict[int, int] = field(default_factory=dict)
    sums: dict[int, Amount] = field(default_factory=dict)

    def add(self, node: int, weight: Amount) -> None:
        self.counts[node] = self.counts.get(node, 0) + 1
        self.sums[node] = self.sums.get(node, 0) + weight


def fold(source: Source) -> Fold:
    """Count the stacks of all profiles. Raises InputError with the JSON path of what does not fit the format."""
    document = _Document(source)
    document.read()
    result = Fold(is_folded=True)
    document.put_into(result)
    result.losses.merge(source.losses.as_tuple())
    result.rows += source.losses.lost_rows
    return result


class _Document:
    """One pass over the document. Frames may come last, so stacks are tries of frame numbers until the end."""

    def __init__(self, source: Source) -> None:
        self._name = source.name
        self._json = JsonStream(source)
        self._frames: list[Frame] | None = None
        self._profiles: list[_Profile] | None = None
        self._exporter = ""
        self._trie = StackTrie()  # of frame numbers as the document counts them
        self._largest_frame, self._largest_at = -1, ""

    def read(self) -> None:
        """Walk the document."""
        json = self._json
        if json.peek() != "{":
            raise self._wrong("$", "an object")
        for key in json.members():
            if key == "shared":
                self._read_shared()
            elif key == "profiles":
                self._array("$.profiles")
                self._profiles = [self._read_profile(f"$.profiles[{at}]") for at in json.elements()]
            elif key == "exporter":
                self._exporter = str(json.value())
        json.end()
        if self._frames is None:
            raise self._wrong("$.shared.frames", "a list")
        if self._profiles is None:
            raise self._wrong("$.profiles", "a list")
        if self._largest_frame >= len(self._frames):
            problem = f"{self._largest_at} names frame {self._largest_frame} of {len(self._frames)}"
            raise InputError(problem, "export it again", path=self._name)

    def put_into(self, result: Fold) -> None:
        """Add every profile, its weights rounded half up once per stack."""
        profiles = self._profiles or []
        units = {profile.unit for profile in profiles}
        is_time = units <= _NS_PER_UNIT.keys()
        if len(units) > 1 and not is_time:
            problem = f"profiles of different units: {', '.join(sorted(units))}"
            raise InputError(problem, "export them one by one", path=self._name)
        event = _WALL if is_time and units else _SAMPLES
        result.unit = "ns" if is_time and units else ("bytes" if units == {"bytes"} else "")
        has_roots = len(profiles) > 1 and not self._exporter.startswith("py-spy")
        for profile in profiles:
            root = EMPTY_STACK
            if has_roots:
                root = result.trie.push(EMPTY_STACK, result.trie.frame(Frame(as_name(profile.name))))
            nodes = self._nodes_under(root, profile.sums, result.trie)
            scale = _NS_PER_UNIT.get(profile.unit, 1)
            for node, total in profile.sums.items():
                exact = Fraction(total * scale) / _PARTS
                whole = int(exact + Fraction(1, 2))
                if whole != exact:
                    result.losses.add("rounded_weight")
                result.add(event, "", nodes[node], profile.counts[node], whole)
                result.rows += profile.counts[node]

    def _nodes_under(self, root: int, used: Iterable[int], trie: StackTrie) -> dict[int, int]:
        """Return, for each used stack of frame numbers, its node below root in trie."""
        assert self._frames is not None
        numbers: dict[int, int] = {}
        nodes = {EMPTY_STACK: root}
        for used_node in used:
            path = []
            node = used_node
            while node not in nodes:
                path.append(node)
                node = self._trie.parents[node]
            for node in reversed(path):
                frame = self._trie.frame_of[node]
                if frame not in numbers:
                    numbers[frame] = trie.frame(self._frames[frame])
                nodes[node] = trie.push(nodes[self._trie.parents[node]], numbers[frame])
        return nodes

    def _read_shared(self) -> None:
        if self._json.peek() != "{":
            raise self._wrong("$.shared", "an object")
        for key in self._json.members():
            if key == "frames":
                self._array("$.shared.frames")
                self._frames = [self._read_frame(f"$.shared.frames[{at}]") for at in self._json.elements()]

    def _read_frame(self, where: str) -> Frame:
        entry = self._json.value()
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise self._wrong(f"{where}.name", "text")
        file, line = entry.get("file"), entry.get("line")
        file = as_name(file) if isinstance(file, str) else ""
        kind: FrameKind = "python" if file.endswith(_PYTHON_FILES) else "user"
        line = line if type(line) is int and 0 <= line < 2**31 else 0
        return Frame(as_name(entry["name"]), "", kind, file, line)

    def _read_profile(self, where: str) -> _Profile:
        if self._json.peek() != "{":
            raise self._wrong(where, "an object")
        profile = _Profile()
        readers: dict[str, Callable[[_Profile, str], None]] = {
            "samples": self._read_samples,
            "weights": self._read_weights,
            "events": self._read_events,
        }
        seen = set()
        for key in self._json.members():
            seen.add(key)
            if key in ("name", "unit", "type"):
                value = self._json.value()
                if not isinstance(value, str):
                    raise self._wrong(f"{where}.{key}", "text")
                setattr(profile, key, value)
            elif key in readers:
                self._array(f"{where}.{key}")
                readers[key](profile, f"{where}.{key}")
        self._check(profile, where, seen)
        if profile.stacks is not None and profile.weights is not None:
            for node, weight in zip(profile.stacks, profile.weights, strict=True):
                profile.add(node, weight)
        profile.stacks = profile.weights = None
        return profile

    def _check(self, profile: _Profile, where: str, seen: set[str]) -> None:
        needed = {"sampled": ("samples", "weights"), "evented": ("events",)}.get(profile.type)
        if needed is None:
            raise self._wrong(f"{where}.type", "sampled or evented")
        for key in ("unit", *needed):
            if key not in seen:
                raise self._wrong(f"{where}.{key}", "there")
        if profile.unit not in _NS_PER_UNIT and profile.unit not in _OTHER_UNITS:
            raise self._wrong(f"{where}.unit", f"one of {', '.join((*_NS_PER_UNIT, *_OTHER_UNITS))}")
        stacks, weights = profile.stacks, profile.weights
        if stacks is not None and weights is not None and len(stacks) != len(weights):
            problem = f"{where} has {len(stacks)} samples and {len(weights)} weights"
            raise self._json.error(problem, "export it again")

    def _read_samples(self, profile: _Profile, where: str) -> None:
        push = self._trie.push
        profile.stacks = []
        before: list[int] = []
        nodes: list[int] = []
        for at in self._json.elements():
            stack = self._json.value()
            if stack != before or not profile.stacks:
                if not isinstance(stack, list) or not _are_indices(stack):
                    raise self._wrong(f"{where}[{at}]", "a list of frame numbers")
                shared = 0  # neighbours share their outer frames
                for index, index_before in zip(stack, before, strict=False):
                    if index != index_before:
                        break
                    shared += 1
                del nodes[shared:]
                for index in stack[shared:]:
                    nodes.append(push(nodes[-1] if nodes else EMPTY_STACK, index))
                if stack and max(stack) > self._largest_frame:
                    self._largest_frame, self._largest_at = max(stack), f"{where}[{at}]"
                before = stack
            profile.stacks.append(nodes[-1] if nodes else EMPTY_STACK)

    def _read_weights(self, profile: _Profile, where: str) -> None:
        profile.weights = []
        for at in self._json.elements():
            weight = self._amount(self._json.value(), f"{where}[{at}]")
            if weight < 0:
                raise self._wrong(f"{where}[{at}]", "0 or more")
            profile.weights.append(weight)

    def _read_events(self, profile: _Profile, where: str) -> None:
        json = self._json
        stack: list[int] = []  # nodes
        last: Amount | None = None
        for at in json.elements():
            event = json.value()
            here = f"{where}[{at}]"
            kind, frame = (event.get("type"), event.get("frame")) if isinstance(event, dict) else (None, None)
            if kind not in ("O", "C"):
                raise self._wrong(f"{here}.type", "O or C")
            if type(frame) is not int or frame < 0:
                raise self._wrong(f"{here}.frame", "a frame number")
            time = self._amount(event.get("at"), f"{here}.at")
            if last is not None and time < last:
                raise json.error(f"{here}.at is earlier than the event before it", "export it again")
            if stack and last is not None and time > last:
                profile.add(stack[-1], time - last)
            last = time
            if kind == "O":
                stack.append(self._trie.push(stack[-1] if stack else EMPTY_STACK, frame))
                if frame > self._largest_frame:
                    self._largest_frame, self._largest_at = frame, here
            elif not stack or self._trie.frame_of[stack[-1]] != frame:
                is_open = f"frame {self._trie.frame_of[stack[-1]]} is on top" if stack else "none is open"
                raise json.error(f"{here} closes frame {frame} while {is_open}", "export it again")
            else:
                stack.pop()
        if stack:
            frame = self._trie.frame_of[stack[-1]]
            raise json.error(f"{where} ends while frame {frame} is open", "was it cut off? Export it again")

    def _amount(self, value: Any, where: str) -> Amount:
        if type(value) not in (int, Decimal) or not -_LARGEST < value < _LARGEST:
            raise self._wrong(where, "a usable number")
        return _in_parts(value)

    def _array(self, where: str) -> None:
        if self._json.peek() != "[":
            raise self._wrong(where, "a list")

    def _wrong(self, where: str, wanted: str) -> InputError:
        return self._json.error(f"{where} is not {wanted}", "is this a speedscope file?")


def _are_indices(stack: list[Any]) -> bool:
    return not stack or (set(map(type, stack)) == {int} and min(stack) >= 0)


@lru_cache(maxsize=1 << 16)
def _in_parts(value: int | Decimal) -> Amount:
    if isinstance(value, int):
        return value * _PARTS
    exact = Fraction(value) * _PARTS
    return exact.numerator if exact.denominator == 1 else exact
