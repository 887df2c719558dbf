"""A flame chart as one HTML page that needs nothing else: plotly, the data, and a script that joins them.

Names come from the capture and may hold anything. They reach the page as JSON text without a `<`, the
script puts them on it as text, and the page's security policy lets no script run but its own two and
nothing be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import string
from importlib import resources
from typing import Any

from analyzers import chart_waits
from analyzers.chart_shares import STATES, Shares
from analyzers.chart_waits import Wait
from analyzers.flame_chart import FlameChart, Lane
from analyzers.render import chart_colours, chart_figure
from pipeline.text import shown


def render(chart: FlameChart, title: str, subtitle: str) -> str:
    """Return the page; title and subtitle are plain text."""
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]  # plotly ships no types

    plotly = get_plotlyjs()
    parts = resources.files("analyzers.render")
    script = parts.joinpath("chart_page.js").read_text("utf-8")
    return string.Template(parts.joinpath("chart_page.html").read_text("utf-8")).substitute(
        policy=_policy(plotly, script),
        title=_text(title),
        told="\n".join(_told(chart, subtitle)),
        legend="".join(_legend(chart)),
        figure=_script_json(chart_figure.build(chart).to_plotly_json()),
        data=_script_json(_data(chart)),
        plotly=plotly,
        script=script,
    )


def _text(text: str) -> str:
    return html.escape(shown(text))


def _policy(*scripts: str) -> str:
    """Return a policy under which only these scripts run and nothing is fetched."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"


def _script_json(value: Any) -> str:
    """Return JSON that no HTML parser takes for markup: pure ASCII, and no < > or &."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _told(chart: FlameChart, subtitle: str) -> list[str]:
    """Return what stands above the picture, a paragraph each."""
    told = [subtitle] if subtitle else []
    many = f"{chart.slices} slices" if chart.slices > 1 else "1 slice"
    shown_from = _at(chart, chart.first_slice)
    told.append(f"Shown: {many} of {_exact(chart.width_ns)} from {shown_from} on: {chart.chosen}")
    if chart.lanes_left_out:
        threads = len(chart.lanes) + chart.lanes_left_out
        told.append(f"{len(chart.lanes)} of {threads} threads are shown, the busiest; --tid shows others")
    waits = chart_waits.longest(chart)
    if waits:
        told.append("Longest waits shown: " + "; ".join(_wait(chart, wait) for wait in waits))
    paragraphs = [f"<p>{_text(line)}</p>" for line in (*told, *chart.notes)]
    paragraphs += [f'<p class="warning">Lost: {_text(loss.describe())}</p>' for loss in chart.losses]
    return paragraphs


def _wait(chart: FlameChart, wait: Wait) -> str:
    under = f" under {' > '.join(wait.callers)}" if wait.callers else ""
    length = _exact(wait.slices * chart.width_ns)
    who = f"{wait.lane.comm} (tid {wait.lane.tid})"
    return f"{who} {wait.name} about {length} from {_at(chart, wait.first_slice)}{under}"


def _at(chart: FlameChart, slice_number: int) -> str:
    """Return where a slice begins, as time since the first event."""
    return f"{_decimal(slice_number * chart.width_ns - chart.origin_ns, 1_000_000)} ms"


def _decimal(count: int, unit: int) -> str:
    """Return count / unit exactly, unit being a power of ten."""
    whole, rest = divmod(abs(count), unit)
    digits = f"{rest:0{len(str(unit)) - 1}d}".rstrip("0") if rest else ""
    return f"{'-' if count < 0 else ''}{whole:,}{'.' if digits else ''}{digits}"


def _exact(duration_ns: int) -> str:
    """Return a duration exactly, in its largest unit that is no longer: 100000 ns is `100 µs`."""
    for name, unit_ns in (("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1_000)):
        if duration_ns >= unit_ns:
            return f"{_decimal(duration_ns, unit_ns)} {name}"
    return f"{duration_ns} ns"


def _legend(chart: FlameChart) -> list[str]:
    colours = chart_colours.classes()
    shades = (len(colours) - 1) // len(STATES)
    entries, missing = [], []
    for state in reversed(STATES):
        if chart_figure.is_captured(chart, state):
            first = STATES.index(state) * shades
            shown_colours = colours[first : first + shades]
            swatches = "".join(f'<i style="background:{colour}"></i>' for colour in shown_colours)
            entries.append(f"<span>{swatches}{chart_colours.WORDS[state]}</span>")
        else:
            missing.append(chart_colours.WORDS[state])
    hatched = '<span><i class="hatched"></i>'
    entries.append(f"{hatched}time not captured</span>")
    if missing:
        entries.append(f"{hatched}not captured at all: {', '.join(missing)}</span>")
    entries.append("<span>the state that took most of the slice; paler: less of it</span>")
    return entries


def _data(chart: FlameChart) -> dict[str, Any]:
    """Return what the script draws from; whole numbers that a float cannot hold travel as text."""
    overview = chart.overview
    overview_ns = overview.width_ns * len(overview.shares)
    return {
        "width_ns": str(chart.width_ns),
        "first_slice": str(chart.first_slice),
        "slices": chart.slices,
        "origin_ns": str(chart.origin_ns),
        "unit_ns": chart_figure.unit_for(chart.slices * chart.width_ns).ns,
        "names": [shown(name) for name in chart.names],
        "states": [{"key": state, "words": chart_colours.WORDS[state]} for state in STATES],
        "not_captured": chart_colours.NOT_CAPTURED_CLASS,
        "lanes": [_lane(chart, lane) for lane in chart.lanes],
        "overview": {
            "width_ns": str(overview.width_ns),
            "first_bucket": str(overview.first_bucket),
            "unit_ns": chart_figure.unit_for(overview_ns).ns,
            "shares": _shares(overview.shares),
            "label": f"Whole capture, {_label(chart.lanes[0])}; the frame marks what is shown below",
        },
    }


def _label(lane: Lane) -> str:
    process = "" if lane.pid in (None, lane.tid) else f", process {lane.pid}"
    return f"{shown(lane.comm)} (tid {lane.tid}{process})"


def _summary(chart: FlameChart, lane: Lane) -> str:
    """Return how the range shown was shared out, the largest share first."""
    taken_ns = {chart_colours.WORDS[state]: sum(lane.shares.of(state)) for state in STATES}
    range_ns = chart.slices * chart.width_ns
    taken_ns["not captured"] = range_ns - sum(taken_ns.values())
    ranked = sorted(taken_ns.items(), key=lambda item: -item[1])
    return ", ".join(f"{words} {_percent(part_ns / range_ns)}" for words, part_ns in ranked if part_ns)


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 else "below 0.1%"


def _lane(chart: FlameChart, lane: Lane) -> dict[str, Any]:
    cells = lane.cells
    return {
        "label": _label(lane),
        "title": f"{_label(lane)}: {_summary(chart, lane)}",
        "depth": list(cells.depth),
        "first": [first - chart.first_slice for first in cells.first_slice],
        "count": list(cells.slices),
        "name": list(cells.name),
        "kind": list(cells.kind),
        "shares": _shares(lane.shares),
        "heat": [chart_colours.class_of(lane.shares, at, chart.width_ns) for at in range(chart.slices)],
    }


def _shares(shares: Shares) -> dict[str, list[int]]:
    return {state: list(shares.of(state)) for state in STATES}
