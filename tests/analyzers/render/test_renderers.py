"""One contract over all renderers of flame graphs, and what the SVG does in a browser."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import tempfile
import urllib.parse
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers import flame_graph
from analyzers.flame_graph import FlameGraph
from analyzers.render import collapsed, json_tree, speedscope, svg
from collectors import speedscope as speedscope_reader
from collectors.source import Source
from pipeline.folds import Fold
from pipeline.losses import Loss
from pipeline.stacks import Frame, FrameKind

RENDERERS: dict[str, Callable[[FlameGraph], str | bytes]] = {
    "svg": svg.render,
    "collapsed": collapsed.render,
    "speedscope": speedscope.render,
    "json": json_tree.render,
}
HOSTILE = [
    "<script>document.title='owned'</script>",
    "]]>",
    "-->",
    "\"'&<>",
    "\x00\x01\x1b[31m\x7f",
    "\udcff\udcfe",
    "\u202egpj.exe",
    "x" * 33_000,
    "a\nb",
    "f (12.00 %)",
    "\ufffe\uffff",
    "",
]
Stack = tuple[str, list[tuple[str, FrameKind]], int]


def graph_of(*stacks: Stack, event: str = "cpu-clock") -> FlameGraph:
    fold = Fold()
    for process, frames, weight in stacks:
        node = fold.trie.add([Frame(name, "", kind) for name, kind in frames])
        fold.add(event, process, node, 1, weight)
    return flame_graph.from_fold(fold, title="a title")


def frames_of(text: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(text)
    return [each for each in root.iter("{http://www.w3.org/2000/svg}g") if each.get("class") == "f"]


@pytest.mark.parametrize("name", RENDERERS)
def test_any_name_and_any_weight_can_be_drawn(name: str) -> None:
    graph = graph_of(*((each or "p", [(each, "user"), ("leaf", "kernel")], 2**70) for each in HOSTILE))
    first, again = RENDERERS[name](graph), RENDERERS[name](graph)
    assert first == again
    if name == "svg":
        assert len(frames_of(str(first))) > len(HOSTILE)
    elif name != "collapsed":
        json.loads(first)
        str(first).encode("utf-8")


@given(st.lists(st.text(alphabet=st.characters(), max_size=30), min_size=1, max_size=4))
def test_the_svg_is_well_formed_whatever_the_names_hold(names: list[str]) -> None:
    text = svg.render(graph_of((names[0], [(name, "user") for name in names], 5)))
    root = ElementTree.fromstring(text.encode("utf-8"))
    scripts = list(root.iter("{http://www.w3.org/2000/svg}script"))
    assert len(scripts) == 1
    urls = re.findall(r"(?:https?:)?//[\w.]+", re.sub(r'xmlns(?::\w+)?="[^"]*"', "", text))
    assert set(urls) <= {"http://www.w3.org"} or any("//" in name for name in names)


def test_what_speedscope_is_given_reads_back_the_same(tmp_path: Path) -> None:
    graph = graph_of(("p q", [("f", "user"), ("g", "kernel")], 7), ("p q", [("f", "user")], 5))
    path = tmp_path / "x.json"
    path.write_text(speedscope.render(graph))
    with Source.open_path(str(path)) as source:
        fold = speedscope_reader.fold(source)
    assert collapsed.render(flame_graph.from_fold(fold)) == collapsed.render(graph) == b"p_q;f 5\np_q;f;g 7\n"


def test_the_subtitle_tells_what_was_asked_and_lost() -> None:
    graph = dataclasses.replace(
        graph_of(("p", [("f", "user")], 1_500_000_000)),
        filters=("pid 7", "from 1s"),
        clock="monotonic clock",
        losses=(Loss("kernel_lost", 40), Loss("skipped_record", 3)),
        unknown_share=0.5,
        notes=("recorded with preset cpu",),
    )
    words = " ".join(" ".join(ElementTree.fromstring(svg.render(graph)).itertext()).split())
    for said in (
        "a title",
        "cpu-clock: 1.50 s in 1 samples, by period",
        "pid 7",
        "from 1s",
        "monotonic clock",
        "recorded with preset cpu",
        "3 PERF_RECORD lines",
        "⚠ 40 events that the kernel lost",
        "50 % of the weight is in frames without a symbol",
    ):
        assert said in words


def test_frames_too_narrow_to_see_are_counted_not_drawn() -> None:
    few = [("p", [("wide", "user")], 10**6), *(("p", [(f"narrow{at}", "user")], 1) for at in range(50))]
    text = svg.render(graph_of(*few))  # type: ignore[arg-type]
    names = [each[0].text or "" for each in frames_of(text)]
    assert len(names) == 3
    assert "50 frames too narrow to draw (0.005 % of the weight)" in text


def test_colours_follow_from_name_and_kind_alone() -> None:
    assert svg.colour("main", "user") == svg.colour("main", "user")
    kinds: list[FrameKind] = ["user", "kernel", "jit", "inlined", "python", "gpu"]
    assert len({svg.colour("main", kind) for kind in kinds}) == len(kinds)


def test_the_root_is_at_the_bottom_unless_an_icicle_is_asked_for() -> None:
    graph = graph_of(("p", [("f", "user")], 1))

    def rows(text: str) -> list[float]:
        return [float(each[1].get("y") or 0) for each in frames_of(text)]

    assert rows(svg.render(graph)) == sorted(rows(svg.render(graph)), reverse=True)
    assert rows(svg.render(graph, icicle=True)) == sorted(rows(svg.render(graph, icicle=True)))
    inverted = [each[0].text or "" for each in frames_of(svg.render(graph, inverted=True))]
    assert [name.partition(" (")[0] for name in inverted] == ["all", "f", "p"]


def test_thousands_of_levels_are_drawn() -> None:
    deep: list[tuple[str, FrameKind]] = [("f", "user")] * 3000
    assert len(frames_of(svg.render(graph_of(("p", deep, 1))))) == 3002


# in a browser


def in_browser(chromium: str, text: str, fragment: dict[str, str]) -> ElementTree.Element:
    """Return the document as Chromium has it after its script ran."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "graph.svg"
        page.write_text(text)
        options = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync"
        done = subprocess.run(
            [
                chromium,
                *options.split(),
                f"--user-data-dir={folder}/profile",
                "--virtual-time-budget=3000",
                "--window-size=1218,700",
                "--dump-dom",
                f"{page.as_uri()}#{urllib.parse.urlencode(fragment)}",
            ],
            capture_output=True,
            timeout=100,
            check=True,
        )
    dom = done.stdout.decode()
    return ElementTree.fromstring(dom[dom.index("<svg") :].strip())


