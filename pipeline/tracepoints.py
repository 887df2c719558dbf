"""Arguments of tracepoints, read from the text that perf prints: `prev_comm=a b prev_pid=1 prev_prio=120 ...`.

    sched:sched_switch        prev_comm=a prev_pid=7 prev_prio=120 prev_state=R ==> next_comm=x next_pid=9 next_prio=1
    sched:sched_switch        work:7 [120] R ==> x:9 [120]                       (older perf)
    syscalls:sys_enter_read   fd: 0x00000003, buf: 0x7ffc, count: 0x00001000
    raw_syscalls:sys_enter    NR 16 (7, 2400, 0, 7f7e8182b5e0, 1, 0)
    irq:irq_handler_entry     irq=24 name=virtio0-req.0
    irq:softirq_entry         vec=1 [action=TIMER]
    block:block_rq_issue      259,0 WS 4096 () 12345 + 8 [dd]
    block:block_rq_complete   259,0 WS () 12345 + 8 [0]
    dma_fence:dma_fence_wait_start  driver=i915 timeline=x context=1 seqno=2

Formats from the kernel's include/trace/events/*.h and perf 6.1's output. A process name may hold spaces, `=` and line
feeds.
"""

from __future__ import annotations

import polars as pl

_SWITCH = (
    r"(?s)^prev_comm=(?<prev_comm>.*) prev_pid=(?<prev_pid>\d+) prev_prio=-?\d+ prev_state=(?<prev_state>\S+)"
    r" ==> next_comm=(?<next_comm>.*) next_pid=(?<next_pid>\d+) next_prio=-?\d+"
)
_OLD_SWITCH = (
    r"(?s)^(?<prev_comm>.*):(?<prev_pid>\d+) \[-?\d+\] (?<prev_state>\S+)"
    r" ==> (?<next_comm>.*):(?<next_pid>\d+) \[-?\d+\]"
)
_WAKE = r"(?s)(?:^| )(?:pid=|.*:)(?<pid>\d+) (?:prio=|\[)"
_BLOCK = r"^(?<device>\d+,\d+) \S+ (?:(?<bytes>\d+) )?\(.*?\) (?<sector>\d+) \+ (?<sectors>\d+)"


def arg(name: str) -> pl.Expr:
    """Return the text of an argument, null where the row has none: `name=value`, `name: value` or `name value`."""
    return pl.col("args").str.extract(rf"(?:^|[ ,(\[]){name}(?:=|: ?| )([^\s,\])]+)")


def switches(events: pl.DataFrame) -> pl.DataFrame:
    """Return one row per sched_switch: the row's columns, and prev_pid, prev_state, next_pid, next_comm."""
    rows = events.filter(pl.col("event") == "sched:sched_switch")
    new = pl.col("args").str.extract_groups(_SWITCH)
    old = pl.col("args").str.extract_groups(_OLD_SWITCH)
    fields = ("prev_pid", "prev_state", "next_pid", "next_comm")
    return rows.with_columns(
        pl.coalesce(new.struct.field(field), old.struct.field(field)).alias(field) for field in fields
    ).with_columns(pl.col("prev_pid", "next_pid").cast(pl.Int32, strict=False))


def wakings(events: pl.DataFrame) -> pl.DataFrame:
    """Return one row per wake-up: host, raw_time, tid of the thread woken, woken_by.

    sched_waking, where captured, is nearer to the cause than sched_wakeup; new threads wake by sched_wakeup_new.
    """
    names = ["sched:sched_waking"]
    if not (events["event"] == names[0]).any():
        names = ["sched:sched_wakeup"]
    rows = events.filter(pl.col("event").is_in([*names, "sched:sched_wakeup_new"]))
    woken = pl.coalesce(arg("pid"), pl.col("args").str.extract(_WAKE))
    return rows.select(
        "host", "raw_time", tid=woken.cast(pl.Int32, strict=False), woken_by=pl.col("tid")
    ).filter(pl.col("tid").is_not_null())


def requests(events: pl.DataFrame, event: str) -> pl.DataFrame:
    """Return one row per block request of an event: the row's columns, and device, sector, bytes."""
    fields = pl.col("args").str.extract_groups(_BLOCK)
    return events.filter(pl.col("event") == event).with_columns(
        device=fields.struct.field("device"),
        sector=fields.struct.field("sector").cast(pl.Int64, strict=False),
        bytes=fields.struct.field("sectors").cast(pl.Int64, strict=False) * 512,
    )
