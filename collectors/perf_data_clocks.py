"""What `perf.data` says of clocks, read from the file itself: no perf is needed.

    attr.use_clockid = 1, attr.clockid = 1               CLOCK_MONOTONIC stamped the records (perf record -k mono)
    CLOCK_DATA  1, 1, 1796097220690226000, 840058400372  version, clock, time of day in ns, that clock in ns
    TIME_CONV   31, 566188880, 18446744047151156151, ... shift, multiplier, zero: perf's own clock from TSC ticks

Which of them a file has depends on the host: x86 has TIME_CONV or CLOCK_DATA, never both; aarch64 may have both, and
then TIME_CONV is still about perf's own clock, not about the one that stamped the records. Source: the kernel's
tools/perf/util/{tsc,header,clockid}.c.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from collectors import perf_data, perf_data_layout
from collectors.perf_data_layout import (
    ARCH,
    CLOCK_DATA,
    CLOCKID,
    HEADER_ATTR,
    HEADER_FEATURE,
    HOSTNAME,
    SAMPLE_TIME,
    TIME_CONV,
    Attr,
    PerfData,
)
from collectors.perf_header_clocks import LARGEST_STEP_NS, PERF, READ_APART_NS
from collectors.source import Source
from pipeline.clock_domains import (
    CLOCK_OF_ID,
    RELATIVE,
    Domain,
    Reading,
    Snapshot,
    SourceClocks,
    TimeConversion,
)
from pipeline.errors import from_os_error
from pipeline.text import decode, escape

# gettimeofday gives whole microseconds, so the truth is up to 1 us later, and perf reads the clock after it
TIME_OF_DAY_UNCERTAINTY_NS: Final = 1_000 + READ_APART_NS

_FEATURES = frozenset({HOSTNAME, ARCH, SAMPLE_TIME, CLOCKID, CLOCK_DATA})
_RECORDS = frozenset({HEADER_ATTR, HEADER_FEATURE, TIME_CONV})
_OLD_TIME_CONV_BYTES, _TIME_CONV_BYTES = 24, 48  # without the record's header
_INT64 = 1 << 63


def read(source: Source | Path | str, name: str = "", host: str = "", boot_id: str = "") -> SourceClocks:
    """Return what a perf.data says of its clock and others; host and boot_id are what the caller knows better.

    Raises InputError where the file is no perf.data, WorkError where it cannot be read. Damage further in is a note.
    """
    if not isinstance(source, Source):
        with Source.open_path(str(source)) as opened:
            return read(opened, name or str(source), host, boot_id)
    name = name or source.name
    with perf_data.on_disk(source) as path:
        try:
            with Path(path).open("rb", buffering=0) as file:
                reader = _Reader(perf_data_layout.open_layout(file.fileno(), name))
                reader.gather()
        except OSError as error:
            raise from_os_error(error, name) from error
    reader.notes.extend(loss.describe() for loss in source.losses.as_tuple())
    return reader.clocks(name, host, boot_id)


class _Reader:
    """Gathers what stands in several places of a file, and then says it."""

    def __init__(self, data: PerfData) -> None:
        self._data = data
        self.notes = data.notes
        self._attrs: list[Attr] = []
        self._features: dict[int, bytes] = {}
        self._time_conv: bytes | None = None

    def gather(self) -> None:
        """Read the file, up to where its samples begin."""
        data = self._data
        self._attrs += data.attrs()
        self._features.update(data.features(_FEATURES))
        for kind, body in data.records(_RECORDS):
            if kind == HEADER_ATTR and (attr := data.attr(body)) is not None:
                self._attrs.append(attr)
            elif kind == HEADER_FEATURE and len(body) >= 8:
                (number,) = struct.unpack_from(data.order + "Q", body)
                if number in _FEATURES:
                    self._features.setdefault(number, body[8:])
            elif kind == TIME_CONV:
                self._time_conv = body
                if not data.is_pipe:
                    return  # all else has been read
        if not self._attrs:
            self.notes.append("it describes no event")

    def clocks(self, name: str, host: str, boot_id: str) -> SourceClocks:
        """Return what was gathered."""
        host = host or self._text(HOSTNAME)
        clock = self._clock()
        first, last = self._span()
        snapshot = self._snapshot(lambda of: Domain(of, host, boot_id), name)
        return SourceClocks(
            source=name,
            clock=clock,
            host=host,
            boot_id=boot_id,
            snapshots=() if snapshot is None else (snapshot,),
            conversion=self._conversion(clock),
            first=first,
            last=last,
            notes=tuple(dict.fromkeys(self.notes)),
        )

    def _clock(self) -> str:
        """Return the clock of the records; '' where none has a time."""
        timed = dict.fromkeys(attr.clock_id for attr in self._attrs if attr.has_time)
        if not timed:
            return ""
        names = [PERF if one is None else CLOCK_OF_ID.get(one, "") for one in timed]
        if len(timed) > 1:
            told = ", ".join(clock or f"clock {one}" for clock, one in zip(names, timed, strict=True))
            self.notes.append(
                f"its events are on different clocks ({told}): {names[0] or 'the first'} is taken"
            )
        if not names[0]:
            self.notes.append(f"its clock {next(iter(timed))} is none that flameslice knows")
        return names[0] or RELATIVE

    def _conversion(self, clock: str) -> TimeConversion | None:
        """Return how perf's clock follows from tsc, which holds for the host whatever stamped the records."""
        body, order = self._time_conv, self._data.order
        if body is None:
            return None
        if len(body) < _OLD_TIME_CONV_BYTES:
            self.notes.append("its TIME_CONV record is cut")
            return None
        shift, mult, zero = struct.unpack_from(order + "3Q", body)
        result = TimeConversion(shift, mult, zero)
        if len(body) >= _TIME_CONV_BYTES:
            cycles, mask, has_zero, is_short = struct.unpack_from(order + "QQBB", body, _OLD_TIME_CONV_BYTES)
            if not has_zero:
                self.notes.append("its TIME_CONV record says that it cannot convert")
                return None
            if is_short:
                result = TimeConversion(shift, mult, zero, cycles, mask, is_short=True)
        if shift >= 64 or not 0 < mult < 1 << 32:  # the kernel has 32 bits for the multiplier
            self.notes.append(f"its TIME_CONV record is damaged (shift {shift}, multiplier {mult})")
            return None
        if clock not in (PERF, ""):
            self.notes.append(
                f"its TIME_CONV relates tsc to perf's own clock, not to {clock}, which stamped it"
            )
        arch = self._text(ARCH)
        if arch and not arch.startswith(("x86", "i686", "i386")):
            self.notes.append(f"tsc is the counter that {arch} has in its place")
        return result

    def _snapshot(self, domain_of: Callable[[str], Domain], name: str) -> Snapshot | None:
        """Return CLOCK_DATA as a snapshot: the clock of -k, and the time of day."""
        section = self._features.get(CLOCK_DATA)
        if section is None:
            return None
        if len(section) < 24:
            self.notes.append("its CLOCK_DATA is cut")
            return None
        # the wall clock stands first: perf's documentation had the two the other way round until August 2020
        version, clock_id, wall_ns, value_ns = struct.unpack_from(self._data.order + "IIQQ", section)
        clock = CLOCK_OF_ID.get(clock_id)
        if version != 1 or clock is None:
            self.notes.append(f"its CLOCK_DATA is of version {version} and clock {clock_id}: not understood")
            return None
        if not (0 < wall_ns < _INT64 and 0 < value_ns < _INT64):
            self.notes.append(f"its CLOCK_DATA is damaged ({wall_ns} ns, {value_ns} ns)")
            return None
        stamped = {attr.clock_id for attr in self._attrs if attr.has_time}
        if stamped and clock_id not in stamped:
            self.notes.append(f"its CLOCK_DATA is about {clock}, which stamped none of its events")
        if clock == "realtime":
            return None  # the same clock twice
        wall = Reading(domain_of("realtime"), wall_ns, TIME_OF_DAY_UNCERTAINTY_NS)
        return Snapshot((Reading(domain_of(clock), value_ns, self._step_ns()), wall), f"{name}: CLOCK_DATA")

    def _step_ns(self) -> int:
        """Return by how much the clock of the records may lag behind: it moves in steps of its resolution."""
        section = self._features.get(CLOCKID, b"")
        if len(section) < 8:
            return 0
        (resolution_ns,) = struct.unpack_from(self._data.order + "Q", section)
        return resolution_ns - 1 if 0 < resolution_ns <= LARGEST_STEP_NS else 0

    def _span(self) -> tuple[int | None, int | None]:
        """Return the times of the first and last sample; what went through a pipe has zeros there."""
        section = self._features.get(SAMPLE_TIME, b"")
        if len(section) < 16:
            return None, None
        first, last = struct.unpack_from(self._data.order + "QQ", section)
        if (first, last) == (0, 0):
            return None, None
        if not first <= last < _INT64:
            self.notes.append(f"the times of its first and last sample are damaged ({first}, {last})")
            return None, None
        return first, last

    def _text(self, feature: int) -> str:
        """Return a feature that is a text: its length, and so many bytes, filled up with NUL."""
        section = self._features.get(feature, b"")
        if len(section) < 4:
            return ""
        (length,) = struct.unpack_from(self._data.order + "I", section)
        if length > len(section) - 4:
            return ""  # cut: half a name is another name
        return escape(decode(section[4 : 4 + length].split(b"\0")[0])).strip()
