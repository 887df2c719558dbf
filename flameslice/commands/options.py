"""Options that several commands share, and what they turn into."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pipeline.errors import UsageError
from pipeline.filters import SampleFilter

if TYPE_CHECKING:
    from pipeline.timespec import WallClock

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Asked:
    """What the filter options of a command asked for; times are text until the capture's range is known."""

    pids: tuple[int, ...] = ()
    tids: tuple[int, ...] = ()
    cpus: tuple[int, ...] = ()
    comms: tuple[str, ...] = ()
    time_from: str | None = None
    time_to: str | None = None
    sources: tuple[str, ...] = ()  # of a stored capture, by file name or id

    @property
    def has_range(self) -> bool:
        """Return whether a time range was asked for."""
        return self.time_from is not None or self.time_to is not None

    def origins(self) -> SampleFilter:
        """Return the filter without the time range."""
        return SampleFilter(
            frozenset(self.pids), frozenset(self.tids), frozenset(self.cpus), frozenset(self.comms)
        )

    @property
    def names_wall_time(self) -> bool:
        """Return whether a time was given that only the wall clock shows."""
        return any(
            text is not None and ":" in text and "slice" not in text
            for text in (self.time_from, self.time_to)
        )

    def resolve(
        self,
        first_ns: int | None,
        last_ns: int | None,
        width_ns: int = 100_000,
        wall: WallClock | None = None,
        clock: str = "",
    ) -> SampleFilter:
        """Return the filter, its times resolved against the first and last time of the capture.

        clock: what stamped these; ticks of the TSC are refused.
        """
        from pipeline import timespec

        if not self.has_range:
            return self.origins()
        if clock == "tsc":
            raise UsageError(
                "its times are ticks of the TSC, which only anchors make ns",
                "leave out --from and --to here; flameslice slices and chart take --anchor",
            )
        if first_ns is None or last_ns is None:
            raise UsageError("this capture has no times", "leave out --from and --to")
        bounds = []
        for text in (self.time_from, self.time_to):
            spec = None if text is None else timespec.parse_time(text)
            bounds.append(None if spec is None else timespec.resolve(spec, first_ns, last_ns, wall, width_ns))
        if bounds[0] is not None and bounds[1] is not None and bounds[0] >= bounds[1]:
            raise UsageError(f"--to {self.time_to} is not after --from {self.time_from}", "give a later --to")
        origin = self.origins()
        return SampleFilter(origin.pids, origin.tids, origin.cpus, origin.comms, bounds[0], bounds[1])

    def words(self) -> tuple[str, ...]:
        """Return the filters in words, for subtitles."""
        told = [f"source {name}" for name in self.sources]
        told += [f"pid {pid}" for pid in self.pids] + [f"tid {tid}" for tid in self.tids]
        told += [f"cpu {cpu}" for cpu in self.cpus] + [f"comm {comm}" for comm in self.comms]
        if self.time_from is not None:
            told.append(f"from {self.time_from}")
        if self.time_to is not None:
            told.append(f"to {self.time_to}")
        return tuple(told)


def filters(command: Command) -> Command:
    """Add --from, --to, --pid, --tid, --comm, --cpu and --source; the command gets them as `asked`."""

    def wrapped(**values: Any) -> Any:
        asked = Asked(
            values.pop("pid"),
            values.pop("tid"),
            values.pop("cpu"),
            values.pop("comm"),
            values.pop("time_from"),
            values.pop("time_to"),
            values.pop("sources"),
        )
        return command(asked=asked, **values)

    wrapped.__name__ = command.__name__
    wrapped.__doc__ = command.__doc__
    wrapped.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    add: Any = wrapped
    for option in (
        click.option(
            "--source",
            "sources",
            metavar="FILE",
            multiple=True,
            help="Only this file of a stored capture, by name or SHA-256; may be given several times.",
        ),
        click.option("--cpu", type=int, multiple=True, help="Only this CPU; may be given several times."),
        click.option("--comm", multiple=True, help="Only threads of this name; may be given several times."),
        click.option("--tid", type=int, multiple=True, help="Only this thread; may be given several times."),
        click.option("--pid", type=int, multiple=True, help="Only this process; may be given several times."),
        click.option(
            "--to", "time_to", metavar="TIME", help="Before this time (see --from); negative: from the end."
        ),
        click.option(
            "--from",
            "time_from",
            metavar="TIME",
            help="From this time: 1.5s, 250ms, 40us from the first event (negative: from the last), "
            "829.85 on the capture's clock, slice:123; 12:03:04.5 or 2026-12-01T12:03:04Z (UTC) where the wall clock "
            "is known.",
        ),
    ):
        add = option(add)
    return add  # type: ignore[no-any-return]


def verbosity(command: Command) -> Command:
    """Add -v and --debug after the command's name too; the group reads them."""
    for option in (
        click.option("-v", "--verbose", is_flag=True, expose_value=False, help="Say more."),
        click.option(
            "--debug", is_flag=True, expose_value=False, help="Show a traceback when something goes wrong."
        ),
    ):
        command = option(command)
    return command


def talk(command: Command) -> Command:
    """Add --max-loss, -v and --debug."""
    return click.option(
        "--max-loss",
        type=click.FloatRange(0, 100),
        default=5.0,
        show_default=True,
        metavar="PERCENT",
        help="Exit with status 3 when more of the rows than this could not be read.",
    )(verbosity(command))
