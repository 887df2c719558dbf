"""What has to be assumed before clocks can be related, and what users say of them: every word of it is recorded.

--clock run.txt=monotonic   --offset spy.json=+1.5ms   --wall-start spy.json=2026-12-01T12:00:00Z
--anchor perf:829851181000=monotonic:829852428388   --wall-clocks-within 1ms
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.clock_domains import (
    HOST_CLOCKS,
    OWN_CLOCKS,
    RELATIVE,
    Domain,
    Reading,
    Snapshot,
    SourceClocks,
)
from pipeline.errors import InputError


@dataclass(frozen=True, slots=True)
class Told:
    """What a user says about clocks: by source name, '' for all sources."""

    clocks: Mapping[str, str] = field(default_factory=dict)
    offsets_ns: Mapping[str, int] = field(default_factory=dict)
    wall_starts: Mapping[str, tuple[int, int]] = field(
        default_factory=dict
    )  # ns since 1970, and its uncertainty
    anchors: tuple[tuple[tuple[str, int], tuple[str, int]], ...] = ()  # (clock or clock@host, value), twice
    wall_clocks_within_ns: int | None = None  # the wall clocks of all hosts agree to this


class Assumed:
    """What is assumed and warned of while sources are placed."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self.assumptions: list[str] = []
        self.warnings: list[str] = []

    def assume(self, words: str) -> None:
        """Record an assumption, once."""
        if words not in self.assumptions:
            self.assumptions.append(words)

    def with_clock(self, source: SourceClocks) -> SourceClocks:
        """Return a source with the clock that the user says it has."""
        self.warnings += [f"{source.source}: {note}" for note in source.notes]
        clock = self._told.clocks.get(source.source, self._told.clocks.get("", ""))
        if not clock and source.is_assumed:
            self.assume(
                f"{source.source} names no clock: taken to be {source.clock}, what its tool uses by default; "
                "--clock says otherwise"
            )
        if not clock or clock == source.clock:
            return source
        self.assume(
            f"{source.source}: its times are {clock}, as --clock says (it seemed to be {source.clock})"
        )
        return dataclasses.replace(source, clock=clock)

    def on_host(self, source: SourceClocks, sources: Sequence[SourceClocks]) -> SourceClocks:
        """Return a source that names no host, or no boot, on the only one that the others name."""
        hosts = {one.host for one in sources if one.host}
        host = source.host
        if not host and len(hosts) == 1:
            host = next(iter(hosts))
            self.assume(f"{source.source} names no host: taken to be {host}, like what came with it")
        elif not host and len(sources) > 1 and not hosts:
            self.assume("these sources name no host: taken to be the same one")
        boots = {one.boot_id for one in sources if one.boot_id and one.host in (host, "")}
        boot_id = source.boot_id or (next(iter(boots)) if len(boots) == 1 else "")
        if boot_id and not source.boot_id:
            self.assume(f"{source.source} names no boot: taken to be that of what came with it")
        return _moved(source, host, boot_id)

    def boots(self, source: SourceClocks) -> SourceClocks:
        """Return a source whose snapshots start anew where monotonic went back and the wall clock did not.

        The host was booted in between, and no boot id says so. Snapshots without a wall clock stay in the first boot.
        """
        boot, last = 1, (0, 0)
        snapshots = []
        for snapshot in source.snapshots:
            values = {one.domain.clock: one.value for one in snapshot.readings}
            if "monotonic" in values and "realtime" in values:
                now = values["monotonic"], values["realtime"]
                if now[0] < last[0] and now[1] >= last[1]:
                    boot += 1
                    self.warnings.append(
                        f"{source.source}: monotonic went back at {snapshot.origin}: the host was booted in between"
                    )
                last = now
            snapshots.append(snapshot if boot == 1 else _in_boot(snapshot, boot))
        return dataclasses.replace(source, snapshots=tuple(snapshots))

    def wall_start(self, source: SourceClocks) -> Snapshot:
        """Return the snapshot that --wall-start makes of a source's beginning."""
        value, uncertainty_ns = self._told.wall_starts[source.source]
        start = 0 if source.clock in OWN_CLOCKS else source.first or 0
        wall = Domain("realtime", source.host, source.boot_id)
        runs = ", and runs at the wall clock's rate" if source.clock == RELATIVE else ""
        self.assume(
            f"{source.source} begins at the wall-clock time of --wall-start, +-{uncertainty_ns} ns{runs}"
        )
        readings = (Reading(source.domain, start), Reading(wall, value, uncertainty_ns))
        return Snapshot(readings, f"--wall-start {source.source}")

    def anchors(self, known: Sequence[SourceClocks]) -> list[Snapshot]:
        """Return the snapshots that --anchor makes."""
        made = []
        # clocks that nothing stamped can be named too
        domains = [source.domain for source in known if source.clock]
        domains += [source.domain_of(clock) for source in known for clock in HOST_CLOCKS]
        for number, pair in enumerate(self._told.anchors, 1):
            readings = tuple(Reading(named(name, domains), value) for name, value in pair)
            made.append(Snapshot(readings, f"--anchor {number}"))
            self.assume(f"{pair[0][0]} {pair[0][1]} is {pair[1][0]} {pair[1][1]}, as --anchor says")
        return made

    def between_hosts(self, snapshots: Sequence[Snapshot], known: Sequence[SourceClocks]) -> list[Snapshot]:
        """Return what ties the wall clocks of the hosts, if the user says that they agree."""
        within_ns = self._told.wall_clocks_within_ns
        if within_ns is None:
            return []
        walls: dict[Domain, list[int]] = {}
        for reading in (one for snapshot in snapshots for one in snapshot.readings):
            if reading.domain.clock == "realtime":
                walls.setdefault(reading.domain, []).append(reading.value)
        for source in known:
            if source.clock == "realtime" and source.first is not None and source.last is not None:
                walls.setdefault(source.domain, []).extend((source.first, source.last))
        self.assume(f"the wall clocks of all hosts agree within {within_ns} ns, as --wall-clocks-within says")
        ordered = sorted(walls)
        return [
            Snapshot((Reading(ordered[0], value), Reading(other, value, within_ns)), "--wall-clocks-within")
            for other in ordered[1:]
            for value in (min(walls[other]), max(walls[other]))
        ]


