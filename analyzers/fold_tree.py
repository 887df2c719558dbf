"""The call tree of a fold, straight from its trie: a frame is spelled once, equal names are merged once per node."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from analyzers import spelling
from pipeline.filters import spelled_comm
from pipeline.folds import Fold
from pipeline.stacks import Frame, StackTrie
from pipeline.text import encode, folded_name

if TYPE_CHECKING:
    from analyzers.flame_graph import CallTree, NodeKind

NO_PROCESS = "[unknown]"
_ROOT = 0


class _SpelledTrie:
    """A trie whose children differ in name: frames that are spelled alike are one."""

    def __init__(self, trie: StackTrie, spell: Callable[[Frame], str]) -> None:
        names = [spell(frame) for frame in trie.frames]
        children: dict[tuple[int, str], int] = {}
        self.names: list[str] = [""]
        self.kinds: list[NodeKind] = ["process"]
        self.parents = [-1]
        self.node_of = [0] * len(trie)  # by node of the trie
        for node in trie.nodes():
            number = trie.frame_of[node]
            key = (self.node_of[trie.parents[node]], names[number])
            known = children.get(key)
            if known is None:
                known = children[key] = len(self.names)
                self.names.append(key[1])
                self.kinds.append(trie.frames[number].kind)
                self.parents.append(key[0])
            self.node_of[node] = known


class _Growing:
    """A call tree while it grows, in no order but parents before children."""

    def __init__(self) -> None:
        self.names = ["all"]
        self.kinds: list[NodeKind] = ["process"]
        self.parents = [-1]
        self.own = [0]

    def add(self, name: str, kind: NodeKind, parent: int) -> int:
        self.names.append(name)
        self.kinds.append(kind)
        self.parents.append(parent)
        self.own.append(0)
        return len(self.own) - 1


def build(fold: Fold, weights: Iterable[tuple[str | None, int, int]]) -> CallTree:
    """Return the call tree of (process, node of the fold's trie, weight) triples.

    The process stands outermost ([unknown] where the file names none); in folded input the first frame is the process.
    """
    growing = _Growing()
    spelled: dict[bool, _SpelledTrie] = {}
    placed: dict[tuple[int, int, bool], int] = {}  # (process node, spelled node, Java spelling) -> node
    processes: dict[str, int] = {}
    for comm, node, weight in weights:
        is_java = not fold.is_folded and spelling.is_java(comm)
        trie = spelled.get(is_java)
        if trie is None:
            spell = (lambda frame: folded_name(frame.symbol)) if fold.is_folded else spelling.speller(comm)
            trie = spelled[is_java] = _SpelledTrie(fold.trie, spell)
        if fold.is_folded:
            base = _ROOT
        else:
            name = NO_PROCESS if comm is None else spelled_comm(comm)
            base = processes.get(name, -1)
            if base < 0:
                base = processes[name] = growing.add(name, "process", _ROOT)
        growing.own[_place(growing, placed, trie, base, trie.node_of[node], is_java)] += weight
    return _ordered(growing)


def _place(
    growing: _Growing,
    placed: dict[tuple[int, int, bool], int],
    trie: _SpelledTrie,
    base: int,
    node: int,
    is_java: bool,
) -> int:
    """Return the tree's node of a spelled node under a process, adding what is missing of its path."""
    missing = []
    while node > 0:
        known = placed.get((base, node, is_java))
        if known is not None:
            break
        missing.append(node)
        node = trie.parents[node]
    else:
        known = base
    for each in reversed(missing):
        kind: NodeKind = "process" if known == _ROOT else trie.kinds[each]
        known = placed[(base, each, is_java)] = growing.add(trie.names[each], kind, known)
    return known


def _ordered(growing: _Growing) -> CallTree:
    """Return the tree depth first, siblings by the bytes of their names, with totals."""
    from analyzers.flame_graph import CallTree

    children: list[list[int]] = [[] for _ in growing.own]
    for node in range(1, len(growing.own)):
        children[growing.parents[node]].append(node)
    order: list[int] = []
    new_parents: list[int] = []
    waiting = [(_ROOT, -1)]
    names = growing.names
    while waiting:
        node, parent = waiting.pop()
        here = len(order)
        order.append(node)
        new_parents.append(parent)
        below = children[node]
        if len(below) > 1:
            below.sort(key=lambda child: encode(names[child]), reverse=True)
        waiting.extend([(child, here) for child in below])
    own = [growing.own[node] for node in order]
    totals = own.copy()
    for at in range(len(order) - 1, 0, -1):
        totals[new_parents[at]] += totals[at]
    return CallTree(
        names=[names[node] for node in order],
        kinds=[growing.kinds[node] for node in order],
        parents=new_parents,
        self_weights=own,
        totals=totals,
    )
