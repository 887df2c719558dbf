"""What traces in JSON say of the clock of their times: Kineto (the PyTorch profiler), Chrome traces, speedscope.

    {"traceEvents": [{"ph": "X", "name": "aten::add", "ts": 2413668742269.099, "dur": 8.25, ...}],
     "distributedInfo": {"rank": 0}, "host_name": "gpu-7", "baseTimeNanoseconds": 1727743122000000000}

`ts` is in microseconds. With `baseTimeNanoseconds` (PyTorch since 2.4) it counts from that many ns after 1970; older
PyTorch writes microseconds since 1970. Others count from wherever they like: py-spy from its own start, Chrome from the
boot. Sources: Chrome's "Trace Event Format"; Kineto's output_json.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, Final

from collectors.json_stream import CutJson, JsonStream
from collectors.source import Source
from pipeline.clock_domains import RELATIVE, SourceClocks
from pipeline.text import shown

# 2001 to 2255 in microseconds since 1970; no host has been up for 31 years
_EPOCH_US: Final = range(10**15, 9 * 10**15)
_NS_PER_UNIT: Final = {"seconds": 10**9, "milliseconds": 10**6, "microseconds": 10**3, "nanoseconds": 1}
_HOST_KEYS: Final = ("host_name", "hostname", "hostName")
_LARGEST: Final = 1 << 62
# more digits than json_stream lets through, so that only the last step rounds, and down
_EXACT: Final = Context(prec=200, rounding=ROUND_FLOOR)


def to_ns(value: Any, unit_ns: int, *, is_up: bool = False) -> int | None:
    """Return a JSON number of some unit as whole ns, exactly, rounded down (or up); None where it is no usable time."""
    if type(value) is int:
        ns = value * unit_ns if abs(value) < _LARGEST else _LARGEST
    elif type(value) is Decimal and value.is_finite() and abs(value) < _LARGEST:
        exact = _EXACT.multiply(value, Decimal(unit_ns))
        ns = int(exact.to_integral_value(ROUND_CEILING if is_up else ROUND_FLOOR))
    else:
        return None
    return ns if abs(ns) < _LARGEST else None


def of_trace(source: Source, host: str = "", boot_id: str = "") -> SourceClocks:
    """Return what a Chrome or Kineto trace says; raises InputError where the JSON is damaged before its first event."""
    trace = _Trace(source.name, JsonStream(source))
    trace.read()
    clock, shift_ns, times = trace.clock()
    first, last = (times.first, times.last) if clock else (None, None)
    return SourceClocks(
        source.name,
        clock,
        host or trace.host,
        boot_id,
        first=None if first is None else first + shift_ns,
        last=None if last is None else last + shift_ns,
        notes=tuple(trace.notes),
    )


def of_speedscope(source: Source, host: str = "", boot_id: str = "") -> SourceClocks:
    """Return what a speedscope document says: times from each profile's own beginning, or none (bytes, counts)."""
    times, json = _Span(), JsonStream(source)
    exporter, has_samples = "", False
    if json.peek() == "{":
        for key in json.members():
            if key == "exporter":
                exporter = str(json.value())
            elif key == "profiles" and json.peek() == "[":
                for _ in json.elements():
                    if json.peek() == "{":
                        has_samples |= _profile(json, times)
    notes: tuple[str, ...] = ()
    if times.first is not None:
        notes = ("its times count from its own beginning",)
        if has_samples and exporter.startswith("py-spy"):
            notes = (
                *notes,
                "py-spy adds up samples and leaves idle ones out: its times are no times of the host",
            )
    clock = "" if times.first is None else RELATIVE
    return SourceClocks(source.name, clock, host, boot_id, first=times.first, last=times.last, notes=notes)


@dataclass(slots=True)
class _Span:
    """The earliest and the latest of some times, in ns."""

    first: int | None = None
    last: int | None = None
    count: int = 0

    def add(self, first_ns: int, last_ns: int) -> None:
        self.first = first_ns if self.first is None else min(self.first, first_ns)
        self.last = last_ns if self.last is None else max(self.last, last_ns)
        self.count += 1


