"""Every table in one place: its columns, types and units, and what one row is.

Times are Int64 in ticks of the row's clock (nanoseconds for perf's clocks) and never floats. Names are escaped text
(pipeline.text.escape). Ids of frames and stacks are UInt64 content hashes (pipeline.stacks).
"""

from __future__ import annotations

import polars as pl

SCHEMA_VERSION = "1.0"

# one row per sample or tracepoint
PERF_EVENTS = pl.Schema(
    {
        "host": pl.String,
        "cpu": pl.Int32,  # null: the capture does not say
        "pid": pl.Int32,
        "tid": pl.Int32,
        "comm": pl.String,
        "event": pl.String,  # as perf prints it, modifiers included: cpu-clock:u, sched:sched_switch
        "period": pl.Int64,  # in the event's unit; null: not in the file
        "clock": pl.String,
        "raw_time": pl.Int64,  # ns; null: not in the file
        "stack_id": pl.UInt64,  # 0: without frames
        "args": pl.String,  # a tracepoint's arguments, verbatim as perf printed them
    }
)

# one row per frame
FRAMES = pl.Schema(
    {
        "frame_id": pl.UInt64,
        "symbol": pl.String,
        "dso": pl.String,
        "file": pl.String,
        "line": pl.Int32,
        "kind": pl.String,  # user, kernel, jit, inlined, python, gpu
    }
)

# one row per stack: the path from the outermost caller to this frame
STACKS = pl.Schema(
    {
        "stack_id": pl.UInt64,
        "parent_id": pl.UInt64,  # 0: the outermost
        "frame_id": pl.UInt64,
        "depth": pl.Int32,  # 1 is the outermost
    }
)

# one row per paired begin and end
INTERVALS = pl.Schema(
    {
        "host": pl.String,
        "cpu": pl.Int32,
        "pid": pl.Int32,
        "tid": pl.Int32,
        "comm": pl.String,
        "kind": pl.String,  # cpu, running, syscall, irq, softirq, block_io, off_cpu, dma_wait
        "name": pl.String,  # the system call, interrupt, device; for off_cpu: blocked or runnable
        "clock": pl.String,
        "raw_start": pl.Int64,  # ns
        "raw_end": pl.Int64,  # ns, half open
        "stack_id": pl.UInt64,
        "woken_by": pl.Int32,  # tid of the waker, where captured
        "evidence": pl.String,  # dma_wait only: dma_fence, block_io, cuda_sync, device_call
        "events": pl.Int64,  # instants that the interval stands for (1 for a sample)
        "period": pl.Int64,  # in the event's unit
        "bytes": pl.Int64,
        "repaired": pl.Boolean,  # an end or begin that the kernel did not report was inferred
    }
)

# one row per slice, lane, kind and stack
SLICES = pl.Schema(
    {
        "slice": pl.Int64,  # time_ns // width_ns
        "start_ns": pl.Int64,
        "host": pl.String,
        "lane": pl.String,  # tid:1234, cpu:0, dev:259,0
        "kind": pl.String,
        "stack_id": pl.UInt64,
        "name": pl.String,
        "stack": pl.String,  # folded text, outermost first
        "busy_ns": pl.Int64,
        "events": pl.Int64,
        "period": pl.Int64,
        "bytes": pl.Int64,
    }
)

# one row per event, process and stack, of sources that hold no single samples
STACK_WEIGHTS = pl.Schema(
    {
        "event": pl.String,  # as in perf_events
        "comm": pl.String,  # null: the source names no process; empty: it is the outermost frame already
        "stack_id": pl.UInt64,  # 0: without frames
        "samples": pl.Int64,  # how many the source counted
        "period": pl.Int64,  # in the source's unit; null: the source has none
    }
)

# one row per thread that its source named only after some of its samples
THREADS = pl.Schema(
    {
        "tid": pl.Int32,  # thread id
        "comm": pl.String,  # the last name
    }
)

# one row per kind of loss in one source
LOSSES = pl.Schema(
    {
        "reason": pl.String,
        "count": pl.Int64,
        "severity": pl.String,
        "first_line": pl.Int64,
        "example": pl.String,
    }
)

# one row per reading of the clocks of a host at the same instant
CLOCK_SNAPSHOTS = pl.Schema(
    {
        "host": pl.String,
        "boot_id": pl.String,
        "snapshot": pl.Int64,
        "clock": pl.String,
        "value": pl.Int64,
        "uncertainty_ns": pl.Int64,
    }
)

TABLES: dict[str, pl.Schema] = {
    "perf_events": PERF_EVENTS,
    "frames": FRAMES,
    "stacks": STACKS,
    "intervals": INTERVALS,
    "slices": SLICES,
    "stack_weights": STACK_WEIGHTS,
    "threads": THREADS,
    "losses": LOSSES,
    "clock_snapshots": CLOCK_SNAPSHOTS,
}

# what every stored row has before the table's own columns
KEYS = pl.Schema(
    {
        "capture": pl.String,  # its id
        "source": pl.String,  # the SHA-256 of a file, or the id of a stream
        "row": pl.Int64,  # where the row stands in its source's table, from 0
    }
)

# tables that are kept; intervals and slices are made when a question is asked
STORED: tuple[str, ...] = tuple(name for name in TABLES if name not in ("intervals", "slices"))
