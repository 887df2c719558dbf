"""What is known about clocks, as values: domains, readings of several clocks at one instant, and what a source says.

    tsc@web-1/3f2a           ticks of a CPU's time stamp counter since some reset
    monotonic@web-1/3f2a     ns of CLOCK_MONOTONIC, the kernel's ktime, of that boot of that host
    realtime                 ns since 1970-01-01 UTC, by the clock of whoever wrote it
    relative@run.txt         ns since the beginning of one source
    session@gpu.sqlite       ns since one tool's session began, by a clock of the host that the file does not name

The engine (pipeline.clocks) converts between domains; the policy (pipeline.align) says which of them are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

# the clocks of a host, as users write them. perf is the kernel's local_clock, perf's own default; sched_clock, which
# ftrace's default `local` shows, lacks the offset that the kernel added to it when it was found stable, some ms
HOST_CLOCKS: Final = (
    "monotonic",
    "monotonic_raw",
    "boottime",
    "realtime",
    "tai",
    "perf",
    "sched_clock",
    "tsc",
)
RELATIVE: Final = "relative"
SESSION: Final = "session"
# of one source alone, so that its name is their host
OWN_CLOCKS: Final = frozenset({RELATIVE, SESSION})
# perf_event_attr.clockid, and CLOCK_* of the kernel
CLOCK_OF_ID: Final = {0: "realtime", 1: "monotonic", 4: "monotonic_raw", 7: "boottime", 11: "tai"}


@dataclass(frozen=True, slots=True, order=True)
class Domain:
    """A clock of one boot of one host; `host` is the source's name for a clock that only that source has."""

    clock: str
    host: str = ""
    boot_id: str = ""

    @property
    def unit(self) -> str:
        """Return what it counts: ticks or ns."""
        return "ticks" if self.clock == "tsc" else "ns"

    def __str__(self) -> str:
        place = "/".join(part for part in (self.host, self.boot_id[:8]) if part)
        return f"{self.clock}@{place}" if place else self.clock


@dataclass(frozen=True, slots=True)
class Reading:
    """What a clock showed; the true value lies within the uncertainty, in the clock's own unit."""

    domain: Domain
    value: int
    uncertainty: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Two or more clocks at the same instant, and who says so: 'run.data: CLOCK_DATA'."""

    readings: tuple[Reading, ...]
    origin: str = ""


@dataclass(frozen=True, slots=True)
class TimeConversion:
    """PERF_RECORD_TIME_CONV: how the kernel makes perf's clock (ns) of TSC ticks; all arithmetic is modulo 2^64.

    Source: tools/perf/util/tsc.c and struct perf_event_mmap_page in the kernel's uapi/linux/perf_event.h.
    """

    shift: int
    mult: int
    zero: int
    cycles: int = 0  # where a short counter is continued from
    mask: int = (1 << 64) - 1
    is_short: bool = False  # cap_user_time_short: the counter has only the bits of the mask


@dataclass(frozen=True, slots=True)
class SourceClocks:
    """What one source says about the clock of its times, and about others beside it."""

    source: str  # its name, for words
    clock: (
        str  # which stamped its records: one of HOST_CLOCKS, RELATIVE, SESSION, or '' where it has no times
    )
    host: str = ""
    boot_id: str = ""
    snapshots: tuple[Snapshot, ...] = ()
    conversion: TimeConversion | None = None  # from tsc to perf
    first: int | None = None  # the first and last time in it, in its clock's unit
    last: int | None = None
    notes: tuple[str, ...] = field(default=())  # what was passed over or assumed, for people
    is_assumed: bool = False  # nothing in it names the clock: it is the format's default

    @property
    def domain(self) -> Domain:
        """Return the domain of its times."""
        return self.domain_of(self.clock)

    def domain_of(self, clock: str) -> Domain:
        """Return a clock of the source's host; a relative one, or one of a session, is its own."""
        if clock in OWN_CLOCKS:
            return Domain(clock, self.source)
        return Domain(clock, self.host, self.boot_id)