GRAPH = graph_of(
    ("p", [("main", "user"), ("work", "user"), ("work", "user")], 60),
    ("p", [("main", "user"), ("rest", "kernel")], 20),
    ("q", [("<b onmouseover='x'>work</b>", "jit")], 20),
)


def shown_frames(root: ElementTree.Element) -> dict[str, tuple[float, str]]:
    """Return width and class of the frames that can be seen, by name."""
    found = {}
    for each in root.iter("{http://www.w3.org/2000/svg}g"):
        kind = each.get("class") or ""
        if kind.split(" ")[0] == "f" and "off" not in kind.split(" "):
            found[(each[0].text or "").rpartition(" (")[0]] = (float(each[1].get("width") or 0), kind)
    return found


@pytest.mark.xdist_group("chromium")
def test_a_zoomed_link_opens_zoomed(chromium: str) -> None:
    text = svg.render(GRAPH)
    names = [(each[0].text or "").rpartition(" (")[0] for each in frames_of(text)]
    root = in_browser(chromium, text, {"zoom": str(names.index("main"))})
    assert root.get("data-ready") == "1"
    frames = shown_frames(root)
    assert set(frames) == {"all", "p", "main", "work", "rest"}
    inner = frames["all"][0]
    assert frames["main"] == (inner, "f")
    assert frames["p"] == (inner, "f parent")
    assert frames["rest"][0] == pytest.approx(inner / 4, abs=0.5)


@pytest.mark.xdist_group("chromium")
def test_a_search_counts_each_stack_once(chromium: str) -> None:
    root = in_browser(chromium, svg.render(GRAPH), {"search": "^work|<b"})
    words = "".join(root.itertext())
    assert "80.00 % matched (80 ns, 3 frames)" in words
    assert sum("hit" in kind for _, kind in shown_frames(root).values()) == 2


@pytest.mark.xdist_group("chromium")
def test_a_broken_search_is_said_and_hostile_names_run_nothing(chromium: str) -> None:
    hostile = graph_of(*((each or "p", [(each, "user")], 5) for each in HOSTILE))
    root = in_browser(chromium, svg.render(hostile), {"search": "("})
    assert root.get("data-ready") == "1"
    assert "not a regular expression" in "".join(root.itertext())
    title = root.find("{http://www.w3.org/2000/svg}title")
    assert title is not None
    assert title.text == "a title"
