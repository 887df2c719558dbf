"""Which clock is the timeline, where each source lies on it, and what had to be assumed for that.

Times stay as they were recorded; they are converted when a question is asked. What nothing relates is refused with the
option that would place it, never put at zero in silence, and every assumption is in the result.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from pipeline import clock_policy, clocks
from pipeline.clock_anchors import Anchors
from pipeline.clock_assumptions import Assumed, Told, named
from pipeline.clock_domains import OWN_CLOCKS, RELATIVE, Domain, Snapshot, SourceClocks
from pipeline.clocks import ClockGraph, Converted, Edge, Hop
from pipeline.errors import InputError

# what a timeline is, if several would do
_TIMELINES = (
    "monotonic",
    "boottime",
    "monotonic_raw",
    "perf",
    "sched_clock",
    "realtime",
    "tai",
    "gpu",
    "tsc",
)


@dataclass(frozen=True, slots=True)
class Placed:
    """A source on the timeline; `why_not` says why it is not there."""

    source: SourceClocks
    domain: Domain
    path: tuple[Hop, ...] | None
    shift_ns: int = 0  # added after the conversion: a user's offset
    uncertainty_ns: int = 0  # the worst over the source's times
    why_not: str = ""
    remedy: str = ""

    @property
    def is_placed(self) -> bool:
        """Return whether its times can be converted."""
        return self.path is not None

    def to_timeline(self, values: pl.Series) -> Converted:
        """Return raw times on the timeline, in ns."""
        assert self.path is not None
        if not self.path:
            values = values.cast(pl.Int64)
            uncertain = pl.zeros(len(values), pl.Int64, eager=True)
            return Converted(values + self.shift_ns, uncertain, (self.domain,))
        done = clocks.follow(self.path, values.cast(pl.Int64))
        return Converted(done.values + self.shift_ns, done.uncertainty, done.path)

    def raw_from(self, time_ns: int) -> int:
        """Return the first raw time at or after a time on the timeline: both ends of a half-open range."""
        assert self.path is not None
        return clocks.lowest(self.path, time_ns - self.shift_ns)


@dataclass(frozen=True, slots=True)
class GraphWall:
    """The wall clock as the graph knows it from the timeline."""

    graph: ClockGraph
    timeline: Domain
    realtime: Domain
    utc_offset_ns: int = 0

    def to_source(self, wall_ns: int) -> int:
        """Return an instant of the wall clock on the timeline."""
        return self._converted(wall_ns, self.realtime, self.timeline)

    def to_wall(self, source_ns: int) -> int:
        """Return an instant of the timeline on the wall clock."""
        return self._converted(source_ns, self.timeline, self.realtime)

    def _converted(self, value: int, source: Domain, target: Domain) -> int:
        converted = self.graph.convert_one(value, source, target)
        if converted is None:
            raise InputError("that time is too far away for the clocks of this capture", "give one inside it")
        return converted[0]


@dataclass(frozen=True, slots=True)
class Alignment:
    """Sources on one timeline."""

    graph: ClockGraph
    timeline: Domain
    sources: tuple[Placed, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Return the hash of everything that the placing depends on."""
        shifts = [f"{one.source.source} {one.domain} {one.shift_ns}" for one in self.sources]
        text = "\n".join([self.graph.digest, str(self.timeline), *shifts])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def uncertainty_ns(self) -> int:
        """Return how far two events of different sources may be misplaced against each other."""
        worst = sorted((one.uncertainty_ns for one in self.sources if one.is_placed), reverse=True)
        return sum(worst[:2]) if len(worst) > 1 else 0

    def wall(self) -> GraphWall | None:
        """Return the wall clock of the timeline's host; None where nothing ties it to the timeline."""
        walls = [Domain("realtime", self.timeline.host, self.timeline.boot_id)]
        walls += [one for one in self.graph.domains if one.clock == "realtime"]
        for wall in walls:
            if self.graph.path(wall, self.timeline, 0, 0) is not None:
                return GraphWall(self.graph, self.timeline, wall)
        return None

    def domain_named(self, name: str) -> Domain:
        """Return the clock that a user names: monotonic, monotonic@HOST, relative@SOURCE."""
        return named(
            name, [one.domain for one in self.sources if one.source.clock] + list(self.graph.domains)
        )

    def check(self, width_ns: int, *, is_accepted: bool = False) -> None:
        """Raise InputError where a source has no place, or the join is less certain than a slice is wide."""
        for one in self.sources:
            if not one.is_placed:
                raise InputError(one.why_not, one.remedy, path=one.source.source)
        if self.uncertainty_ns > width_ns and not is_accepted:
            first, second = sorted(self.sources, key=lambda one: -one.uncertainty_ns)[:2]
            raise InputError(
                f"{first.source.source} (+-{first.uncertainty_ns} ns) and {second.source.source} "
                f"(+-{second.uncertainty_ns} ns) may be {self.uncertainty_ns} ns apart, "
                f"which is more than a slice of {width_ns} ns",
                "give more anchors, a wider --width, or --accept-uncertainty",
            )


