"""The flame graph as one JSON document for scripts: what was asked, counted and lost, then the nodes, one a line.

jq -r '.nodes[] | select(.self > 0) | "\\(.self)\\t\\(.name)"' graph.json
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from analyzers import call_tree
from analyzers.flame_graph import FlameGraph
from pipeline.losses import REASONS, Loss
from pipeline.text import escape, shown

SCHEMA_VERSION = "1.0"


def render(graph: FlameGraph) -> str:
    """Return the document: node 0 is the root, `parent` is an index of `nodes`, names are escaped as in tables."""
    head = {
        "schema_version": SCHEMA_VERSION,
        "title": shown(graph.title),
        "event": shown(graph.event),
        "weight": graph.weight,
        "unit": shown(graph.unit),
        "total": graph.tree.totals[call_tree.ROOT],
        "samples": graph.samples,
        "filters": [shown(words) for words in graph.filters],
        "clock": shown(graph.clock),
        "unknown_share": graph.unknown_share,
        "losses": [_loss(loss) for loss in graph.losses],
        "notes": [shown(note) for note in graph.notes],
    }
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    return "{\n" + ",\n".join(lines) + ',\n"nodes": [\n' + ",\n".join(_nodes(graph)) + "\n]\n}\n"


def _loss(loss: Loss) -> dict[str, str | int | None]:
    return {
        "reason": loss.reason,
        "text": REASONS[loss.reason].text,
        "count": loss.count,
        "severity": loss.severity,
        "first_line": loss.first_line,
        "example": shown(loss.example),
    }


def _nodes(graph: FlameGraph) -> Iterator[str]:
    tree = graph.tree
    quoted = {name: json.dumps(escape(name)) for name in set(tree.names)}
    depths = call_tree.depths(tree)
    for node, name in enumerate(tree.names):
        parent = tree.parents[node] if node else "null"
        yield (
            f'{{"id": {node}, "parent": {parent}, "depth": {depths[node]}, "kind": "{tree.kinds[node]}", '
            f'"self": {tree.self_weights[node]}, "total": {tree.totals[node]}, "name": {quoted[name]}}}'
        )
