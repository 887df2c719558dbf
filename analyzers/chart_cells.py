"""From the slices of a thread to the cells of its lane: one stack per slice, equal neighbours joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from analyzers import spelling
from analyzers.chart_shares import KIND_OF_STATE, Shares, State
from pipeline.stacks import Frame, FrameKind
from pipeline.text import unescape

if TYPE_CHECKING:
    import polars as pl

CellKind = FrameKind | Literal["state"]  # state: no frame of the capture, but what the thread did: [blocked]


MAX_DEPTH = 10_000  # our choice: deeper than real stacks; what lies beyond is one cell


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells as columns, by depth and time; depth 0 is the outermost, name a number in the chart's names."""

    depth: Sequence[int]
    first_slice: Sequence[int]
    slices: Sequence[int]
    name: Sequence[int]
    kind: Sequence[CellKind]

    def __len__(self) -> int:
        return len(self.depth)


class _Step(NamedTuple):
    """One frame of a stack; key is the same where the callers are the same too."""

    key: tuple[int, str]
    name: int
    kind: CellKind


_Path = tuple[_Step, ...]


class StackPaths:
    """Looks up the frames of stacks in the tables `frames` and `stacks`, and numbers their names."""

    def __init__(self, frames: pl.DataFrame, stacks: pl.DataFrame) -> None:
        self._frames = {row["frame_id"]: row for row in frames.iter_rows(named=True)}
        self._stacks = {
            row["stack_id"]: (row["parent_id"], row["frame_id"]) for row in stacks.iter_rows(named=True)
        }
        self._numbers: dict[str, int] = {}
        self._paths: dict[tuple[int, bool], _Path] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names given so far, by number."""
        return tuple(self._numbers)

    def number(self, name: str) -> int:
        """Return the number of a name."""
        return self._numbers.setdefault(name, len(self._numbers))

    def of(self, stack_id: int | None, comm: str) -> _Path:
        """Return the frames of a stack of a process of that name, the outermost first."""
        key = (stack_id or 0, comm.startswith("java"))
        path = self._paths.get(key)
        if path is not None:
            return path
        chain: list[tuple[int, int]] = []
        node = key[0]
        while node in self._stacks:
            parent_id, frame_id = self._stacks[node]
            chain.append((node, frame_id))
            node = parent_id
        chain.reverse()
        steps = [self._step(node, frame_id, comm) for node, frame_id in chain[:MAX_DEPTH]]
        if len(chain) > MAX_DEPTH:
            left_out = self.number(f"[{len(chain) - MAX_DEPTH} more frames]")
            steps.append(_Step((chain[MAX_DEPTH][0], ""), left_out, "state"))
        path = self._paths[key] = tuple(steps)
        return path

    def _step(self, node: int, frame_id: int, comm: str) -> _Step:
        row = self._frames[frame_id]
        frame = Frame(unescape(row["symbol"]), unescape(row["dso"] or ""), row["kind"])
        return _Step((node, ""), self.number(spelling.speller(comm)(frame)), row["kind"])


def of_lane(cut: pl.DataFrame, shares: Shares, *, first_slice: int, comm: str, paths: StackPaths) -> Cells:
    """Return the cells of one thread from its rows of the SLICES table (any order) and its shares."""
    by_slice: dict[int, list[_Row]] = {}
    columns = cut.filter(cut["busy_ns"] > 0).select("slice", "kind", "name", "stack_id", "busy_ns")
    for number, kind, name, stack_id, busy_ns in columns.sort(
        "slice", "kind", "name", "stack_id"
    ).iter_rows():
        by_slice.setdefault(number, []).append(_Row(kind, unescape(name or ""), stack_id or 0, busy_ns))
    stacks = (
        _stack(by_slice.get(first_slice + at, []), shares.foremost(at), comm, paths)
        for at in range(len(shares))
    )
    return _join(list(stacks), first_slice)


class _Row(NamedTuple):
    kind: str
    name: str
    stack_id: int
    busy_ns: int


def _stack(rows: list[_Row], state: State | None, comm: str, paths: StackPaths) -> _Path:
    """Return what a slice shows: the longest stack of its foremost state, and the state if it is not CPU."""
    if state is None:
        return ()
    if state in ("cpu", "syscall"):
        on_cpu = _longest(rows, "cpu")
        if on_cpu is not None:
            return paths.of(on_cpu.stack_id, comm) or _state_step((), "[no stack]", paths)
        call = _longest(rows, "syscall")
        return _state_step((), f"[{call.name}]" if call else "[on a CPU, not sampled]", paths)
    kind = KIND_OF_STATE[state]
    wait = _longest(rows, kind, state if kind == "off_cpu" else None)
    callers = paths.of(wait.stack_id, comm) if wait else ()
    if state == "dma_wait":
        if not callers and (off_cpu := _longest(rows, "off_cpu")):
            callers = paths.of(off_cpu.stack_id, comm)
        return _state_step(callers, f"[DMA wait: {wait.name}]" if wait and wait.name else "[DMA wait]", paths)
    if state == "runnable":
        return _state_step(callers, "[waiting for a CPU]", paths)
    call = _longest(rows, "syscall")
    return _state_step(callers, f"[blocked in {call.name}]" if call and call.name else "[blocked]", paths)


def _longest(rows: list[_Row], kind: str, name: str | None = None) -> _Row | None:
    fitting = [row for row in rows if row.kind == kind and (name is None or row.name == name)]
    return max(fitting, key=lambda row: row.busy_ns, default=None)


def _state_step(callers: _Path, name: str, paths: StackPaths) -> _Path:
    above = callers[-1].key[0] if callers else 0
    return (*callers, _Step((above, name), paths.number(name), "state"))


def _join(stacks: list[_Path], first_slice: int) -> Cells:
    """Return the cells of stacks in adjacent slices: a frame goes on as long as it and its callers stay."""
    done: list[tuple[int, int, int, int, CellKind]] = []
    begun: list[tuple[_Step, int]] = []
    for at, stack in enumerate([*stacks, ()]):
        same = 0
        while same < min(len(begun), len(stack)) and begun[same][0].key == stack[same].key:
            same += 1
        for depth in range(same, len(begun)):
            step, since = begun[depth]
            done.append((depth, first_slice + since, at - since, step.name, step.kind))
        begun[same:] = [(step, at) for step in stack[same:]]
    done.sort()
    return Cells(*(list(column) for column in zip(*done, strict=True))) if done else Cells([], [], [], [], [])
