"""Which clock stamped ftrace text? Its own trace_clock, which the text does not name.

    # clock: mono                  a comment before the first event says it, as flameslice's recordings write one
    36970.465027                   seconds: taken as local, the kernel's default, which is sched_clock
    95540116498203                 ticks of x86-tsc
    3680238                        uptime: the kernel's jiffies, 10 ms each; or counter: the events' ordinals

`local` is not perf's clock: one call seen in three instances at once stood 26.93 ms later on `local` than on `global`
and `perf`, which agreed within 2 us (Linux 6.18).

Source: Documentation/trace/ftrace.rst and kernel/trace/trace_clock.c of the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from collectors import ftrace_lines
from collectors.perf_rows import times_to_ns
from pipeline.clock_domains import HOST_CLOCKS, RELATIVE

CLOCK_OF_WORD: Final = {
    "local": "sched_clock", "global": "perf", "perf": "perf", "mono": "monotonic", "mono_raw": "monotonic_raw",
    "boot": "boottime", "tai": "tai", "x86-tsc": "tsc", "uptime": RELATIVE, "counter": "",
}  # fmt: skip
TICK_NS: Final = 10_000_000  # trace_clock uptime counts in USER_HZ, which is 100 everywhere
META: Final = "trace_clock"  # the key of Tables.meta
ASSUMED: Final = "trace_clock assumed"
# ten thousand million: ticks of a TSC after some seconds, and 3 years of jiffies
_LEAST_TICKS: Final = 10**10
_LEAST_WALL_S: Final = 10**9  # 31 years of uptime, or 2001 on tai, the only trace_clock that counts from 1970
_COMMENT = re.compile(rb"#\s*(?:trace_)?clock\s*[:=]\s*(\S+)\s*$")
_CHOSEN = re.compile(rb"\[(\S+)\]")  # as the file trace_clock itself shows it


@dataclass(frozen=True, slots=True)
class Stamp:
    """What stamps a source: its trace_clock, whether that is only assumed, and whether times are bare integers."""

    word: str
    is_assumed: bool
    is_bare: bool

    @property
    def clock(self) -> str:
        """Return the clock: one of HOST_CLOCKS, RELATIVE, or '' for ordinals, which are no times."""
        return CLOCK_OF_WORD.get(self.word, self.word if self.word in HOST_CLOCKS else RELATIVE)

    @property
    def meta(self) -> dict[str, str]:
        """Return it as header fields of the source."""
        return {META: self.word, **({ASSUMED: "yes"} if self.is_assumed else {})}

    def to_raw(self, printed: Sequence[bytes]) -> list[int]:
        """Return printed times in the clock's unit: ns, or ticks of the TSC."""
        if self.is_bare:
            scale = TICK_NS if self.word == "uptime" else 1
            return [int(time) * scale for time in printed]
        return times_to_ns(printed)


UNKNOWN: Final = Stamp("local", is_assumed=True, is_bare=False)


def learn(head: bytes) -> Stamp | None:
    """Return what stamps a source, by its beginning; None where no event stands there."""
    said = b""
    printed: list[bytes] = []
    for line in head.split(b"\n"):
        if line.startswith(b"#") and not printed:
            found = _COMMENT.match(line)
            said = said or (found[1] if found else b"")
            continue
        event = ftrace_lines.match(line)
        if event is not None:
            printed.append(event["time"])
    if not printed:
        return None
    is_bare = 2 * sum(b"." in time for time in printed) < len(printed)
    word = said.decode("ascii", "replace")[:40]
    if word in CLOCK_OF_WORD or word in HOST_CLOCKS:
        return Stamp(word, is_assumed=False, is_bare=is_bare)
    if not is_bare:
        seconds = max(int(time.partition(b".")[0]) for time in printed)
        guess = "tai" if seconds >= _LEAST_WALL_S else "local"
        return Stamp(word or guess, is_assumed=not word, is_bare=False)
    values = [int(time) for time in printed if b"." not in time]
    if max(values) >= _LEAST_TICKS:
        return Stamp("x86-tsc", is_assumed=True, is_bare=True)
    # each event takes a number of its own from the counter
    return Stamp("counter" if len(set(values)) == len(values) else "uptime", is_assumed=True, is_bare=True)


def is_assumed(meta: dict[str, str]) -> bool:
    """Return whether a clock of a host is only taken to be what stamped the text, so that a user may know better."""
    return ASSUMED in meta and meta.get(META, "") not in ("counter", "uptime")


def notes_of(meta: dict[str, str]) -> tuple[str, ...]:
    """Return what a reader of the times must know of their clock."""
    word, is_guess = meta.get(META, ""), ASSUMED in meta
    if word == "counter":
        how = "taken as the events' ordinals (trace_clock counter)" if is_guess else "ordinals of its events"
        return (f"its numbers are {how}, which are no times: nothing places them",)
    if word == "uptime":
        how = "taken as jiffies (trace_clock uptime)" if is_guess else "jiffies (trace_clock uptime)"
        return (f"its times are {how}: 10 ms each, so what is shorter cannot be told",)
    if word == "x86-tsc" and is_guess:
        return ("its bare numbers are taken as ticks of the TSC (trace_clock x86-tsc)",)
    if is_guess:
        default = ", the default" if word == "local" else ""
        taken = CLOCK_OF_WORD[word]
        return (
            f"its clock is taken as {taken} (trace_clock {word}{default}): if it is another, --clock INPUT=mono",
        )
    if word and word not in CLOCK_OF_WORD and word not in HOST_CLOCKS:
        return (f"its clock {word!r} is none that flameslice knows",)
    return ()
