"""Makes a capture: the directory, the recording, the text with names, and always a whole `capture.json`."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

from collectors import py_spy_record
from collectors.perf_process import find_perf
from collectors.perf_record import CLOCKS_FILE, Limits, Session
from collectors.perf_text import Recorded, TextReport, write_text
from collectors.presets import Choice
from collectors.processes import all_in_containers
from collectors.record_target import HeldCommand, check_running
from collectors.symbol_maps import copy_maps
from pipeline.capture import (
    MANIFEST_FILE,
    CaptureSource,
    Manifest,
    Recorder,
    described,
    new_id,
    write_manifest,
)
from pipeline.errors import FlamesliceError, WorkError, from_os_error
from pipeline.text import escape

TEXT_FILE = "perf.script.zst"
MAPS_FOLDER = "maps"
REDACTED = "<redacted>"


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for: a command, processes, or (choice.whole_machine) everything."""

    output: Path
    name: str
    choice: Choice
    limits: Limits
    clock: str = "monotonic"
    py_spy_hz: int | None = None  # None: without py-spy
    command: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    redact: bool = False
    replace_existing: bool = False


@dataclass(slots=True)
class _Interrupts:
    """Counts Ctrl-C and friends; while `raises`, one more is a KeyboardInterrupt."""

    count: int = 0
    raises: bool = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.raises:
            raise KeyboardInterrupt


def record(request: Request, say: Callable[[str], None]) -> Manifest:
    """Record a capture and return what its capture.json says; say(line) tells the user what happens.

    Raise WorkError if perf refuses (nothing is left then) or ends early (what there is stays readable).
    """
    perf = find_perf()
    if request.py_spy_hz is not None:
        py_spy_record.find_py_spy()
    check_running(request.pids)
    with _interrupts() as interrupts, _directory(request.output, request.replace_existing) as directory:
        command = HeldCommand(request.command) if request.command else None
        try:
            session = Session(
                directory=directory,
                perf=perf,
                choice=request.choice,
                clock=request.clock,
                py_spy_hz=request.py_spy_hz,
                limits=request.limits,
                command=command,
                pids=(command.pid,) if command is not None else request.pids,
                say=say,
                should_stop=lambda: interrupts.count > 0,
            )
            begun = _begun(request)
            write_manifest(directory, begun)
            own_cpu_ns = time.process_time_ns()
            session.run()
            own_cpu_ns = time.process_time_ns() - own_cpu_ns
        finally:
            status = command.end() if command is not None else None
        interrupts.raises = True
        manifest = _finish(request, replace(begun, command_status=status), session, own_cpu_ns)
        interrupts.raises = False
        write_manifest(directory, manifest)
    if session.failure is not None:
        kept = f"what was recorded before is in {request.output} (status {manifest.status})"
        raise WorkError(f"perf ended early: {session.failure.problem}", kept, text=session.failure.text)
    return manifest


def _begun(request: Request) -> Manifest:
    """Return the manifest of a capture that begins now."""
    realtime_ns = time.time_ns()
    command = tuple(escape(word) for word in request.command)
    if request.redact and command:
        command = (Path(command[0]).name, *([REDACTED] if len(command) > 1 else []))
    return Manifest(
        id=new_id(realtime_ns),
        name=escape(request.name),
        status="receiving",
        host=REDACTED if request.redact else platform.node(),
        boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        kernel=platform.release(),
        arch=request.choice.arch,
        cpus=os.cpu_count() or 1,
        start_realtime_ns=realtime_ns,
        start_monotonic_ns=time.monotonic_ns(),
        command=command,
        pids=request.pids,
        labels=request.labels,
        preset_asked=request.choice.preset,
        frequency_hz=request.choice.frequency_hz,
        call_graph=request.choice.call_graph,
        redacted=request.redact,
    )


def _finish(request: Request, begun: Manifest, session: Session, own_cpu_ns: int) -> Manifest:
    """Resolve names, gather what belongs to the capture, and return its last manifest."""
    start_ns, start_cpu_ns = time.monotonic_ns(), _all_cpu_ns()
    notes = session.notes
    try:
        sources, is_complete = _sources(request, session)
    except KeyboardInterrupt:
        notes.append("interrupted while names were resolved: only perf.data is there")
        (session.directory / TEXT_FILE).unlink(missing_ok=True)
        sources, is_complete = _raw_sources(session), False
    sources = [described(session.directory, source) for source in sources]
    processes = session.processes.values()
    if request.choice.whole_machine:
        processes = {one.pid: one for one in all_in_containers()}.values()
    cpu_ns = own_cpu_ns + session.perf_cpu_ns - session.start_cpu_ns
    wall_ns = max(session.wall_ns, 1)
    return replace(
        begun,
        status="complete" if is_complete and not session.is_partial else "partial",
        preset_used=session.choice.preset,
        frequency_hz=session.choice.frequency_hz,
        segments=tuple(session.segments),
        processes=tuple(processes),
        sources=tuple(sources),
        losses=session.losses.as_tuple(),
        recorder=Recorder(
            pids=tuple(session.recorder_pids),
            wall_ns=wall_ns,
            cpu_ns=cpu_ns,
            start_cpu_ns=session.start_cpu_ns,
            cpu_share_percent=round(100 * cpu_ns / wall_ns, 2),
            machine_share_percent=round(100 * cpu_ns / wall_ns / begun.cpus, 2),
            finish_wall_ns=time.monotonic_ns() - start_ns,
            finish_cpu_ns=_all_cpu_ns() - start_cpu_ns,
        ),
        notes=tuple(notes),
    )