def align(
    sources: Sequence[SourceClocks], told: Told | None = None, extra: Sequence[Snapshot] = ()
) -> Alignment:
    """Place sources on one timeline; `extra` are snapshots that no single source tells.

    Raises InputError where the user's words name a source or clock that is not there.
    """
    told = told or Told()
    assumed = Assumed(told)
    known = [assumed.boots(assumed.on_host(assumed.with_clock(source), sources)) for source in sources]
    snapshots = [snapshot for source in known for snapshot in source.snapshots]
    snapshots += extra
    snapshots += [assumed.wall_start(source) for source in known if source.source in told.wall_starts]
    snapshots += assumed.anchors(known)
    snapshots += assumed.between_hosts(snapshots, known)
    edges = clock_policy.edges_of(snapshots)
    for source in known:
        if source.conversion is not None:
            tsc, perf = source.domain_of("tsc"), source.domain_of("perf")
            edges.append(Edge.of_conversion(tsc, perf, source.conversion))
            assumed.assume(
                f"{source.source}: the TSC runs at a constant rate, as when perf wrote down its conversion"
            )
    graph = ClockGraph(edges)
    assumed.warnings += [words for edge in edges for words in _seen(edge)]
    timeline = _timeline(known, graph)
    placed = _with_offsets([_placed(source, timeline, graph) for source in known], told, assumed)
    return Alignment(graph, timeline, tuple(placed), tuple(assumed.assumptions), tuple(assumed.warnings))


def _seen(edge: Edge) -> list[str]:
    """Return what an edge's anchors show: contradictions, steps, suspends, slews."""
    known = edge.known
    if not isinstance(known, Anchors):
        return []
    told = [
        f"{one.origin}: {edge.target} contradicts its neighbours and is left out" for one in known.dropped
    ]
    for step in known.steps:
        size = f"{abs(step.size)} {edge.target.unit}"
        between = f"between {edge.source.clock} {step.before.x} and {step.after.x}"
        if edge.target.clock == "boottime" and step.size > 0:
            told.append(f"{edge.target}: the host was suspended for {size} {between}")
        elif edge.target.clock in ("tsc", "perf", "sched_clock"):
            told.append(f"{edge.target}: was reset or stood still ({size}) {between}")
        else:
            way = "forward" if step.size > 0 else "back"
            told.append(f"{edge.target}: was set {way} by {size} {between}")
    wander = clock_policy.wander_ppb(known)
    if wander >= clock_policy.NOTABLE_PPB:
        told.append(
            f"{edge.target}: its rate against {edge.source.clock} changes by {wander / 1000:.1f} ppm (a slew, or a "
            "leap second that is smeared); followed from anchor to anchor"
        )
    return told


