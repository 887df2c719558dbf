"""What a preset records, as perf's arguments; the lighter ones are what recording falls back to.

    cpu      samples of the target, with stacks
    latency  cpu, and of the whole machine: context switches, wake-ups, interrupts, softirqs, block I/O;
             of the target: system calls
    full     latency, and page faults, wakers' stacks, migrations, block queueing, workqueues, GPU fences,
             CPU frequencies

System calls come from a perf of its own that follows the target and its children: a tracepoint filter knows
threads that exist when it is set, and no later ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Preset = Literal["cpu", "latency", "full"]
CallGraph = Literal["fp", "dwarf", "lbr"]

# the clocks that can stamp events, as perf spells them too; perf is its own default, for which it takes no -k
CLOCKS = ("monotonic", "monotonic_raw", "boottime", "realtime", "tai", "perf")

# fewer samples than this say nothing about the seconds that a recording lasts (our choice)
_SLOWEST_HZ = 49

# stands in perf's arguments for the process id that this perf will have
SELF = "@SELF@"

# number of the sched_yield system call, by `uname -m`: spinning runtimes make millions of them a second
_SCHED_YIELD = {
    "x86_64": 24,
    "aarch64": 124,
    "riscv64": 124,
    "loongarch64": 124,
    "ppc64le": 158,
    "s390x": 158,
}

# every event has a call chain, if only of one frame: without one perf script prints the address and symbol at
# the end of the tracepoint's arguments, where no reader can tell them apart
_STACK, _NO_STACK = ("call-graph=fp",), ("call-graph=fp", "max-stack=1")

# ring buffer per CPU: 2 MiB, and at most 256 MiB for one perf (our choice); without root the kernel's 512 KiB
_BUFFER_PAGES, _ALL_BUFFER_BYTES, _PAGE_BYTES, _USER_BUFFER_PAGES = 512, 256 << 20, 4096, 128


@dataclass(frozen=True, slots=True)
class Event:
    """One event as perf record takes it."""

    name: str
    terms: tuple[str, ...] = ()
    filter: str = ""

    def argv(self) -> list[str]:
        """Return the arguments for this event."""
        spelled = f"{self.name}/{','.join(self.terms)}/" if self.terms else self.name
        return ["-e", spelled, *(["--filter", self.filter] if self.filter else [])]


@dataclass(frozen=True, slots=True)
class Part:
    """What one perf process records: of the target's processes, or of the whole machine."""

    name: str
    whole_machine: bool
    events: tuple[Event, ...]
    switch_records: bool = False

    @property
    def has_tracepoints(self) -> bool:
        """Return whether this part needs tracefs."""
        return any(":" in event.name for event in self.events)


@dataclass(frozen=True, slots=True)
class Choice:
    """What the user chose, and what the machine has."""

    preset: Preset
    frequency_hz: int
    call_graph: CallGraph = "fp"
    cpu_event: str = "cpu-clock"
    whole_machine: bool = False
    arch: str = "x86_64"


def lighter(choice: Choice) -> Choice | None:
    """Return what to fall back to: the next lighter preset, at last a tenth of the samples, and then None."""
    if choice.preset == "full":
        return replace(choice, preset="latency")
    if choice.preset == "latency":
        return replace(choice, preset="cpu")
    slower_hz = choice.frequency_hz // 10
    return replace(choice, frequency_hz=slower_hz) if slower_hz >= _SLOWEST_HZ else None


def parts(choice: Choice, has_event: Callable[[str], bool]) -> list[Part]:
    """Return what the perf processes record, leaving out tracepoints that this kernel does not have.

    The part `target` comes first. With the whole machine as the target there is one part and no system calls.
    """
    cpu_terms = (f"freq={choice.frequency_hz}", f"name={choice.cpu_event}", f"call-graph={choice.call_graph}")
    target = [Event(choice.cpu_event, cpu_terms)]
    if choice.preset == "cpu":
        return [Part("target", choice.whole_machine, tuple(target))]
    if choice.preset == "full":
        # sampled, not counted one by one: a growing heap faults a hundred thousand times a second
        target.append(
            Event("page-faults", (f"freq={choice.frequency_hz}", "name=page-faults", "call-graph=fp"))
        )
    machine = [event for event in _machine_events(choice.preset) if has_event(event.name)]
    if choice.whole_machine:
        return [Part("target", True, (*target, *machine), switch_records=True)]
    syscalls = [event for event in _syscall_events(choice.arch) if has_event(event.name)]
    return [
        Part("target", False, (*target, *syscalls)),
        Part("system", True, tuple(machine), switch_records=True),
    ]


