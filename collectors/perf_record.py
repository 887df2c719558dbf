"""Records a host with perf into a capture directory, and watches that it costs no more than agreed.

One or two perfs run (collectors/presets.py), all on one clock. When they write more events a second
or more bytes than agreed, they are ended and lighter ones started; that is a loss, and it is said.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from collectors import clock_snapshots, py_spy_record
from collectors.clock_markers import Marks
from collectors.perf_growth import Growth
from collectors.perf_process import PerfProcess, refusal
from collectors.presets import Choice, Part, Placement, argv, lighter, missing_events, parts
from collectors.processes import describe, is_alive, with_descendants
from collectors.py_spy_record import PySpy, Stamped
from collectors.record_target import HeldCommand
from collectors.record_watch import SECOND_NS, Rate, Sleep, has_event
from pipeline.capture import Process, Segment
from pipeline.errors import WorkError
from pipeline.losses import LossLedger
from pipeline.text import escape

CLOCKS_FILE = "clocks.jsonl"
_POLL_SECONDS = 0.25
_CONTROL = "@CONTROL@"
# a heavy preset may use three quarters of the bytes left, so that something is left for the lighter one
_HEAVY_SHARE = 0.75
_MAX_PROCESSES = 10_000
# processes that end between being listed and being watched make perf refuse all of them
_STARTS = 5

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a recording may use."""

    max_bytes: int
    max_events_per_s: int
    for_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Recording:
    """One perf.data that was written, from when on."""

    path: Path
    part: Part
    start_ns: int  # on CLOCK_MONOTONIC


