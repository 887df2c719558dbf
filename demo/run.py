"""What `make demo` runs: the main job on the capture that lies here, by the command line, and what came out.

Where perf may record, a live second of the same toy is recorded and drawn too; that never fails the demo.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

ROOT = Path(__file__).resolve().parent.parent
CAPTURE = Path("demo/capture/token_server.perf.txt.zst")
OUT = Path("demo/out")
EVENT = "cpu-clock"  # the first sample in the file is a tracepoint, which would be drawn otherwise
WINDOW_NS = 10_000_000  # our choice: long enough to hold a few tokens, short enough to point at
CFLAGS = ["-O0", "-g", "-pthread"]


def flameslice(*args: str | Path, quiet: bool = False) -> subprocess.CompletedProcess[bytes]:
    """Run the command line; its progress and warnings go to the terminal, its result comes back."""
    if not quiet:
        print("$ flameslice", *args, flush=True)
    command = [sys.executable, "-m", "flameslice", *map(str, args)]
    errors = subprocess.PIPE if quiet else None
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)


def draw() -> None:
    """Write the three outputs, or end with the status of the command that failed."""
    for args in (
        ("flamegraph", CAPTURE, "--event", EVENT, "-o", OUT / "flamegraph.svg"),
        ("chart", CAPTURE, "--comm", "decode-0", "--comm", "decode-1", "-o", OUT / "chart.html"),
        ("slices", CAPTURE, "-o", OUT / "slices.parquet"),
    ):
        status = flameslice(*args).returncode
        if status:
            sys.exit(status)


# ------------------------------------------------------------------ one second of live recording


def record_live() -> str:
    """Record and draw a second of the toy; return in one line what happened."""
    if shutil.which("perf") is None:
        return "no live recording: perf is not here (make system-deps)"
    capture = OUT / "live.capture"
    shutil.rmtree(ROOT / capture, ignore_errors=True)
    recorded = flameslice("record", "-o", capture, "--", *_live_command(), quiet=True)
    if recorded.returncode not in (0, 3):
        return f"no live recording: {_last_line(recorded.stderr)}"
    drawn = flameslice("flamegraph", capture, "-o", OUT / "live.svg", quiet=True)
    if drawn.returncode not in (0, 3):
        return f"recorded live into {capture}, but not drawn: {_last_line(drawn.stderr)}"
    return f"recorded live into {capture}, drawn in {OUT / 'live.svg'}"


def _live_command() -> list[str]:
    """Return the toy's command where a C compiler is here, else one of our own that keeps a CPU busy."""
    cc = shutil.which("cc")
    folder = ROOT / ".cache" / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "token_server"
    if cc is not None:
        source = ROOT / "demo" / "token_server.c"
        if (
            subprocess.run([cc, *CFLAGS, str(source), "-o", str(program)], capture_output=True).returncode
            == 0
        ):
            return [str(program), "1", str(folder)]
    return [
        sys.executable,
        "-m",
        "flameslice",
        "flamegraph",
        str(ROOT / CAPTURE),
        "-o",
        str(folder / "again.svg"),
    ]


def _last_line(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "it ended without a word"


# ------------------------------------------------------------------ what the outputs show


def folded(*options: str) -> list[str]:
    """Return the folded lines behind the flame graph, of what options leave."""
    ran = flameslice("flamegraph", CAPTURE, "--event", EVENT, "--format", "folded", *options, quiet=True)
    if ran.returncode:
        sys.exit(_last_line(ran.stderr))
    return ran.stdout.decode("utf-8", "replace").splitlines()


def hottest_function() -> str:
    """Return which function the CPUs spent most time in, and from where it is called."""
    by_leaf: Counter[str] = Counter()
    by_stack: Counter[str] = Counter()
    for line in folded():
        stack, _, count = line.rpartition(" ")
        by_leaf[stack.rpartition(";")[2]] += int(count)
        by_stack[stack] += int(count)
    [(leaf, weight)] = by_leaf.most_common(1)
    path = next(stack for stack, _ in by_stack.most_common() if stack.endswith(f";{leaf}"))
    callers = " > ".join(path.split(";")[:-1])
    share = weight / by_leaf.total()
    return f"flamegraph.svg: {share:.0%} of the CPU time is in {leaf}, most of it under {callers}"


def waiting_thread(slices: pl.DataFrame) -> tuple[str, str]:
    """Return the lane that waited for a device longest, and the thread's name as its stacks tell it."""
    import polars as pl

    waits = slices.filter(pl.col("kind") == "dma_wait").group_by("lane").agg(pl.col("busy_ns").sum())
    lane = waits.sort("busy_ns", "lane", descending=[True, False])["lane"][0]
    return lane, folded("--tid", lane.removeprefix("tid:"))[0].partition(";")[0]


def worst_window(slices: pl.DataFrame, lane: str, thread: str) -> str:
    """Return in which window a thread was off the CPU longest."""
    import polars as pl

    off = slices.filter(pl.col("kind") == "off_cpu", pl.col("lane") == lane)
    first_ns = slices["start_ns"].min()
    windows = off.group_by((pl.col("start_ns") - first_ns) // WINDOW_NS).agg(pl.col("busy_ns").sum())
    window, off_ns = windows.sort("busy_ns", "start_ns", descending=[True, False]).row(0)
    at_ms, share = window * WINDOW_NS // 1_000_000, off_ns / WINDOW_NS
    return f"chart.html: of the 10 ms from {at_ms}ms on, {thread} was off the CPU for {share:.0%}: its worst"


def where_time_went(slices: pl.DataFrame, lane: str, thread: str) -> str:
    """Return how a thread's time is shared out."""
    import polars as pl

    mine = slices.filter(pl.col("lane") == lane)
    parts = {
        "running": mine.filter(pl.col("kind") == "running"),
        "waiting for a CPU": mine.filter(pl.col("kind") == "off_cpu", pl.col("name") == "runnable"),
        "blocked": mine.filter(pl.col("kind") == "off_cpu", pl.col("name") == "blocked"),
    }
    taken_ns = {words: int(part["busy_ns"].sum()) for words, part in parts.items()}
    total_ns = sum(taken_ns.values())
    disk_ns = int(mine.filter(pl.col("kind") == "dma_wait")["busy_ns"].sum())
    shares = ", ".join(f"{ns / total_ns:.0%} {words}" for words, ns in taken_ns.items())
    disk = f"{disk_ns / total_ns:.0%} for the disk"
    return f"slices.parquet: of {total_ns / 1e9:.2f}s, {thread} was {shares} ({disk})"


def main() -> None:
    """Draw, record, and end with three lines."""
    import polars as pl

    (ROOT / OUT).mkdir(parents=True, exist_ok=True)
    draw()
    print(record_live())
    slices = pl.read_parquet(ROOT / OUT / "slices.parquet")
    lane, thread = waiting_thread(slices)
    print(hottest_function())
    print(worst_window(slices, lane, thread))
    print(where_time_went(slices, lane, thread))


if __name__ == "__main__":
    main()
