"""What a command says beside its result: the events there were, what was lost, and the exit status that follows."""

from __future__ import annotations

from collections.abc import Mapping

from analyzers.flame_graph import FlameGraph
from pipeline.errors import one_line
from pipeline.folds import EventTotals
from pipeline.losses import REASONS, Loss
from pipeline.text import shown

LOST_TOO_MUCH = 3
_SUMMARY_ROWS = 10


def event_note(name: str, events: Mapping[str, EventTotals]) -> str:
    """Return the line that says which of several events was drawn."""
    told = ", ".join(f"{shown(event)} ({totals.samples} samples)" for event, totals in events.items())
    chosen = shown(next(iter(events)))
    return one_line(
        f"{name}: several events: {told}; drawing {chosen}: choose with --event NAME or all", 2000
    )


def loss_notes(losses: tuple[Loss, ...]) -> list[str]:
    """Return one line per kind of loss, the worst first."""
    return [one_line(f"{loss.severity}: {loss.describe()}") for loss in losses]


def exit_status(losses: tuple[Loss, ...], rows: int, max_loss_percent: float) -> int:
    """Return 0, or 3 where more than max_loss_percent of the rows that the file holds could not be read."""
    lost = sum(loss.count for loss in losses if REASONS[loss.reason].counts_rows)
    return LOST_TOO_MUCH if lost * 100 > max_loss_percent * max(rows, lost) else 0


def amount(value: int, unit: str) -> str:
    """Return a weight for people: `1.25 s`, `310 samples`."""
    if unit != "ns":
        return f"{value:,} {unit}"
    for scale, name in ((10**9, "s"), (10**6, "ms"), (10**3, "us")):
        if value >= scale:
            return f"{value / scale:.3g} {name}"
    return f"{value} ns"


def summary(graph: FlameGraph) -> str:
    """Return a few lines for a terminal: the functions with the largest own weight, and how to get the picture."""
    tree = graph.tree
    total = tree.totals[0]
    own: dict[str, int] = {}
    for name, weight in zip(tree.names, tree.self_weights, strict=True):
        if weight:
            own[name] = own.get(name, 0) + weight
    top = sorted(own.items(), key=lambda item: (-item[1], item[0]))[:_SUMMARY_ROWS]
    lines = [f"{shown(graph.title)}: {graph.event}, {amount(total, graph.unit)} in {graph.samples:,} samples"]
    lines += [f"{weight * 100 / total:6.1f} %  {one_line(shown(name), 90)}" for name, weight in top]
    lines.append("The picture: add -o flamegraph.svg")
    return "\n".join(lines) + "\n"
