"""From anchors to a map: which of them contradict the others, where a clock was stepped, and lines through the rest.

The model behind every bound: an anchor's own uncertainty is right, and the rates of the two clocks at any two instants
differ by at most `wander`. Then between anchors at a distance d1 and d2 the truth is at most

    (u1 * d2 + u2 * d1) / (d1 + d2)  +  wander * d1 * d2 / (d1 + d2)

from the line, and outside them at most u + d * (error of the rate + wander). docs/clocks.md shows why.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pipeline.clock_maps import Anchor, PiecewiseMap, RateModel, Segment

_PPB = 1_000_000_000
_RATE_TERM = (
    1 << 62
)  # the largest numerator or denominator of a rate: products with a distance stay in 128 bits


@dataclass(frozen=True, slots=True)
class Step:
    """Clock y jumped against clock x between two anchors: it was set, or x stood still or was reset."""

    before: Anchor
    after: Anchor
    size: int  # by how much y is ahead of where it was expected, in its units


@dataclass(frozen=True, slots=True)
class Anchors:
    """Anchors in order of x, without those that contradict the others, and cut into eras at the steps."""

    eras: tuple[tuple[Anchor, ...], ...]
    model: RateModel
    steps: tuple[Step, ...] = ()
    dropped: tuple[Anchor, ...] = ()  # each contradicts its neighbours

    def all(self) -> list[Anchor]:
        """Return the anchors that count, in order of x."""
        return [anchor for era in self.eras for anchor in era]

    def inverse(self) -> Anchors:
        """Return the same anchors as seen from clock y; an era keeps its place even where y was set back."""

        def turned(anchor: Anchor) -> Anchor:
            return Anchor(anchor.y, anchor.x, math.ceil(anchor.uncertainty / self._rate), anchor.origin)

        eras = tuple(tuple(turned(anchor) for anchor in era) for era in self.eras)
        steps = tuple(
            Step(turned(one.before), turned(one.after), -math.floor(one.size / self._rate))
            for one in self.steps
        )
        return Anchors(eras, self.model.inverse(), steps, self.dropped)

    @property
    def _rate(self) -> Fraction:
        return self.model.rate or Fraction(1)


def sort_out(anchors: Sequence[Anchor], model: RateModel) -> Anchors:
    """Return anchors cut into eras within which each two neighbours agree with the model's rate.

    An anchor alone between neighbours that agree with each other contradicts them, and is dropped; what stays apart is
    a step. A model without a rate takes the median of the neighbours' rates.
    """
    dropped: list[Anchor] = []
    ordered = _distinct(sorted(anchors, key=lambda one: (one.x, one.uncertainty, one.y)), dropped)
    if model.rate is None:
        model = dataclasses.replace(model, rate=_median_rate(ordered), is_measured=True)
    if model.rate is None:
        return Anchors((tuple(ordered),) if ordered else (), model, dropped=tuple(dropped))
    runs: list[list[Anchor]] = []
    for anchor in ordered:
        if runs and _agree(runs[-1][-1], anchor, model):
            runs[-1].append(anchor)
        elif len(runs) > 1 and len(runs[-1]) == 1 and _agree(runs[-2][-1], anchor, model):
            dropped.append(runs.pop()[0])
            runs[-1].append(anchor)
        else:
            runs.append([anchor])
    eras = tuple(tuple(_useful(run, model)) for run in runs)
    steps = tuple(
        Step(left[-1], right[0], right[0].y - left[-1].y - math.floor((right[0].x - left[-1].x) * model.rate))
        for left, right in itertools.pairwise(eras)
    )
    return Anchors(eras, model, steps, tuple(dropped))


def map_of(anchors: Anchors) -> PiecewiseMap | None:
    """Return the map from x to y; None where a lone anchor leaves the rate unknown.

    Where x itself was set back, a time can stand for two instants: the earlier era answers, and is that uncertain.
    """
    if anchors.model.rate is None or not anchors.eras:
        return None
    maps = [PiecewiseMap(_through(era, anchors.model)) for era in anchors.eras]
    if len(maps) == 1:
        return maps[0]
    spans = [(era[0].x, era[-1].x) for era in anchors.eras]
    edges = sorted({edge for span in spans for edge in span})
    first = min(range(len(spans)), key=lambda era: spans[era])
    last = max(range(len(spans)), key=lambda era: (spans[era][1], spans[era][0]))
    segments = list(_clipped(maps[first], None, edges[0]))
    for low, high in itertools.pairwise(edges):
        covering = [era for era, (start, end) in enumerate(spans) if start <= low and end >= high]
        if covering:
            spread = max(_apart(maps[covering[0]], maps[era], low, high) for era in covering)
            segments += _clipped(maps[covering[0]], low, high, spread)
        else:
            left = max(
                (era for era in range(len(spans)) if spans[era][1] <= low), key=lambda era: spans[era][1]
            )
            right = min(
                (era for era in range(len(spans)) if spans[era][0] >= high), key=lambda era: spans[era]
            )
            segments += _gap(maps[left], maps[right], low, high, is_in_order=left < right)
    return PiecewiseMap([*segments, *_clipped(maps[last], edges[-1], None)])


def _apart(one: PiecewiseMap, other: PiecewiseMap, low: int, high: int) -> float:
    """Return how far two maps are apart in a stretch, with the other's own uncertainty at its ends."""
    if one is other:
        return 0.0
    return max(
        abs(one.segment_at(x).at_x(x) - other.segment_at(x).at_x(x)) + other.segment_at(x).at
        for x in (low, high)
    )


