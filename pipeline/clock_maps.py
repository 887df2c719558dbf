"""Converts times of one clock into another's, exactly: a piecewise linear map, and what every map can answer.

Everything is exact in integers: between two anchors a value is the exact rational rounded down, whatever the uptime.
Beside each value goes an uncertainty: how far the truth may lie from it if the anchors' own bounds are right and the
rate between the two clocks wanders by no more than stated (docs/clocks.md derives the formula).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol

import polars as pl

_INT64_MAX = (1 << 63) - 1
# beyond this a float that holds an uncertainty would not fit an Int64; no answer is that uncertain and still one
_LARGEST_UNCERTAINTY = float(1 << 62)


class ClockMap(Protocol):
    """Converts from one clock to another; all columns are Int64, in the clocks' own units."""

    def convert(self, values: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Return the values on the other clock, and how far each may be from the truth, rounded up.

        Both are Int64 in the other clock's unit; a value is null where it would leave 64 bits.
        """
        ...

    def rate_at(self, value: int) -> Fraction:
        """Return the rate there: units of the other clock per unit of this one."""
        ...

    def lowest(self, value: int) -> int:
        """Return the smallest time that converts to `value` or later: how a half-open range is pushed down."""
        ...


@dataclass(frozen=True, slots=True)
class Anchor:
    """The same instant on two clocks; x and y are in the clocks' own units, the uncertainty in y's."""

    x: int
    y: int
    uncertainty: int = 0
    origin: str = ""


@dataclass(frozen=True, slots=True)
class RateModel:
    """What is known of the rate dy/dx of two clocks before any anchor is seen.

    rate is what a lone anchor goes by (None: nobody knows, a lone anchor tells nothing); lone_ppb bounds how far the
    truth may be from it, and wander_ppb how far the rates at any two instants may differ.
    """

    rate: Fraction | None = Fraction(1)
    lone_ppb: int = 0
    wander_ppb: int = 0
    is_measured: bool = False  # the rate is that of anchors, so it says nothing beside them

    def inverse(self) -> RateModel:
        """Return the model of dx/dy."""
        return replace(self, rate=None if self.rate is None else 1 / self.rate)


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a map: y = y0 + (x - x0) * num // den, for x from `start` up to the next segment's.

    The uncertainty at a distance d from x0 is at + d * (grows + wander * (1 - d / length)).
    """

    start: int
    x0: int
    y0: int
    num: int
    den: int
    at: float = 0.0
    grows: float = 0.0
    wander: float = 0.0  # in units of y per unit of x
    length: float = math.inf  # infinite outside the anchors

    def at_x(self, x: int) -> int:
        """Return y there, exactly."""
        return self.y0 + (x - self.x0) * self.num // self.den


class PiecewiseMap:
    """From clock x to clock y through segments in order of x; the first one reaches back without end."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = tuple(segments)
        self._starts = [segment.start for segment in self.segments]

    def segment_at(self, x: int) -> Segment:
        """Return the segment that converts x."""
        return self.segments[max(bisect_right(self._starts, x) - 1, 0)]

    def rate_at(self, value: int) -> Fraction:
        """Return the rate there: units of y per unit of x."""
        segment = self.segment_at(value)
        return Fraction(segment.num, segment.den)

    def convert(self, values: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Return the values on clock y and the uncertainty of each, in units of y; null where they leave 64 bits."""
        low, high = values.min(), values.max()
        if not isinstance(low, int) or not isinstance(high, int):
            nothing = values.cast(pl.Int64)
            return nothing, nothing
        first = max(bisect_right(self._starts, low) - 1, 0)
        last = max(bisect_right(self._starts, high) - 1, 0)
        used = self.segments[first : last + 1]
        frame, column = _beside(values, used)
        x, x0, y0, num, den = (column(name) for name in ("x", "x0", "y0", "num", "den"))
        if _fits_64_bits(low, high, used):
            since = x - x0
            # the same quotient with small numbers: num / den is 1 + (num - den) / den
            y = y0 + since + since * (num - den) // den
            distance = since.abs().cast(pl.Float64)
        else:
            wide = (x.cast(pl.Int128) - x0.cast(pl.Int128)) * num.cast(pl.Int128) // den.cast(pl.Int128)
            y = (y0.cast(pl.Int128) + wide).cast(pl.Int64, strict=False)
            distance = (x.cast(pl.Float64) - x0.cast(pl.Float64)).abs()
        wander = column("wander") * (1.0 - distance / column("length"))
        bound = column("at") + distance * (column("grows") + wander)
        uncertain = bound.clip(0.0, _LARGEST_UNCERTAINTY).ceil().cast(pl.Int64)
        done = frame.select(y=y, uncertainty=uncertain)
        return done["y"], done["uncertainty"]

    def lowest(self, value: int) -> int:
        """Return the smallest x that converts to `value` or later."""
        for number, segment in enumerate(self.segments):
            end = self._starts[number + 1] if number + 1 < len(self._starts) else None
            x = segment.x0 - (
                (segment.y0 - value) * segment.den // segment.num
            )  # the exact quotient, rounded up
            if number > 0:
                x = max(x, segment.start)
            if end is None or x < end:
                return x
        raise AssertionError("a map has a last segment")


def _beside(
    values: pl.Series, segments: tuple[Segment, ...]
) -> tuple[pl.DataFrame, Callable[[str], pl.Expr]]:
    """Return a frame of x, and what gives a column of its segment beside it: a constant where there is but one."""
    if len(segments) == 1:
        only = segments[0]

        def constant(name: str) -> pl.Expr:
            if name == "x":
                return pl.col("x")
            value = getattr(only, name)
            return pl.lit(value, pl.Float64 if isinstance(value, float) else pl.Int64)

        return pl.DataFrame({"x": values}), constant
    inner = pl.Series([segment.start for segment in segments[1:]], dtype=pl.Int64)
    rows = inner.search_sorted(values, side="right")
    names = ("x0", "y0", "num", "den", "at", "grows", "wander", "length")
    columns = {name: pl.Series([getattr(one, name) for one in segments]).gather(rows) for name in names}
    return pl.DataFrame({"x": values, **columns}), pl.col


def _fits_64_bits(low: int, high: int, segments: tuple[Segment, ...]) -> bool:
    """Return whether no step of the small-number formula can leave 64 bits; a map is monotone between its ends."""
    for number, segment in enumerate(segments):
        start = low if number == 0 else segment.start
        end = segments[number + 1].start if number + 1 < len(segments) else high
        distance = max(abs(start - segment.x0), abs(end - segment.x0))
        if distance * max(abs(segment.num - segment.den), 1) > _INT64_MAX:
            return False
        if max(abs(segment.at_x(start)), abs(segment.at_x(end)), abs(segment.y0) + distance) > _INT64_MAX:
            return False
    return True
