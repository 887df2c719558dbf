"""speedscope's JSON (https://www.speedscope.app/file-format-schema.json): one sampled profile with weights."""

from __future__ import annotations

import json

from analyzers import call_tree
from analyzers.flame_graph import FlameGraph
from pipeline.text import escape, shown

_UNITS = {"ns": "nanoseconds", "bytes": "bytes"}  # what speedscope can format; anything else is 'none'


def render(graph: FlameGraph) -> str:
    """Return a speedscope document; its samples are the stacks, one each, in the tree's order."""
    tree = graph.tree
    numbers: dict[str, int] = {}
    number_of = [numbers.setdefault(name, len(numbers)) for name in tree.names[1:]]
    samples, weights = [], []
    for path, weight in call_tree.node_paths(tree):
        samples.append([number_of[node - 1] for node in path])
        weights.append(weight)
    document = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": "flameslice",
        "name": shown(graph.title),
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": escape(name)} for name in numbers]},
        "profiles": [
            {
                "type": "sampled",
                "name": shown(graph.event),
                "unit": _UNITS.get(graph.unit, "none"),
                "startValue": 0,
                "endValue": tree.totals[call_tree.ROOT],
                "samples": samples,
                "weights": weights,
            }
        ],
    }
    return json.dumps(document, separators=(",", ":")) + "\n"