def missing_events(choice: Choice, has_event: Callable[[str], bool]) -> list[str]:
    """Return the tracepoints of the preset that this kernel does not have."""
    if choice.preset == "cpu":
        return []
    wanted = _machine_events(choice.preset)
    if not choice.whole_machine:
        wanted += _syscall_events(choice.arch)
    return [event.name for event in wanted if not has_event(event.name)]


def _syscall_events(arch: str) -> list[Event]:
    number = _SCHED_YIELD.get(arch)
    no_yield = "" if number is None else f"id != {number}"
    return [
        Event("raw_syscalls:sys_enter", _STACK, no_yield),
        Event("raw_syscalls:sys_exit", _NO_STACK, no_yield),
    ]


def _machine_events(preset: Preset) -> list[Event]:
    full = preset == "full"
    waker = _STACK if full else _NO_STACK
    events = [
        Event("sched:sched_switch", _STACK),
        Event("sched:sched_waking", waker),
        Event("sched:sched_wakeup", _NO_STACK),
        Event("sched:sched_wakeup_new", _NO_STACK),
        Event("block:block_rq_issue", _STACK),
        Event("block:block_rq_complete", _NO_STACK),
    ]
    names = ["sched:sched_process_exec", "sched:sched_process_exit", "sched:sched_process_fork"]
    names += ["irq:irq_handler_entry", "irq:irq_handler_exit", "irq:softirq_entry", "irq:softirq_exit"]
    if full:
        names += ["sched:sched_migrate_task", "block:block_rq_insert", "power:cpu_frequency"]
        names += ["workqueue:workqueue_execute_start", "workqueue:workqueue_execute_end"]
        events.append(Event("dma_fence:dma_fence_wait_start", _STACK))
        names += ["dma_fence:dma_fence_wait_end", "dma_fence:dma_fence_signaled"]
    return events + [Event(name, _NO_STACK) for name in names]


def without_recorder(event: Event, pids: Iterable[int | str]) -> Event:
    """Return event with a filter that leaves the recorder's own switches and wake-ups out.

    A switch between the recorder and a thread of anybody else stays: it is that thread's. What goes is the
    recorder taking turns with idle, so that a CPU where only it ran looks idle.
    """
    own = [str(pid) for pid in pids]
    if event.name == "sched:sched_switch":
        sides = (
            "(" + " || ".join(f"{side}_pid == {pid}" for pid in ["0", *own]) + ")"
            for side in ("prev", "next")
        )
        return Event(event.name, event.terms, f"!({' && '.join(sides)})")
    if event.name in ("sched:sched_waking", "sched:sched_wakeup", "sched:sched_wakeup_new"):
        return Event(event.name, event.terms, " && ".join(f"pid != {pid}" for pid in own))
    return event


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one perf writes, by which clock, whom it follows, and how it is told to begin."""

    output: str
    clock: str
    pids: Sequence[int]
    control: str
    recorder_pids: Sequence[int]
    max_bytes: int
    cpus: int
    is_root: bool


def argv(part: Part, place: Placement) -> list[str]:
    """Return perf record's arguments; `SELF` in them stands for the process id that it will have."""
    args = ["record", "-N", "--no-bpf-event", "--sample-cpu", "-c", "1"]
    args += ["-k", place.clock] if place.clock != "perf" else []
    args += ["-D", "-1", "--control", place.control, "-o", place.output, "--max-size", f"{place.max_bytes}B"]
    pages = _BUFFER_PAGES if place.is_root else _USER_BUFFER_PAGES
    while pages > _USER_BUFFER_PAGES and pages * _PAGE_BYTES * place.cpus > _ALL_BUFFER_BYTES:
        pages //= 2
    args += ["-m", str(pages)]
    if part.switch_records:
        args.append("--switch-events")
    args += ["-a"] if part.whole_machine else ["-p", ",".join(map(str, place.pids))]
    for event in part.events:
        args += without_recorder(event, [*place.recorder_pids, SELF]).argv()
    return args