def _timeline(known: Sequence[SourceClocks], graph: ClockGraph) -> Domain:
    """Return the clock of the whole: the sources' own if they share one, else the best that reaches most of them."""
    timed = [source for source in known if source.clock]
    own = list(dict.fromkeys(source.domain for source in timed))
    if len(own) == 1 and own[0].unit == "ns":
        return own[0]
    host = next((source.host for source in timed if source.host), "")
    candidates = sorted(
        {*own, *graph.domains},
        key=lambda one: (one.clock in OWN_CLOCKS, one.host != host, *_rank(one)),
    )
    reached = {
        one: sum(_path(source, one, graph) is not None for source in timed if source.clock != RELATIVE)
        for one in candidates
        if one.unit == "ns"
    }
    if not reached:
        return Domain("monotonic", host)
    return max(candidates, key=lambda one: (reached.get(one, -1), -candidates.index(one)))


def _rank(domain: Domain) -> tuple[int, Domain]:
    place = _TIMELINES.index(domain.clock) if domain.clock in _TIMELINES else len(_TIMELINES)
    return place, domain


def _path(source: SourceClocks, timeline: Domain, graph: ClockGraph) -> tuple[Hop, ...] | None:
    if source.domain == timeline:
        return ()
    first = source.first if source.first is not None else 0
    last = source.last if source.last is not None else first
    return graph.path(source.domain, timeline, first, last)


def _placed(source: SourceClocks, timeline: Domain, graph: ClockGraph) -> Placed:
    path = _path(source, timeline, graph)
    if path is None:
        problem, remedy = _why_not(source, timeline)
        return Placed(source, source.domain, None, why_not=problem, remedy=remedy)
    first = source.first if source.first is not None else 0
    last = source.last if source.last is not None else first
    if not path:
        return Placed(source, source.domain, path)
    # bounds are worst at the ends or in the middle of a gap: a thousand probes find both
    steps = min(1000, last - first + 1)
    probes = [first + (last - first) * number // max(steps - 1, 1) for number in range(steps)]
    worst = clocks.follow(path, pl.Series(probes, dtype=pl.Int64)).uncertainty.max()
    return Placed(source, source.domain, path, uncertainty_ns=worst if isinstance(worst, int) else 0)


def _why_not(source: SourceClocks, timeline: Domain) -> tuple[str, str]:
    name = source.source
    if not source.clock:
        return "it holds no times to place", "leave it out"
    if source.clock == RELATIVE:
        return (
            "its times count from its own start, and nothing says when that was",
            f"give --offset {name}=+0ms (from the first event of the others), or --wall-start {name}=TIME",
        )
    if source.clock == "tsc" and timeline.clock == "monotonic":
        return (
            f"nothing relates {source.domain} to {timeline}: how long a tick lasts is not known",
            (
                "give what perf recorded meanwhile beside it (the same context switches in both are enough), or "
                "--anchor tsc:VALUE=monotonic:VALUE twice; a trace with trace_clock mono needs neither"
            ),
        )
    return (
        f"nothing relates {source.domain} to {timeline}",
        f"record both with -k monotonic, or give --anchor {source.domain}:VALUE={timeline}:VALUE (twice for the rate)",
    )


def _with_offsets(placed: Sequence[Placed], told: Told, assumed: Assumed) -> list[Placed]:
    """Apply --offset: a relative source begins that long after the first event of the others, others are moved."""
    firsts = [
        value
        for one in placed
        if one.is_placed and one.source.first is not None and one.source.clock != RELATIVE
        for value in one.to_timeline(pl.Series([one.source.first], dtype=pl.Int64)).values
        if value is not None
    ]
    done = []
    for one in placed:
        offset_ns = told.offsets_ns.get(one.source.source)
        if offset_ns is None:
            done.append(one)
        elif one.source.clock == RELATIVE and not (one.is_placed and one.path):
            start_ns = min(firsts, default=0)
            assumed.assume(
                f"{one.source.source} begins {offset_ns} ns after the first event of the others, as --offset says"
            )
            done.append(
                dataclasses.replace(one, path=(), shift_ns=start_ns + offset_ns, why_not="", remedy="")
            )
        else:
            assumed.assume(f"{one.source.source} is moved by {offset_ns} ns, as --offset says")
            done.append(dataclasses.replace(one, shift_ns=offset_ns))
    return done