def _moved(source: SourceClocks, host: str, boot_id: str) -> SourceClocks:
    """Return a source on a host and boot, with the readings that named none moved along."""

    def moved(domain: Domain) -> Domain:
        if domain.clock in OWN_CLOCKS:
            return domain
        return Domain(domain.clock, domain.host or host, domain.boot_id or boot_id)

    snapshots = tuple(
        Snapshot(
            tuple(dataclasses.replace(one, domain=moved(one.domain)) for one in snapshot.readings),
            snapshot.origin,
        )
        for snapshot in source.snapshots
    )
    return dataclasses.replace(source, host=host, boot_id=boot_id, snapshots=snapshots)


def _in_boot(snapshot: Snapshot, boot: int) -> Snapshot:
    readings = tuple(
        dataclasses.replace(
            one, domain=dataclasses.replace(one.domain, boot_id=f"{one.domain.boot_id[:8]}#{boot}")
        )
        for one in snapshot.readings
    )
    return Snapshot(readings, snapshot.origin)


def named(name: str, known: Iterable[Domain]) -> Domain:
    """Return the only domain of a name: monotonic, monotonic@HOST, relative@SOURCE."""
    clock, _, host = name.partition("@")
    domains = list(dict.fromkeys(known))
    if clock not in OWN_CLOCKS:
        host = host.partition("/")[0]
    found = [one for one in domains if one.clock == clock and host in ("", one.host)]
    if len(found) != 1:
        listed = ", ".join(str(one) for one in domains[:10]) or "none"
        raise InputError(
            f"{name!r} is {'no clock' if not found else 'more than one clock'} here",
            f"the clocks are {listed}",
        )
    return found[0]
