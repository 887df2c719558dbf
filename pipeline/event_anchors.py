"""Anchors found in the data: two files that saw the same events, and requests that went from one host to another.

The order in which threads ran on a CPU is a fingerprint: where two files hold the same few switches in a row, and
neither holds them twice, they saw the same instant. A request's server span lies inside its client span in truth,
whatever the two clocks say; that bounds the offset between the hosts by the round trip.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from pipeline.clock_domains import Domain, Reading, Snapshot

# our choice: four switches in a row are rarely the same twice in a capture, and short files still hold some
_SWITCHES_IN_A_ROW = 4
# fewer windows that agree are chance
_FEWEST_ANCHORS = 2
_PAIRS_IN_A_WINDOW = 16
_MOST_ANCHORS = 2_000
# two tracers on one tracepoint stamp it one after the other: under 2 us in the median window (docs/clocks.md)
SAME_EVENT_NS = 2_000
# a pair further from the line than this is another event that looks the same
_FAR_NS = 1_000_000
_MOST_TICKS = 8.0  # in a ns, where both clocks count ticks
# how far the rates of two hosts' clocks may differ while a request lasts: both slewed by NTP at its limit
_HOSTS_PPM = 1_000

_SWITCH = "sched:sched_switch"


@dataclass(frozen=True, slots=True)
class Switches:
    """The context switches of one source, and the clock that stamped them."""

    source: str
    domain: Domain
    events: pl.DataFrame  # PERF_EVENTS: the rows of sched_switch count
    resolution: int = 1  # of its times, in the clock's unit


def apart(one: Switches, other: Switches) -> int | None:
    """Return how much later the other source saw the same switches, in ns; None where they share too little.

    Both must be on clocks that run alike.
    """
    found = same_switches(one, other)
    differences = sorted(second.value - first.value for first, second in (one.readings for one in found))
    return differences[len(differences) // 2] if differences else None


def same_switches(one: Switches, other: Switches) -> list[Snapshot]:
    """Return snapshots of instants that both sources saw; none where they share too little to be sure."""
    pairs = _fingerprints(one.events).join(
        _fingerprints(other.events), on=["cpu", "print"], how="inner", suffix="_other"
    )
    pairs = pairs.select("raw_time", "raw_time_other").sort("raw_time")
    if pairs.height < _FEWEST_ANCHORS * _PAIRS_IN_A_WINDOW // 2:
        return []
    kept = _on_one_line(pairs)
    if 2 * kept.height < pairs.height:
        return []  # most candidates disagree, so what agrees may be chance
    window = max(_PAIRS_IN_A_WINDOW, -(-kept.height // _MOST_ANCHORS))
    # of each window the pair in the middle: one tracer held up by an interrupt does not shift it
    middle = kept.with_columns(window=pl.int_range(pl.len()) // window).sort("window", "off")
    middle = (
        middle.group_by("window", maintain_order=True)
        .agg(pl.col("raw_time", "raw_time_other").get(pl.len() // 2))
        .select("raw_time", "raw_time_other")
    )
    if middle.height < _FEWEST_ANCHORS:
        return []
    origin = f"the same context switches in {one.source} and {other.source}"
    same_event = math.ceil(SAME_EVENT_NS * _units_per_ns(one.domain, other.domain, middle))
    return [
        Snapshot(
            (
                Reading(one.domain, first, one.resolution),
                Reading(other.domain, second, other.resolution + same_event),
            ),
            origin,
        )
        for first, second in middle.select("raw_time", "raw_time_other").iter_rows()
    ]


def _units_per_ns(one: Domain, other: Domain, anchors: pl.DataFrame) -> float:
    """Return at least how many of the other clock's units a ns has."""
    if other.unit == "ns":
        return 1.0
    if one.unit == "ticks":
        return _MOST_TICKS
    (x0, y0), (x1, y1) = anchors.row(0), anchors.row(-1)
    return float(1.01 * (y1 - y0) / (x1 - x0))


