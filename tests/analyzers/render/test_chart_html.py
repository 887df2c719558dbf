"""The flame chart's page: it needs nothing else, names stay names, and a browser draws it."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import itertools
import json
import math
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from analyzers.chart_cells import Cells
from analyzers.chart_shares import STATES, Shares
from analyzers.flame_chart import FlameChart, Lane, Overview
from analyzers.render import chart_colours, chart_figure, chart_html
from pipeline.losses import Loss

# one microsecond after 2**53 ns: a float does not hold these times
BASE_SLICE = 90_071_992_549
EVIL = [
    "</script><script>document.title='hacked'</script>",
    "<img src=x onerror=\"document.title='hacked'\">",
    "std::vector<b>::push_back & 'co' \"quoted\"",
    "${title} $data $",
    "line\nfeed\ttab\x00nul \u2028 \x1b[31m",
    "caf\udce9 \ud800 \u202e",
    "%{x} {{brace}} <!-- ",
]


def lane(tid: int, comm: str = "decode") -> Lane:
    """A lane of three slices: every name on one stack for two of them, then nothing."""
    count = len(EVIL)
    return Lane(
        tid,
        7,
        comm,
        Cells(range(count), [BASE_SLICE] * count, [2] * count, range(count), ["user"] * count),
        Shares([60_000, 0, 0], [0, 30_000, 0], [0, 0, 0], [0, 0, 0], [40_000, 20_000, 0]),
    )


def chart(**changes: Any) -> FlameChart:
    one = FlameChart(
        width_ns=100_000,
        first_slice=BASE_SLICE,
        slices=3,
        origin_ns=BASE_SLICE * 100_000 - 1_234_567,
        end_ns=BASE_SLICE * 100_000 + 300_000,
        lanes=(lane(7),),
        names=tuple(EVIL),
        overview=Overview(100_000, BASE_SLICE, lane(7).shares),
        captured=frozenset({"cpu", "off_cpu", "dma_wait"}),
        chosen="the whole capture",
        lanes_left_out=0,
    )
    return dataclasses.replace(one, **changes)


class Page(HTMLParser):
    """The tags of a page with their attributes, the text of each script, and the text outside them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._in = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            self.scripts[-1] += data
        elif self._in != "style":
            self.text += data


@pytest.fixture(scope="module")
def page() -> Page:
    rendered = chart_html.render(
        chart(losses=(Loss("unmatched_end", 3, 14, "<b>odd</b>"),), notes=("a note & more",)),
        EVIL[0],
        " ".join(EVIL),
    )
    return Page(rendered)


# ------------------------------------------------------------------ safe and self-contained


def test_names_never_become_markup(page: Page) -> None:
    allowed = {"html", "head", "meta", "title", "style", "body", "header", "h1", "p", "span", "i"}
    assert {tag for tag, _ in page.tags} == allowed | {"noscript", "div", "pre", "script"}
    assert len(page.scripts) == 4
    assert page.text.count("document.title='hacked'") == 4  # title twice, and two names in the subtitle


def test_nothing_is_fetched(page: Page) -> None:
    attributes = {name for _, attrs in page.tags for name in attrs}
    assert attributes <= {"lang", "charset", "http-equiv", "content", "name", "style", "class", "id", "type"}


def test_the_policy_lets_only_the_two_scripts_run(page: Page) -> None:
    [policy] = [attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv")]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in page.scripts[2:]]
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{digests[0]}' 'sha256-{digests[1]}'; "
        "style-src 'unsafe-inline'; img-src data: blob:"
    )
    assert "plotly.js v" in page.scripts[2][:200]


def test_data_reach_the_script_whole(page: Page) -> None:
    for text in page.scripts[:2]:
        assert text.isascii()
        assert not set("<>&") & set(text)
    data = json.loads(page.scripts[1])
    assert data["names"] == [
        EVIL[0],
        EVIL[1],
        EVIL[2],
        EVIL[3],
        "line\\x0afeed\\x09tab\\x00nul \\u2028 \\x1b[31m",
        "caf\\xe9 \\ud800 \\u202e",
        EVIL[6],
    ]
    assert data["first_slice"] == str(BASE_SLICE)
    assert data["origin_ns"] == str(BASE_SLICE * 100_000 - 1_234_567)
    [drawn] = data["lanes"]
    assert (drawn["first"][0], drawn["count"][0]) == (0, 2)
    assert drawn["shares"]["dma_wait"] == [60_000, 0, 0]


# ------------------------------------------------------------------ what it says


def test_the_page_says_what_is_shown_and_what_was_lost(page: Page) -> None:
    assert "Shown: 3 slices of 100 µs from 1.234567 ms on: the whole capture" in page.text
    assert "a note & more" in page.text
    assert "Lost: 3 ends without a begin in the capture (first at line 14: '<b>odd</b>')" in page.text
    assert "not captured at all: system call" in page.text


