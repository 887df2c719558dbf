"""The plotly figure of a flame chart without its numbers: axes, traces and colours; the script fills it.

From top to bottom: the whole capture with the range shown marked; then for each lane its stacks as a heat
map, the cells' borders and names, and the shares of every slice beneath. `meta` of a trace says what
belongs into it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go  # type: ignore[import-untyped]  # plotly ships no types

from analyzers.chart_shares import KIND_OF_STATE, STATES, State
from analyzers.flame_chart import FlameChart, Lane
from analyzers.render import chart_colours
from analyzers.render.chart_colours import HUES, NOT_CAPTURED

_ROW_PX = 17
_MIN_ROW_PX = 3
_MAX_LANE_PX = 2_600  # a lane deeper than this gets lower rows
_OVERVIEW_PX = 64
_TITLE_PX = 34
_SHARES_PX = 56
_TICKS_PX = 44
_MARGIN_LEFT_PX = 64
_GRID = "#D0D0D0"
_TICK_GAP = {"ticks": "outside", "ticklen": 5, "tickcolor": "white"}
_FONT = "system-ui, 'DejaVu Sans', sans-serif"


@dataclass(frozen=True, slots=True)
class Unit:
    """What the time axes count in."""

    name: str
    ns: int


def unit_for(span_ns: int) -> Unit:
    """Return the unit in which a range of span_ns is read best."""
    if span_ns <= 1_000_000:
        return Unit("µs", 1_000)
    return Unit("ms", 1_000_000) if span_ns <= 20_000_000_000 else Unit("s", 1_000_000_000)


def build(chart: FlameChart) -> go.Figure:
    """Return the figure; traces are empty, and their `meta` names a role and a lane."""
    tops_px, height_px = _stack_px(chart)
    figure = go.Figure()
    figure.update_layout(
        height=height_px,
        margin={"l": _MARGIN_LEFT_PX, "r": 24, "t": 8, "b": 8},
        font={"family": _FONT, "size": 12, "color": "#222222"},
        paper_bgcolor="white",
        plot_bgcolor="white",
        showlegend=False,
        hovermode="closest",
        dragmode="zoom",
        hoverlabel={
            "align": "left",
            "bgcolor": "white",
            "font": {"size": 12, "color": "#222222"},
            "namelength": -1,
        },
    )
    _add_overview(figure, chart, tops_px[0], height_px)
    for number, lane in enumerate(chart.lanes):
        _add_lane(figure, chart, lane, number, tops_px[number + 1], height_px)
    return figure


def rows_of(lane: Lane) -> int:
    """Return how many rows a lane's stacks need."""
    return max(lane.cells.depth, default=0) + 1


