"""The flame graph as one SVG file: interactive in a browser, a still picture inside <img>, nothing loaded from outside.

Names reach the file only as escaped XML text. Frames narrower than min_width_px at the drawn width are left out and
counted, so that a profile of a million nodes still opens. What a script needs to lay out the graph again (zoom, search,
resize) stands at each frame: `o` and `w`, offset and weight in the graph's unit; `d`, depth.
"""

from __future__ import annotations

import re
import textwrap
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from xml.sax.saxutils import escape

from analyzers import call_tree
from analyzers.flame_graph import CallTree, FlameGraph, NodeKind
from pipeline.text import encode, shown

ROW_PX = 17
SIDE_PX = 10
FONT_PX = 12
CHAR_PX = 7.25  # of the monospace font at 12 px
_NAME_CHARS = 20_000  # a longer name is cut in the file
_UNKNOWN_SHARE_TO_WARN = 0.2
_WRAP_CHARS = 150

# hue, saturation and lightness, and how far the name's hash may move hue and lightness: told apart by hue and lightness
_PALETTE: dict[str, tuple[int, int, int, int, int]] = {
    "process": (220, 12, 76, 0, 4),
    "user": (44, 88, 66, 14, 6),
    "kernel": (16, 82, 66, 8, 6),
    "jit": (135, 45, 64, 16, 6),
    "inlined": (185, 48, 66, 10, 6),
    "python": (210, 70, 74, 10, 5),
    "gpu": (280, 50, 76, 12, 5),
}


@dataclass(frozen=True, slots=True)
class _Box:
    """A frame that is wide enough to draw."""

    node: int
    depth: int
    offset: int
    total: int
    own: int
    hidden: int  # weight of children too narrow to draw


def render(
    graph: FlameGraph,
    *,
    icicle: bool = False,
    inverted: bool = False,
    width_px: int = 1200,
    min_width_px: float = 0.1,
) -> str:
    """Return the SVG document. icicle: the root at the top; inverted: stacks start from the innermost function."""
    tree = call_tree.invert(graph.tree) if inverted else graph.tree
    total = tree.totals[call_tree.ROOT]
    inner_px = width_px - 2 * SIDE_PX
    boxes, hidden_frames, hidden_weight = _wide_enough(tree, total * min_width_px / inner_px)
    deepest = max(box.depth for box in boxes)
    head = _Head(graph, tree, inverted, hidden_frames, hidden_weight, {tree.kinds[box.node] for box in boxes})
    top_px = head.height_px
    rows_px = (deepest + 1) * ROW_PX
    height_px = top_px + rows_px + SIDE_PX
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" version="1.1" width="{width_px}" height="{height_px}"'
        f' viewBox="0 0 {width_px} {height_px}" role="figure" aria-labelledby="graph-title graph-desc"'
        f' data-total="{total}" data-unit="{_attribute(graph.unit)}" data-side="{SIDE_PX}" data-char="{CHAR_PX}"'
        f' data-icicle="{int(icicle)}">'
    )
    parts = [
        opening,
        f'<title id="graph-title">{_text(graph.title)}</title>',
        f'<desc id="graph-desc">{_text(" ".join(head.lines))}</desc>',
        f"<style>{_asset('flame_graph.css')}</style>",
        '<rect class="page" width="100%" height="100%"/>',
        '<g id="frames">',
    ]
    for box in boxes:
        row = box.depth if icicle else deepest - box.depth
        parts.append(_frame(tree, box, total, inner_px, top_px + row * ROW_PX, graph.unit))
    parts += ["</g>", '<g id="head">', *head.elements(width_px), "</g>"]
    parts += [f"<script>{_script()}</script>", "</svg>", ""]
    return "\n".join(parts)