def test_threads_that_are_not_shown_are_counted() -> None:
    text = Page(chart_html.render(chart(lanes_left_out=5), "x", "")).text
    assert "1 of 6 threads are shown, the busiest; --tid shows others" in text


def test_the_longest_wait_is_told_with_its_place() -> None:
    waiting = Lane(
        9,
        9,
        "reader",
        Cells([0, 1], [BASE_SLICE, BASE_SLICE], [3, 3], [0, 1], ["user", "state"]),
        Shares([90_000] * 3, [0] * 3, [0] * 3, [0] * 3, [0] * 3),
    )
    shown = chart(lanes=(waiting,), names=("load", "[DMA wait: 259,0]"))
    text = Page(chart_html.render(shown, "x", "")).text
    assert (
        "Longest waits shown: reader (tid 9) [DMA wait: 259,0] about 300 µs from 1.234567 ms under load"
        in text
    )


def test_a_lane_says_how_its_time_was_shared_out(page: Page) -> None:
    [drawn] = json.loads(page.scripts[1])["lanes"]
    assert drawn["label"] == "decode (tid 7)"
    assert drawn["title"] == (
        "decode (tid 7): not captured 50.0%, DMA wait 20.0%, on a CPU 20.0%, blocked 10.0%"
    )


def test_a_share_never_rounds_to_nothing() -> None:
    thin = dataclasses.replace(
        lane(7), shares=Shares([1, 0, 0], [0] * 3, [0] * 3, [0] * 3, [99_999, 100_000, 100_000])
    )
    [drawn] = json.loads(Page(chart_html.render(chart(lanes=(thin,)), "x", "")).scripts[1])["lanes"]
    assert drawn["title"].endswith("on a CPU 100.0%, DMA wait below 0.1%")


# ------------------------------------------------------------------ the figure


def test_each_lane_has_its_stacks_and_its_shares() -> None:
    figure = chart_figure.build(chart(lanes=(lane(7), lane(8))))
    parts = [(trace.meta["role"], trace.meta["lane"], trace.meta.get("state")) for trace in figure.data]
    shares = ["cpu", "runnable", "blocked", "dma_wait", "not_captured"]  # system calls were not captured
    assert parts == [
        *(("overview", 0, state) for state in shares),
        *(
            part
            for number in (0, 1)
            for part in (
                ("heat", number, None),
                ("borders", number, None),
                ("labels", number, None),
                *(("shares", number, state) for state in shares),
            )
        ),
    ]
    assert figure.layout.xaxis3.matches == "x2"


def test_the_parts_of_the_page_do_not_overlap() -> None:
    figure = chart_figure.build(chart(lanes=tuple(lane(tid) for tid in range(16))))
    domains = [
        figure.layout[key].domain for key in figure.to_plotly_json()["layout"] if key.startswith("yaxis")
    ]
    domains.sort(reverse=True)
    assert len(domains) == 1 + 2 * 16
    assert all(upper[0] > lower[1] for upper, lower in itertools.pairwise(domains))
    assert domains[0][1] <= 1
    assert domains[-1][0] >= 0


def test_a_deep_lane_gets_lower_rows_instead_of_an_endless_page() -> None:
    deep = dataclasses.replace(lane(7), cells=Cells([799], [BASE_SLICE], [1], [0], ["user"]))
    assert chart_figure.rows_of(deep) == 800
    assert chart_figure.build(chart(lanes=(deep,))).layout.height < 3_000


# ------------------------------------------------------------------ colours


def shares(**taken_ns: int) -> Shares:
    return Shares(*([taken_ns.get(state, 0)] for state in STATES))


@pytest.mark.parametrize(
    ("taken_ns", "shade"),
    [(100, 0), (75, 0), (74, 1), (50, 1), (49, 2), (25, 2), (24, 3), (1, 3)],
)
def test_the_less_of_a_slice_the_paler(taken_ns: int, shade: int) -> None:
    first = STATES.index("blocked") * 4
    assert chart_colours.class_of(shares(blocked=taken_ns), 0, 100) == first + shade


def test_nothing_captured_is_a_colour_of_its_own() -> None:
    colours = chart_colours.classes()
    assert chart_colours.class_of(shares(), 0, 100) == len(colours) - 1
    assert colours[-1] == chart_colours.NOT_CAPTURED
    assert len(set(colours)) == len(colours)


def test_each_class_lies_in_the_middle_of_its_step() -> None:
    colours = chart_colours.classes()
    scale = chart_colours.stepwise(colours)
    for number, colour in enumerate(colours):
        place = (number + 0.5) / len(colours)  # where plotly puts number between -0.5 and len - 0.5
        below = [shade for at, shade in scale if at < place][-1]
        above = next(shade for at, shade in scale if at > place)
        assert below == above == colour


