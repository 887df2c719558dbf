"""What users say of clocks on the command line: --clock, --offset, --wall-start, --anchor and what they accept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import click

from flameslice.commands.options import Command
from pipeline.errors import UsageError, one_line

if TYPE_CHECKING:
    from pipeline.clock_assumptions import Told

# perf's and ftrace's own short names too
ALIASES = {
    "mono": "monotonic",
    "mono_raw": "monotonic_raw",
    "raw": "monotonic_raw",
    "boot": "boottime",
    "real": "realtime",
    "wall": "realtime",
    "x86-tsc": "tsc",
    "local": "sched_clock",
    "global": "perf",
}


@dataclass(frozen=True, slots=True)
class ClockWords:
    """The options as they were written."""

    clocks: tuple[str, ...] = ()
    offsets: tuple[str, ...] = ()
    wall_starts: tuple[str, ...] = ()
    anchors: tuple[str, ...] = ()
    wall_clocks_within: str | None = None
    accept_uncertainty: bool = False

    @property
    def is_given(self) -> bool:
        """Return whether anything was said of clocks."""
        return bool(
            self.clocks
            or self.offsets
            or self.wall_starts
            or self.anchors
            or self.wall_clocks_within is not None
        )

    def told(self, sources: Sequence[str]) -> Told:
        """Return what was said, by source; raises UsageError where it is not understood, or names no source."""
        from pipeline.clock_assumptions import Told
        from pipeline.timespec import parse_duration

        return Told(
            clocks={
                name: clock_name(value)
                for name, value in _by_source("--clock", self.clocks, sources, has_all=True)
            },
            offsets_ns={
                name: _offset_ns(value) for name, value in _by_source("--offset", self.offsets, sources)
            },
            wall_starts={
                name: _wall_start(value)
                for name, value in _by_source("--wall-start", self.wall_starts, sources)
            },
            anchors=tuple(_anchor(text) for text in self.anchors),
            wall_clocks_within_ns=(
                None if self.wall_clocks_within is None else parse_duration(self.wall_clocks_within)
            ),
        )


NOTHING_SAID = ClockWords()


def clock_options(command: Command) -> Command:
    """Add the options; the command gets them as `words`."""

    def wrapped(**values: Any) -> Any:
        words = ClockWords(
            values.pop("clock_words"),
            values.pop("offset_words"),
            values.pop("wall_start_words"),
            values.pop("anchor_words"),
            values.pop("wall_clocks_within"),
            values.pop("accept_uncertainty"),
        )
        return command(words=words, **values)

    wrapped.__name__ = command.__name__
    wrapped.__doc__ = command.__doc__
    wrapped.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    add: Any = wrapped
    for option in (
        click.option(
            "--accept-uncertainty",
            is_flag=True,
            help="Join sources even where a slice is narrower than what is sure.",
        ),
        click.option(
            "--wall-clocks-within",
            metavar="DURATION",
            help="Take the wall clocks of all hosts to agree to this: 1ms.",
        ),
        click.option(
            "--anchor",
            "anchor_words",
            multiple=True,
            metavar="A=B",
            help="Two clocks at one instant: perf:829851181000=monotonic:829852428388, in ns (ticks for tsc); "
            "several tell the rate.",
        ),
        click.option(
            "--wall-start",
            "wall_start_words",
            multiple=True,
            metavar="INPUT=TIME",
            help="When INPUT begins, as 2026-12-01T12:00:00.5Z.",
        ),
        click.option(
            "--offset",
            "offset_words",
            multiple=True,
            metavar="INPUT=DURATION",
            help="Move INPUT by this (+1.5ms); one without a clock begins so long after the first event of the others.",
        ),
        click.option(
            "--clock",
            "clock_words",
            multiple=True,
            metavar="[INPUT=]CLOCK",
            help="What stamped INPUT: monotonic, monotonic_raw, boottime, realtime, tai, perf, sched_clock, tsc or "
            "relative.",
        ),
    ):
        add = option(add)
    return add  # type: ignore[no-any-return]


def clock_name(text: str) -> str:
    """Return a clock's name; raises UsageError for one that is none."""
    from pipeline.clock_domains import HOST_CLOCKS, RELATIVE, SESSION

    name = ALIASES.get(text, text)
    known = (*HOST_CLOCKS, RELATIVE, SESSION)
    if name not in known:
        raise UsageError(f"{one_line(text, 60)!r} is no clock", f"give one of {', '.join(known)}")
    return name


def parse_clock(text: str) -> str:
    """Return 'monotonic@web-1' of 'mono@web-1'."""
    clock, at, place = text.partition("@")
    return clock_name(clock) + at + place


def parse_reading(text: str) -> tuple[str, int]:
    """Return ('perf@web-1', 123) of 'perf@web-1:123'."""
    name, _, value = text.rpartition(":")
    digits = value.removeprefix("-")
    if not name or not digits.isascii() or not digits.isdigit():
        raise UsageError(
            f"{one_line(text, 60)!r} is no time of a clock", "write it like monotonic:829852428388"
        )
    number = int(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise UsageError(f"{one_line(text, 60)!r} does not fit 64 bits", "give ns, or ticks for tsc")
    return parse_clock(name), number


def _anchor(text: str) -> tuple[tuple[str, int], tuple[str, int]]:
    left, equals, right = text.partition("=")
    if not equals:
        raise UsageError(
            f"--anchor {one_line(text, 60)!r} is no pair", "write it like perf:1000=monotonic:2000"
        )
    return parse_reading(left), parse_reading(right)


def _by_source(
    option: str, words: Sequence[str], sources: Sequence[str], *, has_all: bool = False
) -> list[tuple[str, str]]:
    """Return (source, value) of INPUT=VALUE; an input is named as it was typed, or by its last part."""
    found = []
    for text in words:
        name, equals, value = text.rpartition("=")
        if not equals and (has_all or len(sources) == 1):
            found.append(("" if has_all else sources[0], value))
            continue
        matching = [one for one in sources if one == name] or [
            one for one in sources if PurePath(one).name == name
        ]
        if len(matching) != 1:
            known = ", ".join(sorted({one_line(PurePath(one).name, 60) for one in sources})[:10])
            raise UsageError(
                f"{option} {one_line(text, 60)!r} names {'no' if not matching else 'more than one'} input",
                f"write INPUT=VALUE, with INPUT one of {known}",
            )
        found.append((matching[0], value))
    return found


def _offset_ns(text: str) -> int:
    from pipeline.timespec import parse_time

    spec = parse_time(text)
    if spec.kind not in ("from_start", "from_end"):
        raise UsageError(f"--offset {one_line(text, 60)!r} is no duration", "write it like +1.5ms or -20us")
    return spec.value if spec.kind == "from_start" else -spec.value


def _wall_start(text: str) -> tuple[int, int]:
    """Return ns since 1970 and how uncertain they are: the digits that were not written."""
    from pipeline.timespec import parse_time

    spec = parse_time(text)
    if spec.kind != "wall_clock":
        raise UsageError(
            f"--wall-start {one_line(text, 60)!r} is no instant", "write it like 2026-12-01T12:00:00.5Z"
        )
    fraction = re.search(r"\.(\d+)", text)
    digits = len(fraction[1]) if fraction else 0
    return spec.value, 0 if digits >= 9 else 10 ** (9 - digits)
