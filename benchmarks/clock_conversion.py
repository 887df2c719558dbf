"""Measures how many times a second the clock graph converts, each with its uncertainty."""

from __future__ import annotations

import random
import time

import polars as pl

from pipeline.clock_anchors import sort_out
from pipeline.clock_domains import Domain, TimeConversion
from pipeline.clock_maps import Anchor, RateModel
from pipeline.clocks import ClockGraph, Edge

ROWS = 5_000_000
RUNS = 5
_SECOND = 1_000_000_000
_START = 10**15


def graph(seconds: int) -> ClockGraph:
    """Return perf's clock tied to ktime once a second, and the TSC to perf's clock."""
    generator = random.Random(1)
    anchors, y = [], 5 * _START
    for second in range(seconds):
        anchors.append(Anchor(_START + second * _SECOND, y, 50))
        y += _SECOND + generator.randint(-400, 400)
    model = RateModel(lone_ppb=500_000, wander_ppb=1000)
    tsc, perf, monotonic = (Domain(clock) for clock in ("tsc", "perf", "monotonic"))
    return ClockGraph(
        [
            Edge.of_anchors(perf, monotonic, sort_out(anchors, model)),
            Edge.of_conversion(tsc, perf, TimeConversion(31, 933_678_325, 0)),
        ]
    )


def report() -> None:
    """Print a Markdown table of conversions a second."""
    tied = graph(600)
    generator = random.Random(2)
    rows = [_START + generator.randrange(600 * _SECOND) for _ in range(ROWS)]
    values = pl.Series("time", rows, dtype=pl.Int64)
    ordered, ticks = values.sort(), (values.sort() - _START) * 23 // 10
    perf, monotonic, tsc = (Domain(clock) for clock in ("perf", "monotonic", "tsc"))
    outside = ordered + 601 * _SECOND
    print("| conversion, with the uncertainty of each | million a second |\n|---|---|")
    for name, column, source, target in (
        ("through 600 anchors, in order", ordered, perf, monotonic),
        ("through 600 anchors, in no order", values, perf, monotonic),
        ("through one segment", outside, perf, monotonic),
        ("TSC by the kernel's formula", ticks, tsc, perf),
    ):
        seconds = []
        for _ in range(RUNS):
            before = time.perf_counter()
            tied.convert(column, source, target)
            seconds.append(time.perf_counter() - before)
        print(f"| {name} | {ROWS / min(seconds) / 1e6:.0f} |")


if __name__ == "__main__":
    report()
