"""What relates the clocks of a question: each source's place, each relation's rate and error, every assumption."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction

import polars as pl

from pipeline import clocks
from pipeline.align import Alignment, Placed
from pipeline.clock_anchors import Anchors
from pipeline.clock_domains import TimeConversion
from pipeline.clocks import Edge
from pipeline.errors import InputError


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One source on the timeline, or why it is not there."""

    source: str
    clock: str
    first: int | None  # in the clock's own unit
    last: int | None
    way: tuple[str, ...]  # the clocks from its own to the timeline
    uncertainty_ns: int | None
    shift_ns: int
    why_not: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Relation:
    """What ties two clocks: the rate is target's units per unit of source."""

    source: str
    target: str
    unit: str  # of the target
    kind: str  # anchors, kernel formula
    origins: tuple[str, ...]
    anchors: int
    rate: float | None  # None: a lone anchor tells none
    deviation_ppm: float | None  # from the rate 1; None for ticks
    largest_residual: (
        int | None
    )  # in the target's unit: off the straight line from the first anchor to the last
    uncertainty: int | None  # in the target's unit: the worst between the anchors
    steps: int
    dropped: int
    is_rate_assumed: bool = False  # one anchor, and what is known of the two clocks


@dataclass(frozen=True, slots=True)
class ClockReport:
    """Everything that `flameslice clocks` shows."""

    timeline: str
    graph: str  # the hash that results name
    sources: tuple[SourceLine, ...]
    relations: tuple[Relation, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]


def of(alignment: Alignment) -> ClockReport:
    """Return the report of an alignment."""
    return ClockReport(
        timeline=str(alignment.timeline),
        graph=alignment.digest,
        sources=tuple(_source(one) for one in alignment.sources),
        relations=tuple(_relation(edge) for edge in alignment.graph.edges),
        assumptions=alignment.assumptions,
        warnings=alignment.warnings,
    )


def convert(alignment: Alignment, reading: tuple[str, int], target: str) -> tuple[int, int, str]:
    """Return (value, uncertainty, unit) of one time on another clock; raises InputError where nothing relates them."""
    start, end = alignment.domain_named(reading[0]), alignment.domain_named(target)
    converted = alignment.graph.convert_one(reading[1], start, end)
    if converted is None:
        raise InputError(
            f"nothing relates {start} to {end}, or the time would not fit 64 bits",
            f"give --anchor {start.clock}:VALUE={end.clock}:VALUE",
        )
    return (*converted, end.unit)


def _source(one: Placed) -> SourceLine:
    way = [str(one.domain)]
    if one.path:
        way += [str(hop.end) for hop in one.path]
    return SourceLine(
        source=one.source.source,
        clock=str(one.domain) if one.source.clock else "no times",
        first=one.source.first,
        last=one.source.last,
        way=tuple(way),
        uncertainty_ns=one.uncertainty_ns if one.is_placed else None,
        shift_ns=one.shift_ns,
        why_not=one.why_not,
        remedy=one.remedy,
    )


def _relation(edge: Edge) -> Relation:
    known = edge.known
    if isinstance(known, TimeConversion):
        rate = Fraction(known.mult, 1 << known.shift)
        return Relation(
            str(edge.source), str(edge.target), "ns", "kernel formula", ("TIME_CONV",),
            0, float(rate), None, None, 0, 0, 0,
        )  # fmt: skip
    anchors = known.all()
    rate_known = _overall_rate(known)
    is_ns = edge.source.unit == edge.target.unit == "ns"
    origins = dict.fromkeys(one.origin.partition(": snapshot ")[0] for one in anchors)
    return Relation(
        source=str(edge.source),
        target=str(edge.target),
        unit=edge.target.unit,
        kind="anchors",
        origins=tuple(origins),
        anchors=len(anchors),
        rate=None if rate_known is None else float(rate_known),
        deviation_ppm=float((rate_known - 1) * 1_000_000) if rate_known is not None and is_ns else None,
        largest_residual=_largest_residual(known),
        uncertainty=_worst_between(edge, known),
        steps=len(known.steps),
        dropped=len(known.dropped),
        is_rate_assumed=rate_known is None and is_ns,
    )


def _overall_rate(known: Anchors) -> Fraction | None:
    """Return the rate over the longest era."""
    era = max(known.eras, key=lambda one: one[-1].x - one[0].x, default=())
    if len(era) < 2:
        return None
    return Fraction(era[-1].y - era[0].y, era[-1].x - era[0].x)


def _largest_residual(known: Anchors) -> int | None:
    worst: Fraction | None = None
    for era in known.eras:
        if len(era) < 3:
            continue
        first, last = era[0], era[-1]
        rate = Fraction(last.y - first.y, last.x - first.x)
        here = max(abs(one.y - first.y - (one.x - first.x) * rate) for one in era)
        worst = here if worst is None else max(worst, here)
    return None if worst is None else round(worst)


def _worst_between(edge: Edge, known: Anchors) -> int | None:
    """Return the worst uncertainty at the anchors and half-way between neighbours of an era."""
    if edge.there is None:
        return None
    probes = [one.x for one in known.all()]
    probes += [(left.x + right.x) // 2 for era in known.eras for left, right in itertools.pairwise(era)]
    hop = clocks.Hop(edge.source, edge.target, edge.there)
    worst = clocks.follow((hop,), pl.Series(probes, dtype=pl.Int64)).uncertainty.max()
    return worst if isinstance(worst, int) else None
