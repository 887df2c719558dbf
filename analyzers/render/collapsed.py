"""Collapsed stacks, the format that every flame graph tool reads: a line per stack, the outermost frame first.

java;start_thread;Interpreter;sys_read 12
"""

from __future__ import annotations

from analyzers import call_tree
from analyzers.flame_graph import FlameGraph
from pipeline.text import encode


def render(graph: FlameGraph) -> bytes:
    """Return one line `frame;frame;... count` per stack that has weight of its own, sorted by bytes."""
    names = graph.tree.names
    counts: dict[str, int] = {}  # frames of one name and different kinds are one line
    for path, weight in call_tree.node_paths(graph.tree):
        line = ";".join([names[node] for node in path])
        counts[line] = counts.get(line, 0) + weight
    return b"".join(sorted(encode(f"{line} {count}\n") for line, count in counts.items()))
