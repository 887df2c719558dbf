"""Where did the weight go? A call tree with totals, from a fold or from intervals, and what a reader must know of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pipeline.losses import Loss
from pipeline.stacks import FrameKind


@dataclass(frozen=True, slots=True)
class CallTree:
    """A call tree as columns; node 0 is the root ('all'), parents stand before children, siblings sorted by name.

    names are surrogate-escaped text, spelled as folded output spells them; weights are integers in the graph's unit.
    """

    names: list[str]
    kinds: list[FrameKind | Literal["process"]]
    parents: list[int]
    self_weights: list[int]
    totals: list[int]


@dataclass(frozen=True, slots=True)
class FlameGraph:
    """A call tree, and what was asked, counted and lost to get it."""

    tree: CallTree
    title: str
    event: str  # the event, or the kind of interval (off_cpu, dma_wait, block_io)
    weight: Literal["period", "samples", "time"]
    unit: str  # 'ns' for times, 'samples', or the event's own ('cycles', 'page-faults')
    samples: int
    filters: tuple[str, ...] = ()  # in words: 'pid 12', 'from 1.5s to 2s'
    clock: str = ""  # in words: 'perf clock, not aligned'; '' where the source has no times
    losses: tuple[Loss, ...] = field(default=())
    unknown_share: float = 0.0  # share of the weight whose leaf has no symbol, 0 to 1
    notes: tuple[str, ...] = ()  # anything else that a reader of the picture must know
