"""A fold: how much weight every (event, process, stack) of a source carries. The short way from file to flame graph.

Every reader of stacks produces one; it holds no times of single samples, so that its size follows the number of
different stacks, not of samples.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline.losses import LossLedger
from pipeline.stacks import StackTrie


@dataclass(slots=True)
class EventTotals:
    """One event of a fold: its samples, and the sum of their periods where the file has periods."""

    samples: int = 0
    period: int = 0
    has_period: bool = False


@dataclass(slots=True)
class Fold:
    """Weights per (event name, comm, stack node); `events` keeps the order of first appearance in the source."""

    trie: StackTrie = field(default_factory=StackTrie)
    # (event, comm, node) -> [samples, period]; comm None: the file names no process; '' only from folded input,
    # whose first frame is the process already
    weights: dict[tuple[str, str | None, int], list[int]] = field(default_factory=dict)
    events: dict[str, EventTotals] = field(default_factory=dict)
    losses: LossLedger = field(default_factory=LossLedger)
    rows: int = 0  # rows that the file holds, read or not: the base of --max-loss
    first_ns: int | None = None
    last_ns: int | None = None
    clock: str = ""  # what stamped the samples, in words: 'perf', 'monotonic', '' where there are no times
    unit: str = (
        ""  # what a period counts where the format says it ('ns', 'us', 'bytes'); '' = by the event's name
    )
    is_folded: bool = False  # names are spelled for folded output already: tidy nothing
    notes: tuple[str, ...] = ()  # what a reader of the result must know of the source, in words
    meta: dict[str, str] = field(default_factory=dict)  # the source's own header fields

    def add(self, event: str, comm: str | None, node: int, samples: int, period: int | None) -> None:
        """Add samples of one stack; period is their sum, None where the file has none."""
        totals = self.events.setdefault(event, EventTotals())
        totals.samples += samples
        if period is not None:
            totals.period += period
            totals.has_period = True
        weight = self.weights.setdefault((event, comm, node), [0, 0])
        weight[0] += samples
        weight[1] += samples if period is None else period
