"""Measures speed and memory against peers on the same file in the same run; prints ratios as a Markdown table.

    make bench                                  # records a capture of this machine under load first
    FLAMESLICE_BENCH_TEXT=perf.txt make bench   # measures on that perf script text

Peers are looked for on PATH and in $CARGO_HOME/bin: inferno-collapse-perf (cargo install inferno), flamegraph (cargo
install flamegraph), stackcollapse-perf.pl. One that is missing is said and left out.
"""

from __future__ import annotations

import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import clock_conversion, store_and_log

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "benchmarks/out"
RUNS = 5


@dataclass(frozen=True)
class Result:
    """Medians of one command over all runs."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def measure(commands: dict[str, list[str]]) -> dict[str, Result]:
    """Run commands in turn (A B A B ...), after one run of each that is not counted."""
    walls: dict[str, list[float]] = {name: [] for name in commands}
    cpus: dict[str, list[float]] = {name: [] for name in commands}
    peaks: dict[str, list[float]] = {name: [] for name in commands}
    for run in range(RUNS + 1):
        for name, command in commands.items():
            before = time.perf_counter()
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.perf_counter() - before
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                sys.exit(f"{name} failed with status {process.returncode}")
            if run:
                walls[name].append(wall)
                cpus[name].append(usage.ru_utime + usage.ru_stime)
                peaks[name].append(usage.ru_maxrss / 1024)
    return {
        name: Result(*(statistics.median(column[name]) for column in (walls, cpus, peaks)))
        for name in commands
    }


def tool(name: str) -> str | None:
    """Return the path of a peer, None with a word on standard error where it is not installed."""
    cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "bin"
    found = shutil.which(name) or shutil.which(name, path=str(cargo))
    if found is None:
        print(f"{name} is not installed: left out", file=sys.stderr)
    return found


def text_file() -> Path:
    """Return the perf script text to measure on, recording one where none is given."""
    given = os.environ.get("FLAMESLICE_BENCH_TEXT")
    if given:
        return Path(given)
    text = OUT / "load.txt"
    if not text.exists():
        OUT.mkdir(parents=True, exist_ok=True)
        subprocess.run(["bash", str(ROOT / "benchmarks/record_load.sh"), str(OUT)], check=True)
    return text


def slicing() -> None:
    """Print how many touched slices a second `slices.cut` makes, of many short waits and of a few long ones."""
    import polars as pl

    from pipeline import schema, slices

    def intervals(count: int, length_ns: int, threads: int, span_ns: int) -> pl.DataFrame:
        generator = random.Random(1)
        table = pl.DataFrame(
            {
                "raw_start": [generator.randrange(span_ns) for _ in range(count)],
                "tid": [generator.randrange(threads) for _ in range(count)],
            }
        ).with_columns(
            raw_end=pl.col("raw_start") + length_ns, kind=pl.lit("cpu"), events=pl.lit(1, pl.Int64)
        )
        missing = [
            pl.lit(None, kind).alias(name)
            for name, kind in schema.INTERVALS.items()
            if name not in table.columns
        ]
        return table.with_columns(missing).select(schema.INTERVALS.names()).cast(schema.INTERVALS)

    print("| slicing | slices touched | seconds | million a second |\n|---|---|---|---|")
    for name, table in (
        ("1 million samples of 300 us, 50 threads", intervals(1_000_000, 300_000, 50, 10**10)),
        ("4 waits of a quarter of an hour", intervals(4, 900 * 10**9, 4, 10**9)),
    ):
        seconds = []
        for _ in range(RUNS):
            before = time.perf_counter()
            cut = slices.cut(table, width_ns=100_000)
            seconds.append(time.perf_counter() - before)
        touched = sum(
            (end - 1) // 100_000 - start // 100_000 + 1
            for start, end in table.select("raw_start", "raw_end").iter_rows()
        )
        assert int(cut["busy_ns"].sum()) == int((table["raw_end"] - table["raw_start"]).sum())
        took = statistics.median(seconds)
        print(f"| {name} | {touched:,} | {took:.2f} | {touched / took / 1e6:.1f} |")
    print()


def main() -> None:
    """Measure and print."""
    text = text_file()
    size_mb = text.stat().st_size / 1e6
    ours = [sys.executable, "-m", "flameslice"]
    collapse: dict[str, list[str]] = {
        "flameslice flamegraph --format folded": [*ours, "flamegraph", str(text), "--format", "folded"]
    }
    draw: dict[str, list[str]] = {
        "flameslice flamegraph -o x.svg": [*ours, "flamegraph", str(text), "-o", str(OUT / "bench.svg")]
    }
    OUT.mkdir(parents=True, exist_ok=True)
    inferno, perl = tool("inferno-collapse-perf"), tool("stackcollapse-perf.pl")
    if inferno:
        collapse["inferno-collapse-perf -n 2"] = [inferno, "-n", "2", str(text)]
    if perl:
        collapse["stackcollapse-perf.pl"] = [perl, str(text)]
    cargo_flamegraph = tool("flamegraph")
    if cargo_flamegraph:
        # cargo-flamegraph reads `perf script` of a perf.data: the text stands in for perf
        fake = OUT / "fake-perf"
        fake.mkdir(exist_ok=True)
        script = fake / "perf"
        script.write_text(f"#!/bin/sh\nexec cat '{text}'\n")
        script.chmod(0o755)
        (OUT / "perf.data").write_bytes(b"")
        shell = f"PATH='{fake}':\"$PATH\" exec '{cargo_flamegraph}' --perfdata '{OUT}/perf.data' -o '{OUT}/peer.svg'"
        draw["cargo-flamegraph (read, collapse, draw)"] = ["sh", "-c", shell]
    print(
        f"{text.name}: {size_mb:.0f} MB, {os.cpu_count()} CPUs, Python {platform.python_version()}, "
        f"median of {RUNS} runs\n"
    )
    for title, commands in (("text to collapsed", collapse), ("text to SVG", draw)):
        results = measure(commands)
        base = next(iter(results.values()))
        print(f"| {title} | wall s | MB/s | CPU s | peak MiB (largest process) | our speed / its speed |")
        print("|---|---|---|---|---|---|")
        for name, result in results.items():
            ratio = result.wall_s / base.wall_s
            print(
                f"| {name} | {result.wall_s:.2f} | {size_mb / result.wall_s:.0f} | {result.cpu_s:.2f} "
                f"| {result.peak_mib:.0f} | {ratio:.2f} |"
            )
        print()
    slicing()
    clock_conversion.report()
    store_and_log.main(text)


if __name__ == "__main__":
    main()
