"""Begins and ends by hand: what pairs, what is left over, what was not captured."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from pipeline import intervals, schema

Found = list[tuple[str, str | None, int | None, int, int]]


def events(*rows: tuple[int, str, str, int, int]) -> pl.DataFrame:
    """Each row: time, event, args, cpu, tid."""
    base: dict[str, Any] = dict.fromkeys(schema.PERF_EVENTS.names())
    table = [
        base
        | {
            "raw_time": at,
            "event": event,
            "args": args,
            "cpu": cpu,
            "tid": tid,
            "pid": tid,
            "comm": f"t{tid}",
        }
        for at, event, args, cpu, tid in rows
    ]
    return pl.DataFrame(table, schema=schema.PERF_EVENTS)


def build(
    *rows: tuple[int, str, str, int, int], **options: Any
) -> tuple[Found, dict[str, int], frozenset[str]]:
    table, losses, captured = intervals.build(events(*rows), **options)
    found = [
        (row["kind"], row["name"], row["tid"], row["raw_start"], row["raw_end"])
        for row in table.sort("raw_start", "raw_end", "kind", "name").iter_rows(named=True)
    ]
    return found, {loss.reason: loss.count for loss in losses}, captured


def switch(at: int, cpu: int, leaver: int, state: str, comer: int) -> tuple[int, str, str, int, int]:
    args = f"prev_comm=a b={leaver} prev_pid={leaver} prev_prio=120 prev_state={state} ==> "
    args += f"next_comm=x=\ny next_pid={comer} next_prio=120"
    return at, "sched:sched_switch", args, cpu, leaver


def test_runs_and_waits_of_a_thread() -> None:
    found, losses, captured = build(
        switch(100, 0, 9, "S", 7),
        switch(150, 0, 7, "S", 8),  # 7 ran 50 and blocks
        (170, "sched:sched_waking", "comm=x pid=7 prio=120 target_cpu=000", 1, 5),  # woken by 5
        switch(200, 0, 8, "R+", 7),  # 8 is preempted, 7 comes in after waiting 30
        switch(260, 0, 7, "S", 8),
        switch(300, 0, 8, "S", 0),
    )
    assert losses == {}
    assert captured == {"running", "off_cpu"}
    assert found == [
        ("running", None, 9, 100, 100),
        ("running", None, 7, 100, 150),
        ("off_cpu", "blocked", 7, 150, 170),
        ("running", None, 8, 150, 200),
        ("off_cpu", "runnable", 7, 170, 200),
        ("off_cpu", "runnable", 8, 200, 260),
        ("running", None, 7, 200, 260),
        ("running", None, 8, 260, 300),
    ]


def test_the_waker_and_the_stack_are_kept() -> None:
    rows = events(
        switch(100, 0, 9, "S", 7),
        switch(150, 0, 7, "D", 0),
        (170, "sched:sched_waking", "comm=x y pid=7 prio=120 target_cpu=000", 0, 5),
        switch(180, 0, 0, "R", 7),
        switch(190, 0, 7, "S", 0),
    ).with_columns(stack_id=pl.when(pl.col("raw_time") == 150).then(42).otherwise(1).cast(pl.UInt64))
    table, _, _ = intervals.build(rows)
    off = table.filter(pl.col("kind") == "off_cpu").sort("raw_start")
    assert off.select("name", "woken_by", "stack_id", "comm").rows() == [
        ("blocked", 5, 42, "t7"),
        ("runnable", 5, 42, "t7"),
    ]


def test_an_exit_from_idle_that_the_kernel_left_out_is_repaired() -> None:
    found, losses, _ = build(
        switch(100, 0, 7, "S", 0),
        (140, "cpu-clock", "", 0, 7),  # 7 runs again, and no switch said so
        switch(200, 0, 7, "S", 8),
        switch(250, 0, 8, "S", 0),
    )
    assert ("running", None, 7, 140, 200) in found
    assert ("off_cpu", "blocked", 7, 100, 140) in found
    assert losses == {"repaired_idle_exit": 1}


def test_without_other_evidence_an_idle_exit_is_the_wake_up() -> None:
    found, losses, _ = build(
        switch(100, 0, 7, "S", 0),
        (150, "sched:sched_waking", "comm=x pid=7 prio=120 target_cpu=000", 1, 5),
        switch(200, 0, 7, "S", 0),
        switch(300, 0, 7, "S", 0),
    )
    assert ("running", None, 7, 150, 200) in found
    assert losses["repaired_idle_exit"] >= 1


def test_a_record_of_a_switch_out_proves_no_run() -> None:
    found, _, _ = build(
        switch(100, 0, 7, "S", 8),
        (103, "PERF_RECORD_SWITCH", "OUT", 0, 7),
        switch(200, 0, 8, "S", 0),
    )
    assert found == [("running", None, 7, 100, 100), ("running", None, 8, 100, 200)]


def test_old_switch_format_and_record_switches() -> None:
    old = [
        (at, "sched:sched_switch", args, 0, 1)
        for at, args in [(10, "a:1 [120] S ==> b c:2 [120]"), (30, "b c:2 [120] S ==> a:1 [120]")]
    ]
    assert ("running", None, 2, 10, 30) in build(*old)[0]
    found, losses, _ = build(
        (10, "PERF_RECORD_SWITCH", "IN", 0, 7),
        (20, "PERF_RECORD_SWITCH", "OUT preempt", 0, 7),
        (25, "PERF_RECORD_SWITCH", "IN", 0, 7),
        (40, "PERF_RECORD_SWITCH", "OUT", 0, 7),
        (90, "PERF_RECORD_SWITCH", "IN", 0, 7),
    )
    assert found == [
        ("running", None, 7, 10, 20),
        ("off_cpu", "runnable", 7, 20, 25),
        ("running", None, 7, 25, 40),
    ]
    assert losses == {"unmatched_begin": 1}


def test_system_calls_pair_by_thread_and_name() -> None:
    found, losses, captured = build(
        (10, "syscalls:sys_exit_read", "0x0", 0, 7),
        (20, "syscalls:sys_enter_read", "fd: 0x3", 0, 7),
        (25, "syscalls:sys_enter_write", "fd: 0x1", 1, 8),
        (30, "syscalls:sys_exit_read", "0x10", 1, 7),  # on another CPU: the thread moved
        (35, "syscalls:sys_exit_write", "0x1", 1, 8),
        (50, "syscalls:sys_enter_read", "fd: 0x3", 0, 7),
        (60, "syscalls:sys_enter_mmap", "addr: 0x0", 0, 7),  # its exit was not recorded for any call
    )
    assert found == [("syscall", "read", 7, 20, 30), ("syscall", "write", 8, 25, 35)]
    assert losses == {"unmatched_begin": 1, "unmatched_end": 1}
    assert captured == {"syscall"}


@pytest.mark.parametrize(
    ("arch", "name"), [("x86_64", "ioctl"), ("aarch64", "fremovexattr"), ("", "syscall 16")]
)
def test_raw_system_calls_have_names_where_the_architecture_is_known(arch: str, name: str) -> None:
    found, _, _ = build(
        (10, "raw_syscalls:sys_enter", "NR 16 (7, 2400, 0, 0, 1, 0)", 0, 7),
        (12, "raw_syscalls:sys_exit", "NR 16 = 0", 0, 7),
        arch=arch,
    )
    assert found == [("syscall", name, 7, 10, 12)]


def test_interrupts_nest() -> None:
    found, losses, captured = build(
        (10, "irq:softirq_entry", "vec=1 [action=TIMER]", 0, 7),
        (20, "irq:irq_handler_entry", "irq=24 name=virtio0-req.0", 0, 7),
        (25, "irq:irq_handler_entry", "irq=24 name=virtio0-req.0", 1, 8),
        (30, "irq:irq_handler_exit", "irq=24 ret=handled", 0, 7),
        (35, "irq:irq_handler_exit", "irq=24 ret=handled", 1, 8),
        (40, "irq:softirq_exit", "vec=1 [action=TIMER]", 0, 7),
    )
    assert [(kind, name, start, end) for kind, name, _, start, end in found] == [
        ("softirq", "TIMER", 10, 40),
        ("irq", "virtio0-req.0", 20, 30),
        ("irq", "virtio0-req.0", 25, 35),
    ]
    assert losses == {}
    assert captured == {"irq", "softirq"}


ISSUE, COMPLETE = "block:block_rq_issue", "block:block_rq_complete"


def test_block_requests_pair_by_device_and_sector() -> None:
    table, losses, _ = intervals.build(
        events(
            (10, ISSUE, "259,0 WS 4096 () 800 + 8 [dd]", 0, 7),
            (11, ISSUE, "259,0 R 8192 () 900 + 16 none,0,0 [cat]", 0, 8),
            (30, COMPLETE, "259,0 R () 900 + 16 [0]", 1, 0),
            (50, COMPLETE, "259,0 WS () 800 + 8 [0]", 1, 0),
        )
    )
    assert losses == ()
    assert table.sort("raw_start").select("name", "tid", "raw_start", "raw_end", "bytes").rows() == [
        ("259,0", 7, 10, 50, 4096),
        ("259,0", 8, 11, 30, 8192),
    ]


def test_waiting_for_its_own_block_request_is_dma_wait() -> None:
    found, _, captured = build(
        switch(5, 0, 9, "S", 7),
        (10, ISSUE, "259,0 WS 4096 () 800 + 8 [dd]", 0, 7),
        switch(20, 0, 7, "D", 8),
        (50, COMPLETE, "259,0 WS () 800 + 8 [0]", 1, 0),
        (60, "sched:sched_waking", "comm=dd pid=7 prio=120 target_cpu=000", 1, 0),
        switch(70, 0, 8, "R", 7),
        switch(80, 0, 7, "S", 8),
        kinds={"dma_wait"},
    )
    # blocked from 20 to 60, the request under way from 10 to 50
    assert found == [("dma_wait", "block_io", 7, 20, 50)]
    assert "dma_wait" in captured


def test_stronger_evidence_of_dma_wait_comes_first() -> None:
    found, _, _ = build(
        switch(5, 0, 9, "S", 7),
        (10, ISSUE, "259,0 WS 4096 () 800 + 8 [dd]", 0, 7),
        (15, "dma_fence:dma_fence_wait_start", "driver=d timeline=gfx context=1 seqno=2", 0, 7),
        switch(20, 0, 7, "D", 8),
        (40, "dma_fence:dma_fence_wait_end", "driver=d timeline=gfx context=1 seqno=2", 0, 7),
        (50, COMPLETE, "259,0 WS () 800 + 8 [0]", 1, 0),
        (60, "sched:sched_waking", "comm=dd pid=7 prio=120 target_cpu=000", 1, 0),
        switch(70, 0, 8, "R", 7),
        switch(80, 0, 7, "S", 8),
        kinds={"dma_wait"},
    )
    assert found == [("dma_wait", "dma_fence", 7, 15, 40), ("dma_wait", "block_io", 7, 40, 50)]


def test_calls_on_gpu_devices_are_dma_wait_where_the_files_are_known() -> None:
    rows = (
        switch(5, 0, 9, "S", 7),
        (10, "syscalls:sys_enter_ioctl", "fd: 0x00000003, cmd: 0x46", 0, 7),
        switch(20, 0, 7, "S", 8),
        switch(70, 0, 8, "R", 7),
        (75, "syscalls:sys_exit_ioctl", "0x0", 0, 7),
        switch(80, 0, 7, "S", 8),
    )
    assert "dma_wait" not in build(*rows)[2]
    found, _, captured = build(
        *rows, kinds={"dma_wait"}, device_fds={(7, 3): "/dev/nvidia0", (7, 4): "/tmp/x"}
    )
    assert found == [("dma_wait", "device_call", 7, 20, 70)]
    assert "dma_wait" in captured


def test_what_was_not_captured_is_not_claimed() -> None:
    table, losses, captured = intervals.build(events((10, "cpu-clock", "", 0, 7)))
    assert (table.height, losses, captured) == (0, (), frozenset())
