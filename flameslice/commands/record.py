"""`flameslice record`: a capture of a command, of running processes, or of the whole machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flameslice import outputs
from flameslice.quantities import parse_bytes, parse_labels, parse_pids
from flameslice.report import amount, loss_notes
from pipeline.errors import UsageError, one_line
from pipeline.text import shown

if TYPE_CHECKING:
    from collectors.presets import Choice
    from collectors.record_capture import Request
    from pipeline.capture import Manifest

CLOCKS = ("monotonic", "monotonic_raw", "boottime", "realtime", "tai", "perf")


@click.command(
    short_help="Record a command, processes or the whole machine with perf.",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[--] [COMMAND]...")
@click.option(
    "-o", "--output", metavar="NAME.capture", help="Write this directory.  [default: by the command]"
)
@click.option("--preset", type=click.Choice(["cpu", "latency", "full"]), default="latency", show_default=True)
@click.option("--pid", multiple=True, metavar="PID[,PID]", help="Record these processes until they end.")
@click.option("--all", "whole_machine", is_flag=True, help="Record the whole machine; needs --for.")
@click.option("--for", "duration", metavar="DURATION", help="End after so long: 10s, 500ms.")
@click.option(
    "--frequency",
    type=click.IntRange(1, 100_000),
    default=999,
    show_default=True,
    metavar="HZ",
    help="Samples a second.",
)
@click.option(
    "--cpu-event", default=None, metavar="EVENT", help="What samples CPU time.  [default: cpu-clock]"
)
@click.option(
    "--call-graph",
    type=click.Choice(["fp", "dwarf", "lbr"]),
    default="fp",
    show_default=True,
    help="How stacks are found; lbr needs Intel hardware and samples cycles.",
)
@click.option(
    "--py-spy",
    "py_spy_hz",
    type=click.IntRange(1, 1000),
    is_flag=False,
    flag_value=100,
    metavar="[HZ]",
    help="Have py-spy sample the Python stacks of the target too, so often a second (100).",
)
@click.option(
    "--clock",
    type=click.Choice(CLOCKS),
    default="monotonic",
    show_default=True,
    help="What stamps events; perf: its own default.",
)
@click.option(
    "--max-bytes", default="1G", show_default=True, metavar="SIZE", help="Fall back near this size."
)
@click.option(
    "--max-events-per-s",
    type=click.IntRange(1),
    metavar="N",
    help="Fall back to a lighter preset above this rate.  [default: 50000 per CPU, at most 400000]",
)
@click.option("--name", metavar="NAME", help="Name of the capture.  [default: the directory's]")
@click.option("--label", multiple=True, metavar="KEY=VALUE", help="A label; may be given several times.")
@click.option("--redact", is_flag=True, help="Keep host name and command arguments out of the capture.")
@click.option("--force", is_flag=True, help="Replace a capture of the same name.")
@click.option("--json", "as_json", is_flag=True, help="Print capture.json on standard output at the end.")
def record(**options: Any) -> int:
    """Record COMMAND, or processes (--pid), or the whole machine (--all), into a capture directory.

    The latency preset takes CPU samples and system calls of the target, and context switches, wake-ups,
    interrupts and block I/O of the machine; cpu takes samples only; full takes more. Ctrl-C ends it.
    """
    from collectors import record_capture
    from pipeline import capture

    request = _request(**options)
    manifest = record_capture.record(request, lambda line: outputs.note(f"flameslice: {one_line(line)}"))
    for line in report(manifest, request.output):
        outputs.note(line)
    if options["as_json"]:
        outputs.write(capture.to_json(manifest), None)
    return 0


def _request(**options: Any) -> Request:
    """Return what was asked for, or raise UsageError."""
    import os

    from collectors.perf_record import Limits
    from collectors.record_capture import Request
    from pipeline import timespec

    command, pids = options["command"], parse_pids(options["pid"])
    targets = [bool(command), bool(pids), options["whole_machine"]]
    if sum(targets) != 1:
        problem = "nothing to record" if not any(targets) else "more than one thing to record"
        raise UsageError(problem, "give one of: -- COMMAND, --pid PID, --all --for 10s")
    if options["py_spy_hz"] is not None and options["whole_machine"]:
        raise UsageError("py-spy looks at a process", "give -- COMMAND or --pid PID, or leave --py-spy out")
    for_ns = None if options["duration"] is None else timespec.parse_duration(options["duration"])
    if options["whole_machine"] and for_ns is None:
        raise UsageError("--all needs an end", "add --for 10s")
    output = Path(options["output"] or _default_output(command, pids))
    return Request(
        output=output,
        name=options["name"] or output.name.removesuffix(".capture"),
        choice=_choice(options, os.uname().machine),
        limits=Limits(
            parse_bytes(options["max_bytes"]),
            options["max_events_per_s"] or _default_rate(os.cpu_count() or 1),
            for_ns,
        ),
        clock=options["clock"],
        py_spy_hz=options["py_spy_hz"],
        command=tuple(command),
        pids=pids,
        labels=parse_labels(options["label"]),
        redact=options["redact"],
        replace_existing=options["force"],
    )


def _default_rate(cpus: int) -> int:
    """Return how many events a second a host of so many CPUs may be asked for.

    Our choice: an event takes about 1 us where it happens and another where perf copies it, so 50,000 are
    some 10 % of a CPU; one perf process copies 400,000 at most.
    """
    return min(50_000 * cpus, 400_000)


def _choice(options: dict[str, Any], arch: str) -> Choice:
    from collectors.presets import Choice

    default_event = "cycles" if options["call_graph"] == "lbr" else "cpu-clock"
    cpu_event = options["cpu_event"] or default_event
    if not cpu_event.isascii() or not cpu_event.replace("-", "").replace("_", "").isalnum():
        raise UsageError(f"{cpu_event!r} is not the name of an event", "give cpu-clock, task-clock or cycles")
    return Choice(
        preset=options["preset"],
        frequency_hz=options["frequency"],
        call_graph=options["call_graph"],
        cpu_event=cpu_event,
        whole_machine=options["whole_machine"],
        arch=arch,
    )


def _default_output(command: tuple[str, ...], pids: tuple[int, ...]) -> str:
    """Return a name that says what and when."""
    from datetime import UTC, datetime

    what = Path(command[0]).name if command else f"pid-{pids[0]}" if pids else "machine"
    return f"{what}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.capture"


def report(manifest: Manifest, output: Path) -> list[str]:
    """Return what a recording brought and what it cost, in lines for people."""
    recorder, where = manifest.recorder, one_line(shown(str(output)))
    recorded_bytes = sum(one.size_bytes for one in manifest.sources)
    events = sum(count for one in manifest.sources for count in one.events.values())
    preset = manifest.preset_used
    if preset != manifest.preset_asked:
        preset = f"{manifest.preset_asked}, fell back to {preset}"
    what = f"{manifest.status}, preset {preset}, {amount(recorder.wall_ns, 'ns')}"
    shares = (
        f"{recorder.cpu_share_percent:g} % of one CPU ({recorder.machine_share_percent:g} % of the machine)"
    )
    before, after = amount(recorder.start_cpu_ns, "ns"), amount(recorder.finish_cpu_ns, "ns")
    lines = [
        f"{where}: {what}, {events:,} events, {recorded_bytes / (1 << 20):.1f} MiB",
        f"recorder: {shares} while recording; {before} of CPU to start, {after} to resolve names",
    ]
    if manifest.command:
        lines.append(_ending(manifest.command_status))
    lines += [f"note: {one_line(note)}" for note in manifest.notes]
    lines += loss_notes(manifest.losses)
    lines.append(f"next: flameslice flamegraph {where} -o flamegraph.svg")
    return lines


def _ending(status: int | None) -> str:
    if status is None:
        return "the command still runs"
    return f"the command ended with status {status}" if status >= 0 else f"signal {-status} ended the command"
