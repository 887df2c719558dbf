"""Reads a host's clocks at one instant, and says how sure it is.

One line of `clocks.jsonl` is one snapshot: every value stands for the instant that `monotonic` shows:

    {"snapshot": 0, "clocks": {"monotonic": {"value_ns": 812000000123, "uncertainty_ns": 0},
     "realtime": {"value_ns": 1796097220690226123, "uncertainty_ns": 48}, ...}}

What a tracer stamped (clock_markers) has lines of its own, for these are other instants; a TSC counts ticks:

    {"snapshot": 9, "clocks": {"monotonic": {...}, "tsc": {"value_ticks": 89740668660786, "uncertainty_ticks": 0}}}
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import from_os_error
from pipeline.losses import LossLedger

if TYPE_CHECKING:
    import polars as pl

REFERENCE = "monotonic"
CLOCK_IDS = {
    "monotonic_raw": time.CLOCK_MONOTONIC_RAW,
    "boottime": time.CLOCK_BOOTTIME,
    "realtime": time.CLOCK_REALTIME,
    "tai": time.CLOCK_TAI,
}
# our choice: the first try after a sleep is slow, and 5 tries of 5 clocks take some 10 us
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Reading:
    """What one clock showed at the snapshot's instant, in its own unit."""

    clock: str
    value: int
    uncertainty: int

    @property
    def unit(self) -> str:
        """Return what the clock counts."""
        return "ticks" if self.clock == "tsc" else "ns"


def take(read_ns: Callable[[int], int] = time.clock_gettime_ns, tries: int = _TRIES) -> tuple[Reading, ...]:
    """Return one reading per clock, all moved to the instant of the first, which is `monotonic`.

    Each clock is read between two reads of `monotonic`; the tightest of several tries counts, and half its
    bracket, rounded up, is the uncertainty. Moving by the microseconds between two clocks' reads costs under
    1 ns: clocks of one host differ in rate by at most 500 ppm.
    """
    instant_ns = read_ns(time.CLOCK_MONOTONIC)
    readings = [Reading(REFERENCE, instant_ns, 0)]
    for clock, clock_id in CLOCK_IDS.items():
        bracket_ns, middle_ns, value_ns = min(_bracket(read_ns, clock_id) for _ in range(tries))
        readings.append(Reading(clock, value_ns - (middle_ns - instant_ns), (bracket_ns + 1) // 2))
    return tuple(readings)


def _bracket(read_ns: Callable[[int], int], clock_id: int) -> tuple[int, int, int]:
    """Return (bracket width, its middle on monotonic, the clock's value), in ns."""
    before_ns = read_ns(time.CLOCK_MONOTONIC)
    value_ns = read_ns(clock_id)
    after_ns = read_ns(time.CLOCK_MONOTONIC)
    return after_ns - before_ns, (before_ns + after_ns) // 2, value_ns


def to_line(snapshot: int, readings: tuple[Reading, ...]) -> str:
    """Return the line of `clocks.jsonl` for a snapshot."""
    clocks = {
        one.clock: {f"value_{one.unit}": one.value, f"uncertainty_{one.unit}": one.uncertainty}
        for one in readings
    }
    return json.dumps({"snapshot": snapshot, "clocks": clocks}) + "\n"


def from_line(line: str) -> tuple[int, tuple[Reading, ...]]:
    """Return (snapshot, readings) of a line; raise ValueError where it is none."""
    try:
        body = json.loads(line)
        clocks: dict[str, dict[str, object]] = body["clocks"]
        readings = []
        for clock, one in clocks.items():
            unit = "ticks" if clock == "tsc" else "ns"
            uncertainty = _int64(one[f"uncertainty_{unit}"])
            if uncertainty < 0:
                raise ValueError("a negative uncertainty")
            readings.append(Reading(clock, _int64(one[f"value_{unit}"]), uncertainty))
        return _int64(body["snapshot"]), tuple(readings)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no snapshot: {error}") from error


def _int64(value: object) -> int:
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise ValueError("not an integer of 64 bits")
    return value


def read(path: Path, host: str, boot_id: str, ledger: LossLedger) -> pl.DataFrame:
    """Return the snapshots of a file as `clock_snapshots`; a line that holds none is a loss."""
    import polars as pl

    from pipeline import schema

    rows = []
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    snapshot, readings = from_line(line)
                    rows += [
                        (host, boot_id, snapshot, one.clock, one.value, one.uncertainty) for one in readings
                    ]
                except ValueError:
                    ledger.add("unreadable_line", line=number, example=line)
        return pl.DataFrame(rows, schema=schema.CLOCK_SNAPSHOTS, orient="row")
    except OSError as error:
        raise from_os_error(error, str(path)) from error
