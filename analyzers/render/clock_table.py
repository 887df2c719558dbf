"""A clock report as text for a terminal, and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

from analyzers.clock_report import ClockReport, Relation, SourceLine
from pipeline.errors import one_line

_SHOWN_ORIGINS = 3


def to_json(report: ClockReport) -> str:
    """Return one JSON document."""
    return json.dumps({"schema_version": "1.0", **dataclasses.asdict(report)}, ensure_ascii=False) + "\n"


def to_text(report: ClockReport) -> str:
    """Return a few lines per source and relation."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: ClockReport) -> Iterator[str]:
    yield f"timeline: {one_line(report.timeline)} (clock graph {report.graph})"
    yield ""
    yield "sources"
    for source in report.sources:
        yield from _source(source)
    if report.relations:
        yield ""
        yield "relations"
    for relation in report.relations:
        yield from _relation(relation)
    for title, lines in (("assumed", report.assumptions), ("warnings", report.warnings)):
        if lines:
            yield ""
            yield title
            yield from (f"  {one_line(line)}" for line in lines)


def _source(source: SourceLine) -> Iterator[str]:
    yield f"  {one_line(source.source)}: {one_line(source.clock)}"
    if source.first is not None and source.last is not None:
        yield f"    from {source.first} to {source.last}"
    if source.why_not:
        yield f"    not placed: {one_line(source.why_not)}: {one_line(source.remedy)}"
        return
    if source.uncertainty_ns is not None and len(source.way) > 1:
        yield f"    {' -> '.join(one_line(clock) for clock in source.way)}, +-{source.uncertainty_ns} ns at worst"
    if source.shift_ns:
        yield f"    moved by {source.shift_ns} ns"


def _relation(relation: Relation) -> Iterator[str]:
    yield f"  {one_line(relation.source)} -> {one_line(relation.target)}"
    if relation.kind != "anchors":
        yield (
            f"    perf's own formula, {1 / relation.rate:.9g} ticks per ns"
            if relation.rate
            else "    a formula"
        )
        return
    told = [f"{relation.anchors} anchor{'s' if relation.anchors != 1 else ''}"]
    if relation.deviation_ppm is not None:
        told.append(f"rate {relation.deviation_ppm:+.3f} ppm")
    elif relation.is_rate_assumed:
        told.append("rate taken as 1")
    elif relation.rate is not None:
        told.append(f"{relation.rate:.9g} {relation.unit} per ns")
    else:
        told.append("too few to tell a rate")
    if relation.largest_residual is not None:
        told.append(f"largest residual {relation.largest_residual} {relation.unit}")
    if relation.uncertainty is not None:
        told.append(f"+-{relation.uncertainty} {relation.unit} at worst between them")
    if relation.steps:
        told.append(f"{relation.steps} step{'s' if relation.steps != 1 else ''}")
    if relation.dropped:
        told.append(f"{relation.dropped} left out")
    yield f"    {', '.join(told)}"
    shown = [one_line(origin, 80) for origin in relation.origins[:_SHOWN_ORIGINS] if origin]
    more = (
        f" and {len(relation.origins) - _SHOWN_ORIGINS} more"
        if len(relation.origins) > _SHOWN_ORIGINS
        else ""
    )
    if shown:
        yield f"    from {', '.join(shown)}{more}"
