"""Call trees from paths and from folds: what they conserve, and that both ways give the same tree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers import call_tree, flame_graph
from analyzers.call_tree import Path
from analyzers.render import collapsed
from pipeline.errors import InputError, UsageError
from pipeline.folds import Fold
from pipeline.stacks import Frame

NAMES = st.sampled_from(["a", "b", "c d", "é", "\udcff", "main", "[unknown]"])
STACKS = st.lists(
    st.tuples(st.lists(NAMES, min_size=1, max_size=6), st.integers(1, 2**70)), min_size=1, max_size=12
)


def paths_of(stacks: list[tuple[list[str], int]]) -> list[tuple[Path, int]]:
    return [
        (tuple((name, "process" if at == 0 else "user") for at, name in enumerate(names)), weight)
        for names, weight in stacks
    ]


def fold_of(stacks: list[tuple[list[str], int]]) -> Fold:
    fold = Fold()
    for (process, *names), weight in stacks:
        fold.add("cpu-clock", process, fold.trie.add([Frame(name) for name in names]), 1, weight)
    return fold


@given(STACKS)
def test_totals_conserve_the_weight(stacks: list[tuple[list[str], int]]) -> None:
    tree = call_tree.build(paths_of(stacks))
    total = sum(weight for _, weight in stacks)
    assert tree.totals[0] == sum(tree.self_weights) == total
    for node in range(len(tree.parents)):
        below = sum(
            tree.totals[child] for child in range(1, len(tree.parents)) if tree.parents[child] == node
        )
        assert tree.totals[node] == tree.self_weights[node] + below
        assert tree.parents[node] < node


@given(STACKS)
def test_inverting_keeps_the_total_and_twice_changes_nothing(stacks: list[tuple[list[str], int]]) -> None:
    tree = call_tree.build(paths_of(stacks))
    inverted = call_tree.invert(tree)
    assert inverted.totals[0] == tree.totals[0]
    assert call_tree.invert(inverted) == tree


@given(STACKS)
def test_a_fold_and_its_folded_lines_tell_the_same(stacks: list[tuple[list[str], int]]) -> None:
    wanted: dict[str, int] = {}
    for (process, *names), weight in stacks:
        line = ";".join([process.replace(" ", "_"), *names])
        wanted[line] = wanted.get(line, 0) + weight
    lines = collapsed.render(flame_graph.from_fold(fold_of(stacks))).splitlines()
    assert lines == sorted(
        f"{line} {weight}".encode("utf-8", "surrogateescape") for line, weight in wanted.items()
    )


def test_a_stack_of_many_thousand_frames_is_no_trouble() -> None:
    deep = [(["p", *["f"] * 20_000], 3)]
    graph = flame_graph.from_fold(fold_of(deep))
    assert call_tree.depth(graph.tree) == 20_001
    assert call_tree.depth(call_tree.invert(graph.tree)) == 20_001


def test_the_event_of_the_first_sample_is_drawn() -> None:
    fold = Fold()
    node = fold.trie.add([Frame("f")])
    fold.add("cpu-clock:u", "p", node, 2, 2_000_000)
    fold.add("page-faults", "p", node, 5, 9)
    graph = flame_graph.from_fold(fold)
    assert (graph.event, graph.unit, graph.samples, graph.tree.totals[0]) == (
        "cpu-clock:u",
        "ns",
        2,
        2_000_000,
    )
    faults = flame_graph.from_fold(fold, event="page-faults")
    assert (faults.unit, faults.tree.totals[0]) == ("page-faults", 9)
    counted = flame_graph.from_fold(fold, event="all", weight="samples")
    assert (counted.unit, counted.tree.totals[0]) == ("samples", 7)
    with pytest.raises(UsageError, match="no event 'cycles'"):
        flame_graph.from_fold(fold, event="cycles")


def test_the_share_of_unknown_frames_is_told() -> None:
    fold = Fold()
    fold.add("cycles", "p", fold.trie.add([Frame("f")]), 1, 30)
    fold.add("cycles", "p", fold.trie.add([Frame("f"), Frame("[unknown]", "/lib/x.so")]), 1, 10)
    assert flame_graph.from_fold(fold).unknown_share == 0.25


def test_nothing_to_draw_says_why() -> None:
    fold = Fold()
    fold.losses.add("kernel_lost", 7)
    with pytest.raises(InputError, match="no samples") as refused:
        flame_graph.from_fold(fold)
    assert "7 events that the kernel lost" in str(refused.value)
    fold.add("cycles", "p", 0, 1, 0)
    with pytest.raises(InputError, match="--weight samples"):
        flame_graph.from_fold(fold)