def row_px(lane: Lane) -> int:
    """Return how high a row of a lane is drawn."""
    return max(_MIN_ROW_PX, min(_ROW_PX, _MAX_LANE_PX // rows_of(lane)))


def _stack_px(chart: FlameChart) -> tuple[list[int], int]:
    tops, at = [0], _TITLE_PX + _OVERVIEW_PX + _TICKS_PX
    for lane in chart.lanes:
        tops.append(at)
        at += _TITLE_PX + rows_of(lane) * row_px(lane) + 6 + _SHARES_PX + _TICKS_PX
    return tops, at + 16


def _domain(top_px: int, bottom_px: int, height_px: int) -> list[float]:
    plot_px = height_px - 16
    return [max(0.0, 1 - bottom_px / plot_px), 1 - top_px / plot_px]


def _title(figure: go.Figure, text: str, top_px: int, height_px: int) -> None:
    figure.add_annotation(
        text=text, x=0, xref="paper", y=_domain(0, top_px + 8, height_px)[0], yref="paper",
        xanchor="left", yanchor="top", showarrow=False, font={"size": 13},
    )  # fmt: skip


def _time_axis(anchor: str, unit: Unit, **more: Any) -> dict[str, Any]:
    return {
        "anchor": anchor,
        "title": {"text": f"time since the first event ({unit.name})", "standoff": 2, "font": {"size": 11}},
        "separatethousands": True,
        "exponentformat": "none",
        "showgrid": False,
        "zeroline": False,
        "ticks": "outside",
        "ticklen": 4,
        "showline": True,
        "linecolor": _GRID,
        **more,
    }


def _add_overview(figure: go.Figure, chart: FlameChart, top_px: int, height_px: int) -> None:
    top = top_px + _TITLE_PX
    overview_ns = chart.overview.width_ns * len(chart.overview.shares)
    figure.update_layout(
        xaxis=_time_axis("y", unit_for(overview_ns), fixedrange=True),
        yaxis=_shares_axis(_domain(top, top + _OVERVIEW_PX, height_px), "x"),
    )
    for trace in _share_traces(chart, "overview", 0, "x", "y"):
        figure.add_trace(trace)
    _title(figure, "", top_px, height_px)


def _shares_axis(domain: list[float], anchor: str) -> dict[str, Any]:
    return {
        "domain": domain,
        "anchor": anchor,
        "range": [0, 1],
        "fixedrange": True,
        "tickvals": [0, 0.5, 1],
        "ticktext": ["0", "50", "100 %"],
        "tickfont": {"size": 10},
        **_TICK_GAP,
        "showgrid": False,
        "zeroline": False,
    }


def _share_traces(chart: FlameChart, role: str, number: int, xaxis: str, yaxis: str) -> list[go.Scatter]:
    """Return the areas that stack up to a slice's whole width, CPU at the bottom, 'not captured' on top."""
    areas: list[tuple[str, str]] = [(state, HUES[state]) for state in shown_states(chart)]
    areas.append(("not_captured", NOT_CAPTURED))
    traces = []
    for state, colour in areas:
        trace = go.Scatter(
            x=[],
            y=[],
            mode="lines",
            line={"width": 0, "shape": "hv", "color": colour},
            fillcolor=colour,
            stackgroup=f"{role}{number}",
            hoverinfo="skip",
            xaxis=xaxis,
            yaxis=yaxis,
            meta={"role": role, "lane": number, "state": state},
        )
        if state == "not_captured":
            trace.fillpattern = {
                "shape": "/",
                "fgcolor": "#9A9A9A",
                "bgcolor": colour,
                "size": 6,
                "solidity": 0.25,
            }
        traces.append(trace)
    return traces


def shown_states(chart: FlameChart) -> list[State]:
    """Return the states that the capture can answer for, CPU first."""
    return [state for state in reversed(STATES) if is_captured(chart, state)]


def is_captured(chart: FlameChart, state: State) -> bool:
    """Return whether the capture can tell time in this state."""
    kinds = ("cpu", "running") if state == "cpu" else (KIND_OF_STATE[state],)
    return any(kind in chart.captured for kind in kinds)


def _add_lane(
    figure: go.Figure, chart: FlameChart, lane: Lane, number: int, top_px: int, height_px: int
) -> None:
    rows = rows_of(lane)
    top = top_px + _TITLE_PX
    bottom = top + rows * row_px(lane)
    track = bottom + 6
    axis = 2 * number + 2  # numbers of this lane's axes: stacks, then shares
    x_stacks, y_stacks, y_shares = f"x{number + 2}", f"y{axis}", f"y{axis + 1}"
    unit = unit_for(chart.slices * chart.width_ns)
    matches = {"matches": "x2"} if number else {}
    figure.update_layout(
        {
            f"xaxis{number + 2}": _time_axis(y_shares, unit, **matches),
            f"yaxis{axis}": {
                "domain": _domain(top, bottom, height_px),
                "anchor": x_stacks,
                "range": [rows - 0.5, -0.5],
                "fixedrange": True,
                "tickvals": list(range(0, rows, 5)),
                "ticktext": [str(depth + 1) for depth in range(0, rows, 5)],
                "tickfont": {"size": 10},
                **_TICK_GAP,
                "title": {"text": "stack depth", "font": {"size": 11}} if rows > 5 else None,
                "showgrid": False,
                "zeroline": False,
            },
            f"yaxis{axis + 1}": _shares_axis(_domain(track, track + _SHARES_PX, height_px), x_stacks),
        }
    )
    colours = chart_colours.classes()
    figure.add_trace(
        go.Heatmap(
            z=[],
            zmin=-0.5,
            zmax=len(colours) - 0.5,
            colorscale=chart_colours.stepwise(colours),
            showscale=False,
            hoverongaps=False,
            hovertemplate="%{text}<br>%{customdata}<extra></extra>",
            xaxis=x_stacks,
            yaxis=y_stacks,
            meta={"role": "heat", "lane": number, "rows": rows},
        )
    )
    for role, more in (
        ("borders", {"mode": "lines", "line": {"width": 1, "color": "white"}}),
        (
            "labels",
            {
                "mode": "text",
                "textposition": "middle right",
                "textfont": {"size": 11, "family": "'DejaVu Sans Mono', monospace", "color": "black"},
            },
        ),
    ):
        figure.add_trace(
            go.Scatter(
                x=[], y=[], hoverinfo="skip", xaxis=x_stacks, yaxis=y_stacks,
                meta={"role": role, "lane": number, "row_px": row_px(lane)}, **more,
            )
        )  # fmt: skip
    for trace in _share_traces(chart, "shares", number, x_stacks, y_shares):
        figure.add_trace(trace)
    _title(figure, "", top_px, height_px)