@dataclass(slots=True)
class Session:
    """What a recording has done so far. `should_stop` says whether the user wants it to end."""

    directory: Path
    perf: str
    choice: Choice
    clock: str
    py_spy_hz: int | None
    limits: Limits
    command: HeldCommand | None
    pids: tuple[int, ...]
    say: Say
    should_stop: Callable[[], bool]
    recordings: list[Recording] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    processes: dict[int, Process] = field(default_factory=dict)
    recorder_pids: list[int] = field(default_factory=lambda: [os.getpid()])
    map_pids: set[int] = field(default_factory=set)
    losses: LossLedger = field(default_factory=LossLedger)
    notes: list[str] = field(default_factory=list)
    is_partial: bool = False
    failure: WorkError | None = None
    perf_cpu_ns: int = 0
    start_cpu_ns: int = 0
    wall_ns: int = 0
    used_bytes: int = 0
    events: int = 0
    snapshots: int = 0
    py_spy_start: Stamped | None = None  # of the file that py-spy wrote
    _py_spy: PySpy | None = None
    _marks: Marks | None = None
    _next_snapshot_ns: int = 0
    _next_look_ns: int = 0
    _deadline_ns: int | None = None

    def run(self) -> None:
        """Record until the target has ended, the time is up, the user stops it, or nothing lighter is left.

        Raise WorkError if perf refuses to begin; what goes wrong later is in `failure` and `is_partial`.
        """
        choice: Choice | None = self.choice
        self._note_missing()
        self._marks = Marks(self.perf, self.directory, self.choice.arch, self.clock)
        self.recorder_pids += self._marks.pids
        try:
            while choice is not None:
                self.choice = choice
                why = self._record()
                if why not in ("event_rate", "max_bytes"):
                    break
                choice = self._fall_back(why)
            self.snapshot()
        finally:
            self._end_py_spy()
            self._keep_marks(self._marks)
        if choice is None or self.failure is not None:
            self.is_partial = True
            self._wait_for_command()

    def snapshot(self) -> None:
        """Add a snapshot of the host's clocks to the capture."""
        with (self.directory / CLOCKS_FILE).open("a", encoding="utf-8") as out:
            out.write(clock_snapshots.to_line(self.snapshots, clock_snapshots.take()))
        if self._marks is not None:
            self._marks.mark(self.snapshots)
        self.snapshots += 1
        self._next_snapshot_ns = time.monotonic_ns() + SECOND_NS

    def _begin_py_spy(self) -> None:
        """Have py-spy look at the target too: at the command, or the first of the processes."""
        if self.py_spy_hz is None or self._py_spy is not None or not self.pids:
            return
        self._py_spy = PySpy(self.pids[0], self.directory / py_spy_record.FILE, self.py_spy_hz)
        if len(self.pids) > 1:
            self.notes.append(f"py-spy looks at process {self.pids[0]} and what it starts")

    def _end_py_spy(self) -> None:
        if self._py_spy is None:
            return
        try:
            self.py_spy_start = self._py_spy.stop()
        except WorkError as error:
            self.notes.append(str(error))
        self.recorder_pids += self._py_spy.pids

    def _keep_marks(self, marks: Marks) -> None:
        """Add what the tracers saw of the marks as snapshots of their own; a refused recording keeps none."""
        found = marks.finish()
        self.notes += marks.notes
        if self.snapshots:
            with (self.directory / CLOCKS_FILE).open("a", encoding="utf-8") as out:
                for number, readings in enumerate(found, self.snapshots):
                    out.write(clock_snapshots.to_line(number, readings))

    # ------------------------------------------------------------ one stretch with one preset

    def _record(self) -> str:
        """Record with the present preset; return why that ended."""
        running: list[tuple[PerfProcess, Growth]] = []
        start_ns = time.monotonic_ns()
        try:
            start_ns = self._start_again(running) if self.segments else self._start(running)
            why = self._watch(running) if running else "target_ended"
        except WorkError as error:
            if not self.segments:
                raise
            self.failure, why = error, "perf_refused"
        finally:
            self._end(running)
        self.wall_ns += time.monotonic_ns() - start_ns
        self.segments.append(Segment(spelled(self.choice), start_ns, time.monotonic_ns(), why))
        return why

    def _start_again(self, running: list[tuple[PerfProcess, Growth]]) -> int:
        """Start on those of the target's processes that are there now; perf refuses if one ends meanwhile."""
        for is_last in [False] * (_STARTS - 1) + [True]:
            if not self.choice.whole_machine:
                self.pids = tuple(with_descendants([*self.pids, *self.processes]))
                if not self.pids:
                    break
            try:
                return self._start(running)
            except WorkError as error:
                if "No such process" not in error.text or is_last:
                    raise
                self._end(running)
                for perf, _ in running:
                    perf.output.unlink(missing_ok=True)
                running.clear()
        return time.monotonic_ns()

    def _end(self, running: Sequence[tuple[PerfProcess, Growth]]) -> None:
        """End perfs, all at the same time."""
        for perf, _ in running:
            perf.interrupt()
        for perf, growth in running:
            self._close(perf, growth)

    def _start(self, running: list[tuple[PerfProcess, Growth]]) -> int:
        """Start the perfs of the preset, and let the command begin once all record; return since when."""
        allowed_bytes = self._allowed_bytes()
        suffix = f"-{len(self.segments) + 1}" if self.segments else ""
        wanted = parts(self.choice, has_event)
        for part in wanted:
            stem = "perf" if part.name == "target" else f"perf-{part.name}"
            output = self.directory / f"{stem}{suffix}.data"
            place = Placement(
                output=str(output),
                clock=self.clock,
                pids=self.pids,
                control=_CONTROL,
                recorder_pids=tuple(self.recorder_pids),
                max_bytes=allowed_bytes,
                cpus=os.cpu_count() or 1,
                is_root=os.geteuid() == 0,
            )
            perf = PerfProcess(self.perf, argv(part, place), _CONTROL, output)
            self.recorder_pids.append(perf.pid)
            running.append((perf, Growth(output)))
        for perf, _ in running:
            perf.enable()
            self.start_cpu_ns += perf.cpu_so_far_ns()
        start_ns = time.monotonic_ns()
        self.recordings += [
            Recording(perf.output, part, start_ns) for (perf, _), part in zip(running, wanted, strict=True)
        ]
        if self._deadline_ns is None and self.limits.for_ns is not None:
            self._deadline_ns = time.monotonic_ns() + self.limits.for_ns
        if not self.segments:
            self.look_at_processes()
            self.snapshot()
            if self.command is not None and not self.should_stop():
                self.command.release()
            self._begin_py_spy()
        return start_ns

    def _watch(self, running: Sequence[tuple[PerfProcess, Growth]]) -> str:
        """Look after running perfs until something ends this stretch; return what."""
        allowed_bytes = self._allowed_bytes()
        rate = Rate(self.limits.max_events_per_s, time.monotonic_ns())
        with Sleep([perf.pid for perf, _ in running] + ([self.command.pid] if self.command else [])) as sleep:
            self._next_look_ns = 0
            while True:
                ended = self._why_ended(running)
                if ended:
                    return ended
                for _, growth in running:
                    growth.read(self.limits.max_events_per_s * Rate.WINDOW_S + 1)
                if rate.is_over(time.monotonic_ns(), sum(growth.events for _, growth in running)):
                    return "event_rate"
                if sum(growth.offset for _, growth in running) > allowed_bytes:
                    return "max_bytes"
                if time.monotonic_ns() >= self._next_snapshot_ns:
                    self.snapshot()
                if time.monotonic_ns() >= self._next_look_ns:
                    self.look_at_processes()
                sleep.for_seconds(self._seconds_to_next_look())

    def _seconds_to_next_look(self) -> float:
        if self._deadline_ns is None:
            return _POLL_SECONDS
        return min(_POLL_SECONDS, max(self._deadline_ns - time.monotonic_ns(), 0) / SECOND_NS)

    def _why_ended(self, running: Sequence[tuple[PerfProcess, Growth]]) -> str:
        if self.should_stop():
            return "asked"
        if self.command is not None and self.command.poll() is not None:
            return "command_ended"
        if self._deadline_ns is not None and time.monotonic_ns() >= self._deadline_ns:
            return "time_up"
        if self.pids and self.command is None and not any(is_alive(pid) for pid in self.pids):
            return "target_ended"
        for perf, _ in running:
            status = perf.poll()
            if status is not None and perf.hit_size_limit:
                return "max_bytes"
            if status:
                self.failure = refusal(perf.stderr(), "unknown")
                return "perf_died"
            if status == 0:
                return "target_ended"
        return ""

    def _close(self, perf: PerfProcess, growth: Growth) -> None:
        """End a perf, and take over what it counted."""
        perf.stop()
        perf.close()
        self.perf_cpu_ns += perf.cpu_ns
        with suppress(OSError):
            growth.read()
        self.events += growth.events
        self.used_bytes += growth.offset
        if growth.lost:
            self.losses.add("kernel_lost", growth.lost)
        if growth.throttled:
            self.losses.add("kernel_throttled", growth.throttled)
        self.map_pids |= growth.pids

    # ------------------------------------------------------------ limits

    def _allowed_bytes(self) -> int:
        """Return how many bytes a stretch with the present preset may write."""
        left_bytes = max(self.limits.max_bytes - self.used_bytes, 1)
        return left_bytes if lighter(self.choice) is None else max(int(left_bytes * _HEAVY_SHARE), 1)

    def _fall_back(self, why: str) -> Choice | None:
        """Return what to record with from now on, None if nothing lighter is left; count and say it."""
        limit = (
            f"over {self.limits.max_events_per_s} events a second"
            if why == "event_rate"
            else f"over its share of {self.limits.max_bytes} bytes"
        )
        then = lighter(self.choice)
        what = "recording has ended" if then is None else f"going on with {spelled(then)}"
        note = f"preset {spelled(self.choice)} wrote {limit}: {what}"
        self.losses.add("dropped_event_rate")
        self.notes.append(note)
        self.say(note)
        return then

    def _wait_for_command(self) -> None:
        """Let a command that nobody watches any more run to its end, unless the user stops it."""
        if self.command is None:
            return
        if self.failure is not None and self.command.poll() is None:
            self.say(f"{self.failure.problem}; waiting for the command to end")
        while not self.should_stop() and self.command.wait(_POLL_SECONDS) is None:
            pass

    # ------------------------------------------------------------ what there is

    def _note_missing(self) -> None:
        missing = missing_events(self.choice, has_event)
        if missing:
            self.notes.append(f"this kernel has no {', '.join(missing)}")
        if self.choice.whole_machine and self.choice.preset != "cpu":
            self.notes.append("system calls are recorded for a command or for processes, not for the machine")

    def look_at_processes(self) -> None:
        """Keep the names and containers of the target's processes, as long as they are there to be seen."""
        self._next_look_ns = time.monotonic_ns() + SECOND_NS
        for pid in with_descendants(self.pids):
            if len(self.processes) < _MAX_PROCESSES and (seen := describe(pid)) is not None:
                self.processes[pid] = seen
        if self.command is not None and self.command.is_held and self.command.pid in self.processes:
            held = self.processes[self.command.pid]
            self.processes[self.command.pid] = replace(held, comm=escape(self.command.name))


def spelled(choice: Choice) -> str:
    """Return a preset for people, with its frequency where that is all that makes it lighter."""
    return f"{choice.preset} at {choice.frequency_hz} Hz" if choice.preset == "cpu" else choice.preset
