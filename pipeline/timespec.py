"""Times as users write them on a command line, exact to the nanosecond; no float ever holds one.

    250ms                  after the capture's first event; -250ms: before its last
    829.851                seconds on the source's clock, as perf script prints them
    12:03:04.5             time of day (UTC, or the anchor's zone), where the capture knows the wall clock
    2024-05-17T12:03:04Z   RFC 3339, likewise
    slice:12345            the beginning of that slice

Ranges are half open: `--from` is the first instant kept, `--to` the first one that is not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from typing import Literal, Protocol

from pipeline.errors import UsageError, one_line

ACCEPTED = (
    "write a duration from the first event (1.5s, 250ms, 40us, 7ns; negative: from the end), "
    "seconds on the source's clock (829.85), 12:03:04.5, 2024-05-17T12:03:04Z or slice:12345"
)
DEFAULT_WIDTH_NS = 100_000

_NS_PER_S = 1_000_000_000
_NS_PER_DAY = 86_400 * _NS_PER_S
_UNITS_NS = {"s": _NS_PER_S, "ms": 1_000_000, "us": 1_000, "µs": 1_000, "μs": 1_000, "ns": 1}
_INT64 = 1 << 63

_NUMBER = r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
_DURATION = re.compile(rf"([+-]?)({_NUMBER})(s|ms|us|µs|μs|ns)")
_BARE = re.compile(_NUMBER)
_SLICE = re.compile(r"slice:([0-9]+)")
_CLOCK = r"([0-9]{1,2}):([0-9]{2}):([0-9]{2}(?:\.[0-9]+)?)"
_TIME_OF_DAY = re.compile(_CLOCK)
_RFC3339 = re.compile(
    rf"([0-9]{{4}})-([0-9]{{2}})-([0-9]{{2}})[Tt ]{_CLOCK}([Zz]|[+-][0-9]{{2}}:[0-9]{{2}})?"
)

Kind = Literal["from_start", "from_end", "source_clock", "wall_clock", "time_of_day", "slice"]


@dataclass(frozen=True, slots=True)
class TimeSpec:
    """A time as written, not yet placed in a capture: value is ns, or the slice number of kind slice.

    from_end counts backwards; wall_clock is ns since 1970-01-01 UTC; time_of_day is ns since midnight.
    """

    kind: Kind
    value: int
    text: str


@dataclass(frozen=True, slots=True)
class WallAnchor:
    """One instant on the source's clock and on the wall clock (ns since 1970-01-01 UTC), and a zone."""

    source_ns: int
    wall_ns: int
    utc_offset_ns: int = 0

    def to_source(self, wall_ns: int) -> int:
        """Return an instant of the wall clock on the source's clock."""
        return self.source_ns + (wall_ns - self.wall_ns)

    def to_wall(self, source_ns: int) -> int:
        """Return an instant of the source's clock on the wall clock."""
        return self.wall_ns + (source_ns - self.source_ns)


class WallClock(Protocol):
    """Converts between the source's clock and the wall clock (ns since 1970-01-01 UTC); has the zone of its days."""

    @property
    def utc_offset_ns(self) -> int:
        """Return how far the zone is ahead of UTC."""
        ...

    def to_source(self, wall_ns: int) -> int:
        """Return an instant of the wall clock on the source's clock."""
        ...

    def to_wall(self, source_ns: int) -> int:
        """Return an instant of the source's clock on the wall clock."""
        ...


def parse_time(text: str) -> TimeSpec:
    """Return what a time on the command line means; raises UsageError that names the forms accepted."""
    bare = text.strip()
    if match := _DURATION.fullmatch(bare):
        sign, number, unit = match.groups()
        kind: Kind = "from_end" if sign == "-" else "from_start"
        return TimeSpec(kind, _exact_ns(number, _UNITS_NS[unit], text), text)
    if _BARE.fullmatch(bare):
        return TimeSpec("source_clock", _exact_ns(bare, _NS_PER_S, text), text)
    if match := _SLICE.fullmatch(bare):
        return TimeSpec("slice", _exact_ns(match[1], 1, text), text)
    if match := _TIME_OF_DAY.fullmatch(bare):
        return TimeSpec("time_of_day", _time_of_day_ns(match.groups(), text), text)
    if match := _RFC3339.fullmatch(bare):
        return TimeSpec("wall_clock", _rfc3339_ns(match, text), text)
    if bare.startswith("-") and _BARE.fullmatch(bare[1:]):
        raise UsageError(
            f"{_quoted(text)} is not a time", f"to count from the end give a unit, as in {bare}s"
        )
    raise UsageError(f"{_quoted(text)} is not a time", ACCEPTED)