def _gap(left: PiecewiseMap, right: PiecewiseMap, low: int, high: int, *, is_in_order: bool) -> list[Segment]:
    """Bridge the gap between two eras: nobody knows where in it the step was, so all of it is that uncertain."""
    before, after = left.segment_at(low), right.segment_at(high)
    size = max(_apart(left, right, low, high), _apart(right, left, low, high))
    rise = after.at_x(high) - before.at_x(low)
    if is_in_order and rise > 0:
        return [Segment(low, low, before.at_x(low), rise, high - low, size + max(before.at, after.at))]
    middle = (low + high + 1) // 2
    return [*_clipped(left, low, middle, size), *_clipped(right, middle, high, size)]


def _clipped(one: PiecewiseMap, low: int | None, high: int | None, extra: float = 0.0) -> Iterator[Segment]:
    """Yield what a map has between low and high, less certain by extra."""
    for segment, following in itertools.zip_longest(one.segments, one.segments[1:]):
        if low is not None and following is not None and following.start <= low:
            continue
        if high is not None and segment.start >= high:
            return
        start = segment.start if low is None else max(segment.start, low)
        yield dataclasses.replace(segment, start=start, at=segment.at + extra)


def _distinct(ordered: list[Anchor], dropped: list[Anchor]) -> list[Anchor]:
    """Return one anchor for each x, the most certain; one that contradicts it goes to `dropped`."""
    kept: list[Anchor] = []
    for anchor in ordered:
        if not kept or kept[-1].x != anchor.x:
            kept.append(anchor)
        elif abs(kept[-1].y - anchor.y) > kept[-1].uncertainty + anchor.uncertainty:
            dropped.append(anchor)
    return kept


def _agree(left: Anchor, right: Anchor, model: RateModel) -> bool:
    """Return whether two anchors can both be right, at a rate that the model allows."""
    assert model.rate is not None
    distance = right.x - left.x
    expected = distance * model.rate
    allowed = left.uncertainty + right.uncertainty + expected * model.lone_ppb / _PPB + 1
    return abs(right.y - left.y - expected) <= allowed


