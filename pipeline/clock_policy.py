"""What may be believed of clocks: how their rates can differ, which of two is the steadier, and edges from snapshots.

The numbers are bounds, not estimates: a join that they would refuse is refused unless the user accepts it.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Final

from pipeline.clock_anchors import Anchors, sort_out
from pipeline.clock_domains import RELATIVE, SESSION, Domain, Reading, Snapshot
from pipeline.clock_maps import Anchor, RateModel
from pipeline.clocks import Edge

# which clock of a snapshot the others are told against: the first never goes back while its boot lasts
_STEADINESS: Final = (
    "monotonic",
    "boottime",
    "monotonic_raw",
    "perf",
    "sched_clock",
    "tsc",
    "gpu",
    "session",
    "tai",
    "realtime",
    "relative",
)
# the kernel's one timekeeper behind four clocks: they differ by steps and suspends, never in rate
_TIMEKEEPER: Final = frozenset({"monotonic", "boottime", "realtime", "tai"})
# NTP slews the timekeeper by at most 500 ppm (kernel/time/ntp.c, MAXFREQ)
_SLEW_PPB: Final = 500_000
# counters calibrated apart from each other; 50 ppm is our choice, over 100 times what was measured (docs/clocks.md)
_CALIBRATION_PPB: Final = 50_000
# two hosts: each timekeeper may be slewed
_HOSTS_PPB: Final = 2 * _SLEW_PPB
# temperature and NTP's corrections between two snapshots; our choice, and more where the anchors show more
_WANDER_PPB: Final = 1_000
# no counter ticks more often in a ns; our choice, for a lone reading tells no rate
_MOST_TICKS: Final = Fraction(8)
# a rate that changes by more than this between anchors is said; our choice: a leap smear over a day is 11,574
NOTABLE_PPB: Final = 5_000


def rate_model(one: Domain, other: Domain) -> RateModel:
    """Return what is known of the rate of `other` against `one` before any anchor is seen."""
    rate = None if "tsc" in (one.clock, other.clock) else Fraction(1)
    if RELATIVE in (one.clock, other.clock):
        return RateModel(rate)  # only a user's word relates it, and the word is that it runs alike
    if SESSION in (one.clock, other.clock):
        return RateModel(rate, _SLEW_PPB, _WANDER_PPB)  # one of the host's clocks: which, is not known
    if (one.host, one.boot_id) != (other.host, other.boot_id):
        return RateModel(rate, _HOSTS_PPB, _WANDER_PPB)
    if one.clock in _TIMEKEEPER and other.clock in _TIMEKEEPER:
        return RateModel(rate)
    if one.clock in _TIMEKEEPER or other.clock in _TIMEKEEPER:
        return RateModel(rate, _SLEW_PPB, _WANDER_PPB)
    return RateModel(rate, _CALIBRATION_PPB, _WANDER_PPB)


def steadiness(domain: Domain) -> int:
    """Return a rank: the lower, the less a clock is stepped."""
    return _STEADINESS.index(domain.clock) if domain.clock in _STEADINESS else len(_STEADINESS)


def edges_of(snapshots: Iterable[Snapshot]) -> list[Edge]:
    """Return one edge per pair of clocks that snapshots tie: each clock against the steadiest beside it."""
    pairs: dict[tuple[Domain, Domain], list[tuple[Reading, Reading, str]]] = {}
    for snapshot in snapshots:
        base, *others = sorted(snapshot.readings, key=lambda one: (steadiness(one.domain), one.domain))
        for other in others:
            if other.domain != base.domain:
                pairs.setdefault((base.domain, other.domain), []).append((base, other, snapshot.origin))
    edges = []
    for pair, readings in pairs.items():
        scale = _units_of_other(readings) if rate_model(*pair).rate is None else Fraction(1)
        anchors = [
            Anchor(base.value, other.value, other.uncertainty + math.ceil(base.uncertainty * scale), origin)
            for base, other, origin in readings
        ]
        edges.append(Edge.of_anchors(*pair, _with_wander(anchors, rate_model(*pair))))
    return edges


def _units_of_other(readings: Sequence[tuple[Reading, Reading, str]]) -> Fraction:
    """Return roughly how many units of the other clock one of the base has: an uncertainty needs no more."""
    rates = sorted(
        Fraction(abs(right[1].value - left[1].value), abs(right[0].value - left[0].value))
        for left, right in itertools.pairwise(readings)
        if right[0].value != left[0].value
    )
    return rates[len(rates) // 2] if rates else _MOST_TICKS


def _with_wander(found: Sequence[Anchor], model: RateModel) -> Anchors:
    """Sort anchors out, and believe as much wander as they show."""
    anchors = sort_out(found, model)
    seen = wander_ppb(anchors)
    if seen <= model.wander_ppb:
        return anchors
    return sort_out(found, dataclasses.replace(model, wander_ppb=seen))


def wander_ppb(anchors: Anchors) -> int:
    """Return by how much the rates between neighbours differ for certain, what their uncertainty explains taken off."""
    lowest: Fraction | None = None
    highest: Fraction | None = None
    for era in anchors.eras:
        for left, right in itertools.pairwise(era):
            length = right.x - left.x
            rate = Fraction(right.y - left.y, length)
            error = Fraction(left.uncertainty + right.uncertainty + 1, length)
            lowest = rate + error if lowest is None else min(lowest, rate + error)
            highest = rate - error if highest is None else max(highest, rate - error)
    if lowest is None or highest is None or highest <= lowest:
        return 0
    return int((highest - lowest) / (anchors.model.rate or 1) * 1_000_000_000) + 1