@dataclass(slots=True)
class _Trace:
    """One walk over a trace: times since 1970 apart from all others, which one file may mix."""

    name: str
    json: JsonStream
    base_ns: int | None = None
    host: str = ""
    is_kineto: bool = False
    notes: list[str] = field(default_factory=list)
    _epoch: _Span = field(default_factory=_Span)
    _other: _Span = field(default_factory=_Span)
    _unusable: int = 0
    _has_py_spy: bool = False

    def read(self) -> None:
        """Walk the document; a cut end is a note."""
        try:
            if self.json.peek() == "[":
                self._read_events()
            elif self.json.peek() == "{":
                for key in self.json.members():
                    self._read_member(key)
        except CutJson:
            if not self._epoch.count and not self._other.count:
                raise
            self.notes.append(
                "the file ends in the middle: its last time, and what it says behind its events, are lost"
            )
        if self._unusable:
            self.notes.append(f"{self._unusable} events have no usable time")

    def clock(self) -> tuple[str, int, _Span]:
        """Return the clock of its times, how many ns to add to them, and the times."""
        if self._epoch.count:
            if self.base_ns:
                self.notes.append("its times are since 1970 already: its baseTimeNanoseconds is passed over")
            if self._other.count:
                self.notes.append(
                    f"{self._other.count} events have times that are not since 1970: passed over"
                )
            if not self.is_kineto:
                self.notes.append("its times are taken to be microseconds since 1970, by their size")
            return "realtime", 0, self._epoch
        if not self._other.count:
            return "", 0, self._other
        if self.base_ns is not None:
            latest = (self._other.last or 0) + self.base_ns
            if latest < 1 << 63:
                return "realtime", self.base_ns, self._other
            self.notes.append("its baseTimeNanoseconds would lead out of 64 bits: passed over")
        own = "py-spy's own start" if self._has_py_spy else "a beginning that it does not name"
        self.notes.append(f"its times count from {own}")
        return RELATIVE, 0, self._other

    def _read_member(self, key: str) -> None:
        if key == "traceEvents" and self.json.peek() == "[":
            self._read_events()
        elif key == "baseTimeNanoseconds":
            self.is_kineto = True
            value = self.json.value()
            if type(value) is int and 0 <= value < _LARGEST:
                self.base_ns = value
            else:
                self.notes.append("its baseTimeNanoseconds is no usable number: passed over")
        elif key in _HOST_KEYS:
            value = self.json.value()
            self.host = shown(value)[:255] if isinstance(value, str) else ""
        elif key in ("distributedInfo", "deviceProperties"):
            self.is_kineto = True

    def _read_events(self) -> None:
        for _ in self.json.elements():
            if not self.json.peek():
                raise CutJson(
                    "the JSON ends in the middle", "was it cut off? Export it again", path=self.name
                )
            event = self.json.value()
            # metadata has a time now and then, which is none of an event
            if isinstance(event, dict) and event.get("ph") not in (None, "M"):
                self._add(event)

    def _add(self, event: dict[str, Any]) -> None:
        start = event.get("ts")
        first_ns = to_ns(start, 1000)
        length_ns = to_ns(event.get("dur", 0), 1000, is_up=True) if event.get("ph") == "X" else 0
        if first_ns is None or length_ns is None or length_ns < 0 or first_ns + length_ns >= _LARGEST:
            self._unusable += 1
            return
        self._has_py_spy |= event.get("cat") == "py-spy"
        span = self._epoch if first_ns // 1000 in _EPOCH_US else self._other
        span.add(first_ns, first_ns + length_ns)


def _profile(json: JsonStream, times: _Span) -> bool:
    """Add one profile's times; return whether it is one of samples. Its unit may come last."""
    found: dict[str, Any] = {}
    spoken: list[Any] = []
    for key in json.members():
        if key in ("unit", "startValue", "endValue", "type"):
            found[key] = json.value()
        elif key == "events" and json.peek() == "[":
            for _ in json.elements():
                event = json.value()
                if isinstance(event, dict):
                    at = event.get("at")
                    if type(at) in (int, Decimal):
                        spoken = [min([*spoken[:1], at]), max([*spoken[1:], at])]
    unit_ns = _NS_PER_UNIT.get(str(found.get("unit")))
    if unit_ns is None:
        return False
    start, end = spoken or (found.get("startValue", 0), found.get("endValue"))
    first_ns, last_ns = to_ns(start, unit_ns), to_ns(end, unit_ns, is_up=True)
    if first_ns is not None and last_ns is not None and first_ns <= last_ns:
        times.add(first_ns, last_ns)
    return found.get("type") == "sampled"
