"""Presets as perf's arguments: who is followed, what is filtered, and what recording falls back to."""

from __future__ import annotations

import pytest

from collectors.presets import SELF, Choice, Event, Part, Placement, argv, lighter, missing_events, parts
from collectors.presets import without_recorder as without


def everything(name: str) -> bool:
    return True


def names(part: Part) -> set[str]:
    return {event.name for event in part.events}


def place(**changes: object) -> Placement:
    fields: dict[str, object] = {
        "output": "o",
        "clock": "monotonic",
        "pids": (7, 8),
        "control": "fd:3,4",
        "recorder_pids": (5,),
        "max_bytes": 1000,
        "cpus": 4,
        "is_root": True,
    }
    return Placement(**(fields | changes))  # type: ignore[arg-type]


def test_system_calls_are_the_targets_only_and_the_rest_is_the_machines() -> None:
    target, system = parts(Choice("latency", 999), everything)
    assert not target.whole_machine
    assert names(target) == {"cpu-clock", "raw_syscalls:sys_enter", "raw_syscalls:sys_exit"}
    assert system.whole_machine
    assert {
        "sched:sched_switch",
        "sched:sched_waking",
        "irq:softirq_exit",
        "block:block_rq_complete",
    } <= names(system)
    assert system.switch_records


def test_the_cpu_preset_needs_no_tracepoint() -> None:
    (part,) = parts(Choice("cpu", 999), everything)
    assert names(part) == {"cpu-clock"}
    assert not part.has_tracepoints


def test_the_whole_machine_is_one_perf_without_system_calls() -> None:
    (part,) = parts(Choice("full", 999, whole_machine=True), everything)
    assert part.whole_machine
    assert not any("syscalls" in name for name in names(part))
    assert {"cpu-clock", "page-faults", "sched:sched_switch"} <= names(part)


def test_tracepoints_that_the_kernel_lacks_are_left_out_and_named() -> None:
    def no_fences(name: str) -> bool:
        return not name.startswith("dma_fence:")

    choice = Choice("full", 999)
    assert not any("dma_fence" in name for part in parts(choice, no_fences) for name in names(part))
    assert "dma_fence:dma_fence_wait_start" in missing_events(choice, no_fences)
    assert missing_events(choice, everything) == []


def test_every_tracepoint_has_a_call_chain_and_every_occurrence_counts() -> None:
    for choice in (Choice("latency", 999), Choice("full", 99, call_graph="dwarf")):
        for part in parts(choice, everything):
            for event in part.events:
                assert any(term.startswith("call-graph=") for term in event.terms), event
                assert any(term.startswith("freq=") for term in event.terms) == (":" not in event.name)
            arguments = argv(part, place())
            assert arguments[arguments.index("-c") + 1] == "1"


@pytest.mark.parametrize(("arch", "number"), [("x86_64", 24), ("aarch64", 124)])
def test_sched_yield_is_filtered_by_its_number_on_this_machine(arch: str, number: int) -> None:
    target = parts(Choice("latency", 999, arch=arch), everything)[0]
    filters = {event.filter for event in target.events if "syscalls" in event.name}
    assert filters == {f"id != {number}"}


def test_no_system_call_is_filtered_where_the_number_is_not_known() -> None:
    target = parts(Choice("latency", 999, arch="vax"), everything)[0]
    assert {event.filter for event in target.events} == {""}


def test_fallback_ends_at_a_tenth_of_the_samples() -> None:
    ladder = [Choice("full", 999)]
    while (then := lighter(ladder[-1])) is not None:
        ladder.append(then)
    assert [(one.preset, one.frequency_hz) for one in ladder] == [
        ("full", 999), ("latency", 999), ("cpu", 999), ("cpu", 99),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("prev", "following", "kept"),
    [
        (0, 5, False), (5, 0, False), (5, 6, False), (6, 5, False),  # the recorder and idle take turns
        (5, 9, True), (9, 5, True), (0, 9, True), (9, 0, True), (9, 10, True),  # a thread of somebody else's
        (50, 0, True), (0, 55, True),
    ],
)  # fmt: skip
def test_switches_of_others_are_never_filtered(prev: int, following: int, kept: bool) -> None:
    expression = without(Event("sched:sched_switch"), [5, 6]).filter
    spelled = expression.replace("!", " not ").replace("&&", "and").replace("||", "or")
    assert eval(spelled, {"prev_pid": prev, "next_pid": following}) is kept


@pytest.mark.parametrize(("pid", "kept"), [(5, False), (6, False), (9, True), (0, True)])
def test_wakeups_of_the_recorder_are_filtered(pid: int, kept: bool) -> None:
    expression = without(Event("sched:sched_waking"), [5, 6]).filter
    assert eval(expression.replace("&&", "and"), {"pid": pid}) is kept


def test_perf_gets_its_own_pid_and_the_others_into_its_filters() -> None:
    system = parts(Choice("latency", 999), everything)[1]
    arguments = argv(system, place())
    switch = arguments[arguments.index("--filter") + 1]
    assert "prev_pid == 5" in switch
    assert f"prev_pid == {SELF}" in switch
    assert "-a" in arguments
    assert "-p" not in arguments


def test_perf_follows_the_target_and_leaves_no_trace() -> None:
    arguments = argv(parts(Choice("latency", 999), everything)[0], place())
    assert arguments[arguments.index("-p") + 1] == "7,8"
    assert "-a" not in arguments
    assert "-N" in arguments
    assert arguments[arguments.index("--max-size") + 1] == "1000B"


@pytest.mark.parametrize(("cpus", "is_root", "pages"), [(2, True, 512), (128, True, 512), (256, True, 256),
                                                        (4096, True, 128), (2, False, 128)])  # fmt: skip
def test_buffers_are_bounded_on_large_machines(cpus: int, is_root: bool, pages: int) -> None:
    arguments = argv(parts(Choice("cpu", 999), everything)[0], place(cpus=cpus, is_root=is_root))
    assert arguments[arguments.index("-m") + 1] == str(pages)
