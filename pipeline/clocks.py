"""The graph of clocks: converts columns of times between domains, and says how sure it is.

A node is a clock domain, an edge what relates two of them: anchors (clock_anchors) or the kernel's TSC formula (tsc).
Of several ways between two clocks the least uncertain one is taken, for a whole column, so that order is kept. The
graph knows no policy: what is the same clock, and what may be assumed, is for pipeline.align.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import polars as pl

from pipeline.clock_anchors import Anchors, map_of
from pipeline.clock_domains import Domain, TimeConversion
from pipeline.clock_maps import ClockMap
from pipeline.tsc import TscMap


@dataclass(frozen=True, slots=True)
class Edge:
    """What relates two clocks, and the maps both ways; None where a lone anchor tells no rate."""

    source: Domain
    target: Domain
    known: Anchors | TimeConversion
    there: ClockMap | None
    back: ClockMap | None

    @classmethod
    def of_anchors(cls, source: Domain, target: Domain, anchors: Anchors) -> Edge:
        """Return the edge that anchors make: x is source's clock, y target's."""
        return cls(source, target, anchors, map_of(anchors), map_of(anchors.inverse()))

    @classmethod
    def of_conversion(cls, tsc: Domain, perf: Domain, conversion: TimeConversion) -> Edge:
        """Return the edge that the kernel's formula makes."""
        there = TscMap(conversion)
        return cls(tsc, perf, conversion, there, there.inverse())

    def describe(self) -> list[object]:
        """Return everything that answers depend on, as plain values."""
        ends: list[object] = [_words(self.source), _words(self.target)]
        if isinstance(self.known, TimeConversion):
            known = self.known
            return [*ends, known.shift, known.mult, known.zero, known.cycles, known.mask, known.is_short]
        model = self.known.model
        eras = [[[one.x, one.y, one.uncertainty] for one in era] for era in self.known.eras]
        return [*ends, str(model.rate), model.lone_ppb, model.wander_ppb, eras]


@dataclass(frozen=True, slots=True)
class Converted:
    """Times on another clock; where a time would leave 64 bits it is null."""

    values: pl.Series  # Int64, in the target's unit
    uncertainty: pl.Series  # Int64, in the target's unit: how far the truth may be from each value
    path: tuple[Domain, ...]  # the clocks on the way, source first


@dataclass(frozen=True, slots=True)
class Hop:
    """One edge, gone one way."""

    start: Domain
    end: Domain
    map: ClockMap


class ClockGraph:
    """Clock domains and what relates them."""

    def __init__(self, edges: Iterable[Edge]) -> None:
        self.edges = tuple(edges)
        self._hops: dict[Domain, list[Hop]] = {}
        for edge in self.edges:
            if edge.there is not None:
                self._hops.setdefault(edge.source, []).append(Hop(edge.source, edge.target, edge.there))
            if edge.back is not None:
                self._hops.setdefault(edge.target, []).append(Hop(edge.target, edge.source, edge.back))

    @property
    def domains(self) -> tuple[Domain, ...]:
        """Return every domain that something relates, in order."""
        return tuple(sorted({domain for edge in self.edges for domain in (edge.source, edge.target)}))

    @property
    def digest(self) -> str:
        """Return a hash of everything that answers depend on: results name it."""
        parts = sorted(json.dumps(edge.describe()) for edge in self.edges)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    def path(self, source: Domain, target: Domain, low: int, high: int) -> tuple[Hop, ...] | None:
        """Return the way whose worst uncertainty between two times of source is least; None: nothing relates them."""
        probes = pl.Series("x", [low, (low + high) // 2, high], dtype=pl.Int64)
        zero = pl.zeros(3, pl.Int64, eager=True)
        waiting: list[tuple[int, int, int, Domain, pl.Series, pl.Series, tuple[Hop, ...]]]
        waiting = [(0, 0, 0, source, probes, zero, ())]
        done: set[Domain] = set()
        number = 0
        while waiting:
            _, _, _, domain, values, uncertain, path = heapq.heappop(waiting)
            if domain in done:
                continue
            if domain == target:
                return path
            done.add(domain)
            for hop in self._hops.get(domain, ()):
                if hop.end in done:
                    continue
                there, worse = _follow(hop, values, uncertain, is_first=not path)
                if there.null_count():
                    continue
                number += (
                    1  # so that equal ways are taken in the order of the edges, and nothing else is compared
                )
                cost = worse.max()
                assert isinstance(cost, int)
                heapq.heappush(waiting, (cost, len(path) + 1, number, hop.end, there, worse, (*path, hop)))
        return None

    def convert(self, values: pl.Series, source: Domain, target: Domain) -> Converted | None:
        """Return a column of times of one clock on another; None where nothing relates the two.

        values: Int64 in source's unit, nulls stay. One way serves the whole column.
        """
        values = values.cast(pl.Int64)
        low, high = values.min(), values.max()
        if low is None or high is None or source == target:
            return Converted(values, pl.zeros(len(values), pl.Int64, eager=True), (source,))
        assert isinstance(low, int)
        assert isinstance(high, int)
        path = self.path(source, target, low, high)
        return None if path is None else follow(path, values)

    def convert_one(self, value: int, source: Domain, target: Domain) -> tuple[int, int] | None:
        """Return (value, uncertainty) of one time on another clock; None where nothing relates them or it overflows."""
        converted = self.convert(pl.Series([value], dtype=pl.Int64), source, target)
        if converted is None or converted.values[0] is None:
            return None
        return int(converted.values[0]), int(converted.uncertainty[0])


def follow(path: tuple[Hop, ...], values: pl.Series) -> Converted:
    """Return a column of times carried along a path."""
    uncertain = pl.zeros(len(values), pl.Int64, eager=True)
    for number, hop in enumerate(path):
        values, uncertain = _follow(hop, values, uncertain, is_first=number == 0)
    return Converted(values, uncertain, (path[0].start, *(hop.end for hop in path)))


def lowest(path: tuple[Hop, ...], value: int) -> int:
    """Return the smallest time of the path's start that arrives at `value` or later: a range is pushed down by it."""
    for hop in reversed(path):
        value = hop.map.lowest(value)
    return value


def _follow(
    hop: Hop, values: pl.Series, uncertain: pl.Series, *, is_first: bool
) -> tuple[pl.Series, pl.Series]:
    """Carry times and their uncertainty over one hop; what an earlier hop rounded away counts as uncertain too."""
    there, own = hop.map.convert(values)
    if is_first:
        return there, own
    low = values.min()
    rate = hop.map.rate_at(low) if isinstance(low, int) else Fraction(1)
    carried = ((uncertain + 1).cast(pl.Float64) * float(rate)).ceil().cast(pl.Int64)
    return there, own + carried


def _words(domain: Domain) -> list[str]:
    return [domain.clock, domain.host, domain.boot_id]
