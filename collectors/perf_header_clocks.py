"""What the header lines of `perf script --header` say of clocks.

    # captured on    : Tue Dec  1 03:53:41 2026
    # clockid frequency: 1000 MHz
    # clockid: monotonic (1)
    # reference time: 2026-12-01 03:53:40.690226 = 1796097220.690226 (TOD) = 840.058400372 (monotonic)

`reference time` holds one instant three times: the reader's local time, which is passed over; seconds since 1970; and
the clock of `perf record -k`. `captured on` is when the file was last written, in the reader's time zone: it relates
nothing. Source: print_clockid and print_clock_data in the kernel's tools/perf/util/header.c.
"""

from __future__ import annotations

import re
from typing import Final

from pipeline.clock_domains import CLOCK_OF_ID, HOST_CLOCKS, RELATIVE, Domain, Reading, Snapshot, SourceClocks
from pipeline.errors import one_line

PERF: Final = "perf"  # local_clock, which stamps where -k chose nothing
# perf reads the clock of -k after the time of day; 3 us is our choice: 65 recordings with -k realtime, which read
# one clock twice, showed 1.9 to 3.6 us with up to 1 us cut off (perf 6.1, idle KVM guest)
READ_APART_NS: Final = 3_000
LARGEST_STEP_NS: Final = 10**9

_NAMED = re.compile(r"(\S.*?) \((-?\d+)\)")
_EVENT_CLOCK = re.compile(r"\buse_clockid = 1\b")
_EVENT_CLOCK_ID = re.compile(r"\bclockid = (-?\d+)\b")
_SECONDS = r"(\d{1,10})\.(\d{1,9})"
_REFERENCE = re.compile(rf".* = {_SECONDS} \(TOD\) = {_SECONDS} \(([^()]+)\)")
_TIME = re.compile(_SECONDS)
_FREQUENCY = re.compile(r"(\d{1,15}) MHz")


def clock_of(meta: dict[str, str]) -> str:
    """Return the clock that stamped the samples: one of HOST_CLOCKS, or RELATIVE where its name is unknown.

    Perf before 5.9 names it only in the description of the events: 'use_clockid = 1, clockid = 1'.
    """
    named = meta.get("clockid")
    if named is not None:
        match = _NAMED.fullmatch(named)
        return RELATIVE if match is None else _known(match[1], int(match[2]))
    event = meta.get("event", "")
    if not _EVENT_CLOCK.search(event):
        return PERF
    match = _EVENT_CLOCK_ID.search(event)  # perf leaves fields out that are 0
    return _known("", int(match[1]) if match else 0)


def _known(name: str, clock_id: int) -> str:
    clock = CLOCK_OF_ID.get(clock_id, name)
    return clock if clock in HOST_CLOCKS else RELATIVE


def clocks_of(
    meta: dict[str, str], name: str, clock: str, resolution_ns: int, host: str = "", boot_id: str = ""
) -> SourceClocks:
    """Return what header lines say of the clocks of a text.

    meta: the lines as `perf_script` keeps them. clock: what stamped the text's times, '' where it has none.
    resolution_ns: how finely these are printed; perf cuts the rest off, so that a time of `clock` may be later by up to
    this less 1 ns, which stands in the uncertainty of its reading. A line that is not understood is a note.
    """
    notes: list[str] = []
    host = host or meta.get("hostname", "")
    snapshot = _snapshot(meta, name, clock, resolution_ns, (host, boot_id), notes)
    if clock == RELATIVE:
        own = clock_of(meta)
        if own == RELATIVE:
            notes.append(f"its clock {meta.get('clockid', '')!r} is none that flameslice knows")
        elif meta:
            notes.append(
                f"its times count from its own beginning, so the header's clock {own} places none of them"
            )
    first, last = (
        (_time(meta, "time of first sample", notes), _time(meta, "time of last sample", notes))
        if clock not in ("", RELATIVE)
        else (None, None)
    )
    return SourceClocks(
        source=name,
        clock=clock,
        host=host,
        boot_id=boot_id,
        snapshots=() if snapshot is None else (snapshot,),
        first=first,
        last=last,
        notes=tuple(notes),
        is_assumed=clock == PERF and not meta.keys() & {"clockid", "event"},
    )


def _snapshot(
    meta: dict[str, str],
    name: str,
    clock: str,
    resolution_ns: int,
    place: tuple[str, str],
    notes: list[str],
) -> Snapshot | None:
    """Return the reference time as a snapshot; None where there is none, or one clock twice."""
    told = meta.get("reference time")
    if told is None:
        return None
    match = _REFERENCE.fullmatch(told)
    if match is None or match[5] not in HOST_CLOCKS:
        notes.append(one_line(f"its header line is not understood: reference time: {told}", 200))
        return None
    wall_ns, wall_step_ns = _ns(match[1], match[2])
    own_ns, own_step_ns = _ns(match[3], match[4])
    own = match[5]
    if own == "realtime" or not (wall_ns and own_ns):
        return None
    if own != clock_of(meta):
        notes.append(f"its reference time is about {own}, which did not stamp it")
    unprinted_ns = own_step_ns - 1 + _step_ns(meta) - 1
    if own == clock:
        unprinted_ns += max(resolution_ns, 1) - 1
    # the time of day comes from gettimeofday, which cuts microseconds
    wall = Reading(Domain("realtime", *place), wall_ns, max(wall_step_ns, 1_000) + READ_APART_NS)
    return Snapshot((Reading(Domain(own, *place), own_ns, unprinted_ns), wall), f"{name}: reference time")


def _step_ns(meta: dict[str, str]) -> int:
    """Return the steps in which the clock moves: perf multiplies them by 1000 and calls the result MHz."""
    match = _FREQUENCY.fullmatch(meta.get("clockid frequency", ""))
    step_ns = int(match[1]) // 1000 if match else 1
    return step_ns if 0 < step_ns <= LARGEST_STEP_NS else 1


def _time(meta: dict[str, str], key: str, notes: list[str]) -> int | None:
    told = meta.get(key)
    if told is None:
        return None
    match = _TIME.fullmatch(told)
    if match is None:
        notes.append(one_line(f"its header line is not understood: {key}: {told}", 200))
        return None
    return _ns(match[1], match[2])[0]


def _ns(seconds: str, fraction: str) -> tuple[int, int]:
    """Return a printed time in ns, and the ns that its last digit stands for."""
    return int(seconds) * 10**9 + int(fraction.ljust(9, "0")), int(10 ** (9 - len(fraction)))