def _sources(request: Request, session: Session) -> tuple[list[CaptureSource], bool]:
    """Write the text and copy the maps; return the capture's files, and whether all was read."""
    directory, cpu_event = session.directory, request.choice.cpu_event
    report = _write_text(session, cpu_event)
    session.notes += report.failures
    if report.recorder_samples:
        session.notes.append(
            f"left out of the text: {report.recorder_samples} samples of the recorder itself"
        )
    map_pids = session.map_pids - set(session.recorder_pids)
    names, notes = copy_maps(map_pids, directory / MAPS_FOLDER)
    session.notes += notes
    sources = [
        CaptureSource(
            TEXT_FILE,
            "perf_script",
            session.clock,
            default_event=report.default_event(cpu_event),
            events=dict(report.events.most_common()),
        )
    ]
    if report.failures and not report.events:
        (directory / TEXT_FILE).unlink()
        sources = []
    sources += _raw_sources(session)
    sources += [CaptureSource(f"{MAPS_FOLDER}/{name}", "perf_map") for name in names]
    if request.redact:  # perf.data names the host and the command
        for recording in session.recordings:
            recording.path.unlink(missing_ok=True)
        sources = [source for source in sources if source.format != "perf_data"]
    return sources, not report.failures


def _write_text(session: Session, cpu_event: str) -> TextReport:
    has_system = any(one.part.name == "system" for one in session.recordings)
    recorded = [
        # of two perfs that see the same process, the one that sees the machine tells its forks and names
        Recorded(
            one.path,
            one.part.switch_records,
            one.part.whole_machine or not has_system,
            one.start_ns if session.clock == "monotonic" else 0,
        )
        for one in session.recordings
        if one.path.exists()
    ]
    path = session.directory / TEXT_FILE
    try:
        with path.open("xb") as out:
            return write_text(session.perf, recorded, cpu_event, frozenset(session.recorder_pids), out)
    except OSError as error:
        return TextReport(failures=[str(from_os_error(error, str(path)))])


def _raw_sources(session: Session) -> list[CaptureSource]:
    found = [one.path.name for one in session.recordings if one.path.exists()]
    sources = [CaptureSource(name, "perf_data", session.clock) for name in found]
    start = session.py_spy_start
    if start is not None:
        sources.append(
            CaptureSource(
                py_spy_record.FILE,
                py_spy_record.FORMAT,
                "relative",
                start_monotonic_ns=start.start_ns,
                start_uncertainty_ns=start.uncertainty_ns,
            )
        )
    return [*sources, CaptureSource(CLOCKS_FILE, "clock_snapshots")]


def _all_cpu_ns() -> int:
    """Return the CPU time of this process and of its children that have ended."""
    times = os.times()
    return round((times.user + times.system + times.children_user + times.children_system) * 1e9)


@contextmanager
def _interrupts() -> Iterator[_Interrupts]:
    """Count the signals that ask for an end instead of dying from them."""
    interrupts = _Interrupts()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupts) for number in numbers}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _directory(output: Path, replace_existing: bool) -> Iterator[Path]:
    """Give a new directory; remove it again if recording is refused, and put back what stood there before."""
    old: Path | None = None
    try:
        if os.path.lexists(output):
            old = _set_aside(output, replace_existing)
        output.mkdir(parents=True)
    except OSError as error:
        raise from_os_error(error, str(output)) from error
    try:
        yield output
    except BaseException as error:
        if isinstance(error, FlamesliceError) and not _has_recorded(output):
            shutil.rmtree(output, ignore_errors=True)
            if old is not None:
                old.rename(output)
        raise
    if old is not None:
        shutil.rmtree(old)


def _set_aside(output: Path, replace_existing: bool) -> Path:
    if not replace_existing:
        remedy = "give another name with -o, or --force to replace it"
        raise WorkError("already there", remedy, path=str(output))
    is_ours = output.is_dir() and ((output / MANIFEST_FILE).is_file() or not any(output.iterdir()))
    if not is_ours or output.is_symlink():
        raise WorkError("not a capture, so it is not replaced", "give another name with -o", path=str(output))
    old = output.with_name(f".{output.name}.{os.getpid()}")
    output.rename(old)
    return old


def _has_recorded(directory: Path) -> bool:
    return (directory / CLOCKS_FILE).exists()
