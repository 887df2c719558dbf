"""Builds call trees from stacks and takes them apart again: merge, invert, depth. Never recursive: stacks can be deep.

A path is a tuple of (name, kind), the outermost frame first; frames of one name and different kinds stay apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from analyzers.flame_graph import CallTree, NodeKind, Path
from pipeline.text import encode

NamedFrame = tuple[str, NodeKind]

ROOT = 0
ROOT_FRAME: NamedFrame = ("all", "process")


class _Numbers(dict[NamedFrame, int]):
    """Numbers frames in order of first appearance; `map(numbers.__getitem__, path)` runs at the speed of C."""

    def __missing__(self, frame: NamedFrame) -> int:
        number = self[frame] = len(self)
        return number


def build(stacks: Iterable[tuple[Path, int]]) -> CallTree:
    """Return the call tree of (path, weight) pairs: equal paths merged, depth first, siblings by name bytes."""
    numbers = _Numbers()
    weights: dict[tuple[int, ...], int] = {}
    for path, weight in stacks:
        key = tuple(map(numbers.__getitem__, path))
        weights[key] = weights.get(key, 0) + weight

    frames = sorted(numbers, key=lambda frame: (encode(frame[0]), frame[1]))
    ranks = [0] * len(frames)
    for rank, frame in enumerate(frames):
        ranks[numbers[frame]] = rank
    ranked = sorted((tuple(map(ranks.__getitem__, key)), weight) for key, weight in weights.items())
    return _from_sorted(frames, ranked)


def _from_sorted(frames: list[NamedFrame], ranked: list[tuple[tuple[int, ...], int]]) -> CallTree:
    """Return the tree of paths (of ranks in frames) in ascending order: each shares a prefix with the one before."""
    ranks, parents, self_weights = [-1], [-1], [0]
    open_nodes = [ROOT]  # the nodes of the path before, the root first
    before: tuple[int, ...] = ()
    for path, weight in ranked:
        shared = _shared_length(before, path)
        del open_nodes[shared + 1 :]
        for rank in path[shared:]:
            parents.append(open_nodes[-1])
            open_nodes.append(len(ranks))
            ranks.append(rank)
            self_weights.append(0)
        self_weights[open_nodes[-1]] += weight
        before = path

    totals = self_weights.copy()
    for node in range(len(totals) - 1, ROOT, -1):
        totals[parents[node]] += totals[node]
    found = [ROOT_FRAME, *(frames[rank] for rank in ranks[1:])]
    return CallTree([name for name, _ in found], [kind for _, kind in found], parents, self_weights, totals)


def _shared_length(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    for at, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return at
    return min(len(left), len(right))


def node_paths(tree: CallTree) -> Iterator[tuple[list[int], int]]:
    """Return (nodes from the outermost frame to the leaf, weight) of every node that has weight of its own.

    The list is the same one each time: copy what must outlive the step. A weight on the root has the empty path.
    """
    path: list[int] = []
    for node, (parent, weight) in enumerate(zip(tree.parents, tree.self_weights, strict=True)):
        while path and path[-1] != parent:
            path.pop()
        if not path and parent > ROOT:  # the tree is not stored depth first
            while parent > ROOT:
                path.append(parent)
                parent = tree.parents[parent]
            path.reverse()
        if node != ROOT:
            path.append(node)
        if weight:
            yield path, weight


def stacks(tree: CallTree) -> Iterator[tuple[Path, int]]:
    """Return the (path, weight) pairs that `build` makes the tree of."""
    frames = list(zip(tree.names, tree.kinds, strict=True))
    for path, weight in node_paths(tree):
        yield tuple([frames[node] for node in path]), weight


def invert(tree: CallTree) -> CallTree:
    """Return the bottom-up tree: leaves next to the root, their callers above them; inverting twice changes nothing."""
    return build((path[::-1], weight) for path, weight in stacks(tree))


def depths(tree: CallTree) -> list[int]:
    """Return how many frames lie between each node and the root: 0 for the root itself."""
    found = [0] * len(tree.parents)
    for node in range(1, len(found)):
        found[node] = found[tree.parents[node]] + 1
    return found


def depth(tree: CallTree) -> int:
    """Return the number of frames of the deepest stack."""
    return max(depths(tree))