def linear(colour: str) -> list[float]:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


# Machado, Oliveira and Fernandes 2009, severity 1.0; the first is normal sight
SIGHTS = [
    [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)],
    [(0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)],
    [(0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)],
    [(1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)],
]


def lab(rgb: list[float]) -> tuple[float, float, float]:
    red, green, blue = (min(1.0, max(0.0, channel)) for channel in rgb)
    xyz = (
        (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047,
        0.2126 * red + 0.7152 * green + 0.0722 * blue,
        (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883,
    )
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def test_the_colour_blind_can_tell_the_states_apart() -> None:
    colours = [*chart_colours.HUES.values(), chart_colours.NOT_CAPTURED]
    for sight in SIGHTS:
        seen = []
        for colour in colours:
            rgb = linear(colour)
            seen.append(lab([sum(m * c for m, c in zip(row, rgb, strict=True)) for row in sight]))
        pairs = [(one, other) for at, one in enumerate(seen) for other in seen[:at]]
        assert min(math.dist(one, other) for one, other in pairs) > 20


def test_black_letters_can_be_read_on_every_colour() -> None:
    for colour in chart_colours.classes():
        red, green, blue = linear(colour)
        assert (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05) / 0.05 >= 4.5  # WCAG 2 AA


# ------------------------------------------------------------------ in a browser

PROBE = """
<script>
const move = (type, x, y) => document.elementFromPoint(x, y).dispatchEvent(
  new MouseEvent(type, {clientX: x, clientY: y, bubbles: true, view: window}));
setTimeout(() => {
  const plot = document.getElementById("chart"), full = plot._fullLayout;
  const box = plot.getBoundingClientRect();
  const x = box.left + full.xaxis2._offset + full.xaxis2._length / 6;
  const y = box.top + full.yaxis2._offset + full.yaxis2._length / 14 * 5;  // the third of seven rows
  move("mousemove", x, y);
  setTimeout(() => {
    for (const type of ["mousedown", "mouseup", "click"]) move(type, x, y);
    const hover = document.querySelector(".hoverlayer").textContent;
    setTimeout(() => { document.body.dataset.hover = hover; }, 300);
  }, 500);
}, 1500);
</script>
</body>"""


def draw(chromium: str, page: str, folder: Path) -> str:
    """Return the page as a browser leaves it."""
    file = folder / "page.html"
    file.write_text(page, "utf-8")
    quiet = [
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-quic",
    ]
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", *quiet]
    command += [
        f"--user-data-dir={folder / 'profile'}",
        "--virtual-time-budget=8000",
        "--window-size=1400,1200",
    ]
    run = subprocess.run(
        [*command, "--dump-dom", file.as_uri()], capture_output=True, timeout=120, stdin=subprocess.DEVNULL
    )
    return run.stdout.decode("utf-8", "replace")


def visible(dom: str) -> str:
    return Page(dom).text


def test_a_browser_draws_the_page_under_its_policy(chromium: str, tmp_path: Path) -> None:
    dom = draw(chromium, chart_html.render(chart(), "x", ""), tmp_path)
    assert '<body class="drawn">' in dom
    assert "<title>x</title>" in dom
    text = visible(dom)
    assert "std::vector<b>::push_back & 'co' \"quoted\"" in text  # a label, as text and whole
    assert "decode (tid 7): not captured 50.0%" in text
    assert "time since the first event (µs)" in text


def test_pointing_and_clicking_tell_all_of_a_cell(chromium: str, tmp_path: Path) -> None:
    page = re.sub(r"<meta http-equiv[^>]*>", "", chart_html.render(chart(), "x", ""))
    dom = draw(chromium, page.replace("</body>", PROBE), tmp_path)
    parsed = Page(dom)
    assert "<title>x</title>" in dom  # no name ran, without the policy either
    [body] = [attrs for tag, attrs in parsed.tags if tag == "body"]
    start_ns = BASE_SLICE * 100_000
    told = "slice 90071992549: 1.234567 ms, absolute " + str(start_ns) + " ns"
    assert "std::vector<b>::push_back & 'co'" in (body.get("data-hover") or "")
    assert told in (body.get("data-hover") or "")
    [details] = [attrs for _, attrs in parsed.tags if attrs.get("id") == "details"]
    assert details["class"] == "kept"
    assert told in parsed.text
    assert "DMA wait 60.0 %, on a CPU 40.0 %" in parsed.text
    assert f"stack: {EVIL[0]} > {EVIL[1]} > {EVIL[2]} > " in parsed.text