def _wide_enough(tree: CallTree, smallest: float) -> tuple[list[_Box], int, int]:
    """Return the frames to draw, parents before children, and how many and how much weight are left out."""
    offsets = [0] * len(tree.parents)
    depths = call_tree.depths(tree)
    used = [0] * len(tree.parents)  # weight of the children placed so far
    hidden = [0] * len(tree.parents)
    is_drawn = [False] * len(tree.parents)
    is_drawn[call_tree.ROOT] = True
    hidden_frames = hidden_weight = 0
    for node in range(1, len(tree.parents)):
        parent = tree.parents[node]
        offsets[node] = offsets[parent] + used[parent]
        used[parent] += tree.totals[node]
        if is_drawn[parent] and tree.totals[node] > 0 and tree.totals[node] >= smallest:
            is_drawn[node] = True
            continue
        if tree.totals[node] > 0:
            hidden_frames += 1
            if is_drawn[parent]:
                hidden[parent] += tree.totals[node]
                hidden_weight += tree.totals[node]
    boxes = [
        _Box(node, depths[node], offsets[node], tree.totals[node], tree.self_weights[node], hidden[node])
        for node in range(len(is_drawn))
        if is_drawn[node]
    ]
    return boxes, hidden_frames, hidden_weight


def _frame(tree: CallTree, box: _Box, total: int, inner_px: int, y_px: int, unit: str) -> str:
    name, kind = tree.names[box.node], tree.kinds[box.node]
    label = _text(name)
    x_px = SIDE_PX + box.offset * inner_px / total
    w_px = box.total * inner_px / total
    told = f"{amount(box.total, unit)}, {box.total * 100 / total:.2f} %"
    if box.own and box.own != box.total:
        told += f"; itself {amount(box.own, unit)}"
    gap_px = 0.5 if w_px > 3 else 0  # between siblings
    hidden = f' data-h="{box.hidden}"' if box.hidden else ""
    return (
        f'<g class="f" data-o="{box.offset}" data-w="{box.total}" data-s="{box.own}" data-d="{box.depth}"{hidden}>'
        f"<title>{label} ({_text(told)})</title>"
        f'<rect x="{x_px:.2f}" y="{y_px}" width="{w_px - gap_px:.2f}" height="{ROW_PX - 1}"'
        f' fill="{colour(name, kind)}"/>'
        f'<text x="{x_px + 3:.2f}" y="{y_px + 12}">{_text(fitting(shown(name), w_px))}</text></g>'
    )


def fitting(name: str, width_px: float) -> str:
    """Return as much of a name as fits: the end of a qualified name, else the beginning."""
    room = int((width_px - 6) / CHAR_PX)
    if len(name) <= room:
        return name
    if room < 3:
        return ""
    if "::" in name or "/" in name:
        return "…" + name[len(name) - room + 1 :]
    return name[: room - 1] + "…"


@cache
def colour(name: str, kind: NodeKind) -> str:
    """Return a frame's colour: the hue tells its kind, the shade follows from a hash of its name alone."""
    hue, saturation, lightness, hue_range, lightness_range = _PALETTE[kind]
    digest = zlib.crc32(encode(name))
    hue += (digest & 0xFF) * hue_range // 255 - hue_range // 2
    lightness += ((digest >> 8) & 0xFF) * lightness_range // 255 - lightness_range // 2
    return f"hsl({hue % 360},{saturation}%,{lightness}%)"