def resolve(
    spec: TimeSpec,
    first_ns: int,
    last_ns: int,
    wall: WallClock | None = None,
    width_ns: int = DEFAULT_WIDTH_NS,
) -> int:
    """Return the instant of spec on the source's clock, in ns; first and last are the bounds of the capture.

    The result may lie outside the capture. A time of day is the one inside the capture, or else the nearest
    to its first event. Raises UsageError for a wall-clock time without an anchor.
    """
    match spec.kind:
        case "from_start":
            placed = first_ns + spec.value
        case "from_end":
            placed = last_ns - spec.value
        case "source_clock":
            placed = spec.value
        case "slice":
            placed = spec.value * width_ns
        case "wall_clock":
            placed = _needed(wall, spec).to_source(spec.value)
        case "time_of_day":
            placed = _on_its_day(spec, first_ns, last_ns, _needed(wall, spec))
    if not -_INT64 <= placed < _INT64:
        raise UsageError(f"{_quoted(spec.text)} is too far away", "no capture reaches there")
    return placed


def parse_duration(text: str) -> int:
    """Return a positive duration such as 100us in ns; raises UsageError that says what is accepted."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        hint = (
            f"give it a unit, as in {text.strip()}us"
            if _BARE.fullmatch(text.strip())
            else "write it like 100us"
        )
        raise UsageError(f"{_quoted(text)} is not a duration", f"{hint}; units are s, ms, us and ns")
    sign, number, unit = match.groups()
    duration_ns = _exact_ns(number, _UNITS_NS[unit], text)
    if sign == "-" or duration_ns == 0:
        raise UsageError(f"{_quoted(text)} is not a positive duration", "write it like 100us")
    return duration_ns


def _quoted(text: str) -> str:
    return repr(one_line(text, 60))


def _exact_ns(number: str, unit_ns: int, text: str) -> int:
    """Return number units in ns; refuses what is finer than a nanosecond instead of rounding it."""
    whole, _, fraction = number.partition(".")
    if len(whole) > 30 or len(fraction) > 30:
        raise UsageError(f"{_quoted(text)} has too many digits", "times are nanoseconds in 64 bits")
    digits = int((whole or "0") + fraction) * unit_ns
    value, rest = divmod(digits, 10 ** len(fraction))
    if rest:
        raise UsageError(f"{_quoted(text)} is finer than a nanosecond", "leave out the last digits")
    return _bounded(value, text)


def _bounded(value: int, text: str) -> int:
    if value >= _INT64:
        raise UsageError(f"{_quoted(text)} is too large", "times are nanoseconds in 64 bits")
    return value


def _time_of_day_ns(parts: tuple[str, ...], text: str) -> int:
    hours, minutes = int(parts[0]), int(parts[1])
    seconds_ns = _exact_ns(parts[2], _NS_PER_S, text)
    if hours > 23 or minutes > 59 or seconds_ns >= 60 * _NS_PER_S:
        raise UsageError(f"{_quoted(text)} is no time of day", "from 00:00:00 to 23:59:59.999999999")
    return (hours * 60 + minutes) * 60 * _NS_PER_S + seconds_ns


def _rfc3339_ns(match: re.Match[str], text: str) -> int:
    *day, hours, minutes, seconds, zone = match.groups()
    if zone is None:
        raise UsageError(
            f"{_quoted(text)} has no time zone", f"write {text.strip()}Z for UTC, or an offset such as +02:00"
        )
    try:
        days = date(*map(int, day)).toordinal() - date(1970, 1, 1).toordinal()
    except ValueError as error:
        raise UsageError(f"{_quoted(text)} is no date", str(error)) from None
    offset_min = 0
    if zone not in "Zz":
        if int(zone[1:3]) > 23 or int(zone[4:6]) > 59:
            raise UsageError(f"{_quoted(text)} has no such time zone", "offsets look like +02:00")
        offset_min = (int(zone[1:3]) * 60 + int(zone[4:6])) * (-1 if zone[0] == "-" else 1)
    return days * _NS_PER_DAY + _time_of_day_ns((hours, minutes, seconds), text) - offset_min * 60 * _NS_PER_S


def _needed(wall: WallClock | None, spec: TimeSpec) -> WallClock:
    if wall is None:
        raise UsageError(
            f"{_quoted(spec.text)} is a wall-clock time, and nothing ties this capture to the wall clock",
            "give a duration from its first event, as in 1.5s, or seconds on its own clock",
        )
    return wall


def _on_its_day(spec: TimeSpec, first_ns: int, last_ns: int, wall: WallClock) -> int:
    local_ns = wall.to_wall(first_ns) + wall.utc_offset_ns
    midnight_ns = local_ns // _NS_PER_DAY * _NS_PER_DAY - wall.utc_offset_ns
    nearby = [wall.to_source(midnight_ns + spec.value + days * _NS_PER_DAY) for days in (-1, 0, 1)]
    inside = [placed for placed in nearby if first_ns <= placed <= last_ns]
    return inside[0] if inside else min(nearby, key=lambda placed: abs(placed - first_ns))