def _fingerprints(events: pl.DataFrame) -> pl.DataFrame:
    """Return one row per switch that the next three make unmistakable: cpu, print, raw_time."""
    switches = events.lazy().filter(pl.col("event") == _SWITCH, pl.col("raw_time").is_not_null())
    threads = pl.col("args").str.extract_groups(r"prev_pid=(\d+).* next_pid=(\d+)")
    told = switches.select("cpu", "raw_time", who=threads).unnest("who").sort("cpu", "raw_time")
    told = told.with_columns(pair=pl.col("1") + ">" + pl.col("2"))
    row = pl.concat_str(
        [pl.col("pair").shift(-step).over("cpu") for step in range(_SWITCHES_IN_A_ROW)], separator=" "
    )
    prints = told.select("cpu", "raw_time", print=row).drop_nulls()
    once = pl.len().over("cpu", "print") == 1
    return prints.filter(once).collect()


def _on_one_line(pairs: pl.DataFrame) -> pl.DataFrame:
    """Return the pairs near the line that most of them lie on, and `off`, the distance from it."""
    x0, y0 = pairs.row(pairs.height // 2)
    # exact differences first: they are small, so a float holds them well enough to tell near from far
    table = pairs.select(
        "raw_time",
        "raw_time_other",
        dx=(pl.col("raw_time") - x0).cast(pl.Float64),
        dy=(pl.col("raw_time_other") - y0).cast(pl.Float64),
    )
    half = table.height // 2
    slopes = table.select(
        (pl.col("dy").shift(-half) - pl.col("dy")) / (pl.col("dx").shift(-half) - pl.col("dx"))
    ).to_series()
    slope = slopes.drop_nulls().drop_nans().median()
    if not isinstance(slope, float) or not math.isfinite(slope) or slope <= 0:
        return table.clear().with_columns(off=pl.lit(0.0))
    table = table.with_columns(off=pl.col("dy") - pl.col("dx") * slope)
    far = _FAR_NS * max(slope, 1.0)
    return table.filter((pl.col("off") - pl.col("off").median()).abs() <= far)


def requests(
    client: Domain, server: Domain, spans: Sequence[tuple[int, int, int, int]], origin: str = "spans"
) -> list[Snapshot]:
    """Return a snapshot per request of (client start, client end, server start, server end), in ns.

    The server's middle is the client's middle, give or take half of what the client waited longer than the server
    worked. A server span that is longer than the client's was not inside it (the client did not wait): it is left out.
    """
    found = []
    for sent, received, begun, done in spans:
        slack = (received - sent) * (1_000_000 + _HOSTS_PPM) - (done - begun) * 1_000_000
        if received < sent or done < begun or slack < 0:
            continue
        half_ns = -(-slack // 2_000_000) + 1
        readings = (Reading(client, (sent + received) // 2), Reading(server, (begun + done) // 2, half_ns))
        found.append(Snapshot(readings, origin))
    return found


def request_pairs(spans: pl.DataFrame) -> dict[tuple[str, str], list[tuple[int, int, int, int]]]:
    """Return the requests between hosts in a table of spans: client span, and its child of kind server elsewhere.

    spans: one row per span with trace_id, span_id, parent_id, kind ('client', 'server'), host, raw_start, raw_end (ns).
    """
    clients = spans.filter(pl.col("kind") == "client")
    servers = spans.filter(pl.col("kind") == "server")
    both = clients.join(
        servers,
        left_on=["trace_id", "span_id"],
        right_on=["trace_id", "parent_id"],
        how="inner",
        suffix="_server",
    ).filter(pl.col("host") != pl.col("host_server"))
    found: dict[tuple[str, str], list[tuple[int, int, int, int]]] = {}
    columns = ("host", "host_server", "raw_start", "raw_end", "raw_start_server", "raw_end_server")
    for here, there, *times in both.select(columns).iter_rows():
        found.setdefault((here, there), []).append((times[0], times[1], times[2], times[3]))
    return found