def amount(value: int, unit: str) -> str:
    """Return a weight for people: `12.3 s`, `1,234 samples`."""
    if unit != "ns":
        return f"{value:,} {unit}" if unit else f"{value:,}"
    for scale, name in ((10**9, "s"), (10**6, "ms"), (10**3, "us")):
        if value >= scale:
            hundredths = (value * 100 + scale // 2) // scale
            return f"{hundredths // 100:,}.{hundredths % 100:02d} {name}"
    return f"{value} ns"


class _Head:
    """Title, subtitle, warnings, legend and controls above the frames."""

    def __init__(
        self,
        graph: FlameGraph,
        tree: CallTree,
        inverted: bool,
        hidden_frames: int,
        hidden_weight: int,
        kinds: set[NodeKind],
    ) -> None:
        total = tree.totals[call_tree.ROOT]
        self.title = shown(graph.title) or "flame graph"
        told = [
            f"{shown(graph.event)}: {amount(total, graph.unit)} in {graph.samples:,} samples, by {graph.weight}"
        ]
        if inverted:
            told.append("inverted: from the innermost function outwards")
        told += [shown(words) for words in graph.filters]
        told.append(shown(graph.clock) or "no times")
        told.append(f"unknown frames {graph.unknown_share * 100:.1f} %")
        told += [shown(note) for note in graph.notes]
        told += [loss.describe() for loss in graph.losses if loss.severity == "info"]
        if hidden_frames:
            told.append(
                f"{hidden_frames:,} frames too narrow to draw ({hidden_weight * 100 / total:.2g} % of the weight)"
            )
        self.lines = textwrap.wrap(" · ".join(told), _WRAP_CHARS)
        self.warnings = [shown(loss.describe()) for loss in graph.losses if loss.severity != "info"]
        if graph.unknown_share > _UNKNOWN_SHARE_TO_WARN:
            self.warnings.append(
                f"{graph.unknown_share * 100:.0f} % of the weight is in frames without a symbol: install debug symbols"
            )
        self.warnings = [line for told in self.warnings for line in textwrap.wrap(told, _WRAP_CHARS)]
        self.kinds = [kind for kind in _PALETTE if kind in kinds and kind != "process"]

    @property
    def height_px(self) -> int:
        """Return how much room the head takes."""
        return 34 + 16 * len(self.lines) + (18 * len(self.warnings) + 8 if self.warnings else 0) + 62

    def elements(self, width_px: int) -> Iterator[str]:
        """Yield the head's elements; in a browser the head stays in sight while the frames scroll under it."""
        yield f'<rect class="page" width="100%" height="{self.height_px - 4}"/>'
        yield f'<text id="heading" x="{SIDE_PX}" y="22">{_text(self.title)}</text>'
        y_px = 40
        for line in self.lines:
            yield f'<text class="sub" x="{SIDE_PX}" y="{y_px}">{_text(line)}</text>'
            y_px += 16
        if self.warnings:
            size = f'width="{width_px - 2 * SIDE_PX}" height="{18 * len(self.warnings) + 2}"'
            yield f'<rect class="warn" x="{SIDE_PX}" y="{y_px - 11}" {size}/>'
            for line in self.warnings:
                yield f'<text class="warn" x="{SIDE_PX + 6}" y="{y_px + 3}">⚠ {_text(line)}</text>'
                y_px += 18
            y_px += 8
        y_px += 10
        x_px = float(SIDE_PX)
        yield f'<g id="legend" data-y="{y_px - 9}">'
        for kind in self.kinds:
            yield f'<rect x="{x_px:.0f}" y="{y_px - 9}" width="11" height="11" fill="{colour("", kind)}"/>'
            yield f'<text class="sub" x="{x_px + 15:.0f}" y="{y_px}">{kind}</text>'
            x_px += 15 + len(kind) * CHAR_PX + 16
        yield "</g>"
        yield f'<g id="controls" data-x="{x_px:.0f}" data-y="{y_px}"></g>'
        yield f'<text id="details" x="{SIDE_PX}" y="{y_px + 22}"> </text>'


_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _text(text: str) -> str:
    """Return text as XML character data; what XML cannot hold is made visible."""
    return escape(_NOT_XML.sub("�", shown(text[:_NAME_CHARS])))


def _attribute(text: str) -> str:
    return _text(text).replace('"', "&quot;")


@cache
def _asset(name: str) -> str:
    return files("analyzers.render").joinpath(name).read_text("utf-8")


def _script() -> str:
    return "<![CDATA[\n" + _asset("flame_graph.js") + "\n]]>"