def _median_rate(ordered: Sequence[Anchor]) -> Fraction | None:
    rates = sorted(
        Fraction(right.y - left.y, right.x - left.x)
        for left, right in itertools.pairwise(ordered)
        if right.y > left.y
    )
    return rates[len(rates) // 2] if rates else None


def _useful(run: Sequence[Anchor], model: RateModel) -> list[Anchor]:
    """Return a run without anchors that the ones beside them know better, and rising in y."""
    assert model.rate is not None
    wander = float(model.rate) * model.wander_ppb / _PPB
    kept: list[Anchor] = []
    for anchor in run:
        while kept and anchor.y <= kept[-1].y:  # closer together than they are certain
            if kept[-1].uncertainty <= anchor.uncertainty:
                break
            kept.pop()
        else:
            while len(kept) > 1 and _is_known_better(kept[-2], kept[-1], anchor, wander):
                kept.pop()
            kept.append(anchor)
    while len(kept) > 1 and _is_end_known_better(kept[-1], kept[-2::-1], model):
        kept.pop()
    while len(kept) > 1 and _is_end_known_better(kept[0], kept[1:], model):
        del kept[0]
    return kept


def _is_known_better(left: Anchor, middle: Anchor, right: Anchor, wander: float) -> bool:
    before, after = middle.x - left.x, right.x - middle.x
    between = left.uncertainty * after + right.uncertainty * before + wander * before * after
    return middle.uncertainty * (before + after) > between


def _is_end_known_better(end: Anchor, others: Sequence[Anchor], model: RateModel) -> bool:
    """Return whether the anchors before the last one know that instant better than it does itself."""
    assert model.rate is not None
    if len(others) > 1:
        _, grows = _best_rate(others[0], others[1:], model)
    elif model.is_measured:
        return False
    else:
        grows = float(model.rate) * model.lone_ppb / _PPB
    return end.uncertainty > others[0].uncertainty + grows * abs(end.x - others[0].x)


def _through(era: Sequence[Anchor], model: RateModel) -> list[Segment]:
    """Return the segments of one era; the first reaches back, and the last forward, without end."""
    assert model.rate is not None
    wander = float(model.rate) * model.wander_ppb / _PPB
    if len(era) == 1:
        only = era[0]
        num, den = model.rate.as_integer_ratio()
        grows = float(model.rate) * model.lone_ppb / _PPB
        return [Segment(only.x, only.x, only.y, num, den, float(only.uncertainty), grows)]
    segments = []
    rate, outside = _best_rate(era[0], era[1:], model)
    num, den = rate.as_integer_ratio()
    segments.append(Segment(era[0].x - 1, era[0].x, era[0].y, num, den, float(era[0].uncertainty), outside))
    for left, right in itertools.pairwise(era):
        length = right.x - left.x
        grows = (right.uncertainty - left.uncertainty) / length
        num, den = Fraction(right.y - left.y, length).as_integer_ratio()
        segments.append(
            Segment(left.x, left.x, left.y, num, den, float(left.uncertainty), grows, wander, float(length))
        )
    rate, outside = _best_rate(era[-1], era[-2::-1], model)
    num, den = rate.as_integer_ratio()
    segments.append(Segment(era[-1].x, era[-1].x, era[-1].y, num, den, float(era[-1].uncertainty), outside))
    return segments


def _best_rate(end: Anchor, others: Sequence[Anchor], model: RateModel) -> tuple[Fraction, float]:
    """Return the rate that goes on outside the anchors, and how wrong it may be there.

    It is that of the nearest anchor that knows it best, or the model's own where the anchors are too close to tell.
    """
    errors = [(Fraction(end.uncertainty + one.uncertainty, abs(end.x - one.x)), one) for one in others]
    error, best = min(errors, key=lambda pair: pair[0])
    assert model.rate is not None
    measured = float(error) + float(model.rate) * model.wander_ppb / _PPB
    given = float(model.rate) * model.lone_ppb / _PPB
    if not model.is_measured and given < measured:
        return model.rate, given
    return Fraction(end.y - best.y, end.x - best.x), measured
