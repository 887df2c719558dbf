"""Which format is this? By content, over several lines, never by the file's name.

First what only one format can be (magic bytes), then the readers' own `sniff`, then what is known but not read: each of
those is refused in one line that says what it is and what to do.
"""

from __future__ import annotations

import importlib
import json
import re
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from pipeline.errors import InputError, UsageError

if TYPE_CHECKING:
    from collectors.source import Source

# format -> module; the order is the order in which they are asked
READERS: dict[str, str] = {
    "perf_script": "collectors.perf_script",
    "speedscope": "collectors.speedscope",
    "chrome_trace": "collectors.chrome_trace",
    "py_spy_raw": "collectors.py_spy",
    "collapsed": "collectors.collapsed",
}
PERF_DATA = "perf_data"  # read through perf script: see perf_data.py
_ENTRY_POINTS = "flameslice.readers"
_LOOK_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Known:
    """A format that is recognised and not read."""

    pattern: re.Pattern[bytes]
    what: str
    remedy: str = ""


_AS_SCRIPT = "give the output of perf script instead"
_NOT_YET = "this version reads perf, py-spy, speedscope and folded stacks"

_BINARY: tuple[tuple[bytes, str, str], ...] = (
    (
        b"PERFFILE",
        "a perf.data file of the first version (PERFFILE v1), which perf itself no longer reads",
        "record again",
    ),
    (b"SIMPLEPERF", "a simpleperf protobuf", "print it with simpleperf's report_sample.py"),
    (b"SQLite format 3\0", "an SQLite database (an Nsight Systems export?)", _NOT_YET),
    (b"NVR\0", "an Nsight Compute report", "export it with ncu --import FILE --csv; " + _NOT_YET),
    (b"\x7fELF", "a program (ELF), not a recording of one", "record it: flameslice record -- PROGRAM"),
    (b"PK\x03\x04", "a zip archive", "unpack it first"),
    (b"\x89PNG", "a PNG picture", "give the capture that it was made from"),
    (b"PAR1", "a Parquet file", "open it with polars, pandas or DuckDB"),
    (b"\x17\x08\x44tracing", "a trace-cmd file (trace.dat)", _NOT_YET),
    (b"%PDF", "a PDF document", "give the capture that it was made from"),
)

_TEXT: tuple[Known, ...] = (
    Known(re.compile(rb"^\|[-| :]+\|\s*$", re.M), "a Markdown document", _AS_SCRIPT),
    Known(
        re.compile(rb"<svg[\s>]"),
        "an SVG picture",
        "give the capture or the folded stacks that it was made from",
    ),
    Known(
        re.compile(rb"(?i)^\s*(?:<!doctype html|<html)"),
        "an HTML page",
        "give the capture that it was made from",
    ),
    Known(re.compile(rb"^\s*<\?xml|^\s*<nvidia_smi_log"), "an XML document", _NOT_YET),
    Known(
        re.compile(rb"^\s*time\s+cpu\s+task name\s", re.M), "the output of perf sched timehist", _AS_SCRIPT
    ),
    Known(re.compile(rb"^\s*Runtime summary\s*$", re.M), "the summary of perf sched timehist", _AS_SCRIPT),
    Known(
        re.compile(rb"^\s*\d+\.\d+ \(\s*(?:\d+\.\d+ ms)?\s*\): .*\(.*\) += ", re.M),
        "the output of perf trace",
        _AS_SCRIPT,
    ),
    Known(
        re.compile(rb"^# Overhead\s|^#\s*Samples: .*of event", re.M), "the output of perf report", _AS_SCRIPT
    ),
    Known(
        re.compile(rb"^\s*Performance counter stats for ", re.M),
        "the output of perf stat",
        "it counts, and has no stacks",
    ),
    Known(
        re.compile(rb"^# tracer: |^cpus=\d+$|^version = \d+$|^TRACE:$", re.M),
        "ftrace or trace-cmd text",
        _NOT_YET,
    ),
    Known(re.compile(rb"^==(?:PROF|WARNING|ERROR)== ", re.M), "Nsight Compute's output", _NOT_YET),
    Known(re.compile(rb'^"?ID"?,"?Process ID"?,"?Process Name"?', re.M), "an Nsight Compute CSV", _NOT_YET),
    Known(
        re.compile(rb"^\s*Section: |^\s*Metric Name\s+Metric Unit", re.M),
        "Nsight Compute's text output",
        _NOT_YET,
    ),
    Known(re.compile(rb"^Time \(%\),Total Time \(ns\)", re.M), "an nsys stats CSV", _NOT_YET),
    Known(
        re.compile(rb"^Process \d+: .*\n(?:Python v|\n)", re.M),
        "py-spy dump's text",
        "record with py-spy record -f raw",
    ),
    Known(re.compile(rb"^# (?:HELP|TYPE) \w+", re.M), "Prometheus metrics", _NOT_YET),
    Known(
        re.compile(rb"^\s+[\w`]+(?:\+0x[0-9a-f]+)?\n\s+\d+\n\n", re.M),
        "DTrace stacks",
        "collapse them with stackcollapse.pl",
    ),
    Known(
        re.compile(rb"^(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] |^[-+| \\]+-\[", re.M),
        "lspci's output",
        _NOT_YET,
    ),
    Known(
        re.compile(rb"^\s*GPU0\s|^\| NVIDIA-SMI |^==+NVSMI LOG==+|^GPU \d+: |^Topology path", re.M),
        "nvidia-smi's output",
        _NOT_YET,
    ),
    Known(re.compile(rb"^#!"), "a script", "record it: flameslice record -- SCRIPT"),
)

_SPEEDSCOPE = b"speedscope.app/file-format-schema"


def detect(source: Source, forced: str | None = None) -> str:
    """Return the name of the reader for a source: a key of READERS, PERF_DATA, or that of an installed third party.

    Raises InputError that says what the source is where nothing reads it, UsageError for an unknown forced name.
    """
    if forced is not None:
        if forced not in READERS and forced != PERF_DATA and forced not in _third_party():
            known = ", ".join([*READERS, PERF_DATA])
            raise UsageError(f"no input format {forced!r}", f"known are {known}")
        return forced
    head = source.head(_LOOK_BYTES)
    if not head.strip(b"\0 \t\r\n"):
        raise InputError(
            "the file is empty" if not head else "the file holds nothing but blanks", path=source.name
        )
    if head.startswith((b"PERFILE2", b"2ELIFREP")):
        return PERF_DATA
    for magic, what, remedy in _BINARY:
        if head.startswith(magic):
            raise _refusal(source, what, remedy)
    if head[257:262] == b"ustar":
        raise _refusal(source, "a tar archive without a capture", "unpack it and give the capture in it")
    name = _claimed(head)
    if name is not None:
        return name
    for third_party, module in _third_party().items():
        if module.sniff(head):
            return third_party
    raise _unreadable(source, head)


def _claimed(head: bytes) -> str | None:
    """Return the first reader that claims the beginning of a file."""
    stripped = head.lstrip()
    if stripped.startswith((b"{", b"[")) and not _looks_like_comm(stripped):
        return _json_reader(head)
    if re.match(rb"(?i)\s*<(?:\?xml|svg|!doctype|html)", head):
        return None
    for name, module in READERS.items():
        if name in ("speedscope", "chrome_trace"):
            continue
        if name == "py_spy_raw" and any(known.pattern.search(head) for known in _TEXT):
            return None  # many texts hold lines that end in a number, as folded stacks do
        answer = importlib.import_module(module).sniff(head)
        if answer or (answer is None and name == "collapsed" and _is_whole_collapsed(head)):
            return name
    return None


def _looks_like_comm(head: bytes) -> bool:
    """Return whether a text begins with a process name in brackets, `[kworker/0] 20966 841.1:`, and not with JSON."""
    return re.match(rb"\[[^\]\n\"{]*\]\s+\d+", head) is not None


def _is_whole_collapsed(head: bytes) -> bool:
    from collectors import collapsed

    return len(head) < _LOOK_BYTES and collapsed.holds_only_stacks(head)


def _json_reader(head: bytes) -> str | None:
    if _SPEEDSCOPE in head or (b'"shared"' in head and b'"profiles"' in head):
        return "speedscope"
    has_phase = re.search(rb'"ph"\s*:\s*"', head) is not None
    if has_phase and b'"baseTimeNanoseconds"' not in head and b'"deviceProperties"' not in head:
        return "chrome_trace"
    return None


def _unreadable(source: Source, head: bytes) -> InputError:
    stripped = head.lstrip()
    if stripped.startswith((b"{", b"[")):
        return _refusal(source, _json_kind(head), _NOT_YET)
    if re.search(rb"<svg[\s>]", head[:4096]):
        return _refusal(source, "an SVG picture", _TEXT[0].remedy)
    if b"\0" in head[:4096] or _odd_share(head[:4096]) > 0.3:
        return _refusal(
            source, "binary data of an unknown kind", "give perf.data, or the output of perf script"
        )
    for known in _TEXT:
        if known.pattern.search(head):
            return _refusal(source, known.what, known.remedy)
    return _refusal(source, "text of an unknown kind", _AS_SCRIPT)


def _json_kind(head: bytes) -> str:
    """Say which JSON this is, by its keys."""
    kinds = (
        (rb'"resourceSpans"', "OpenTelemetry spans (OTLP JSON)"),
        (rb'"deviceProperties"|"baseTimeNanoseconds"', "a PyTorch profiler trace"),
        (rb'"linux-perf-json-version"', "the output of perf data convert --to-json"),
        (rb'"thread_id".*"frames"|"frames".*"thread_name"', "py-spy dump --json"),
        (rb'"traceID"|"operationName"', "Jaeger spans"),
        (rb'"traceId".*"localEndpoint"', "Zipkin spans"),
    )
    for pattern, what in kinds:
        if re.search(pattern, head, re.S):
            return what
    try:
        json.loads(head)
    except ValueError:
        return "JSON of an unknown kind"
    except RecursionError:
        return "JSON nested too deeply"
    return "JSON of an unknown kind"


def _odd_share(head: bytes) -> float:
    odd = sum(byte < 9 or 13 < byte < 32 or byte == 127 for byte in head)
    return odd / max(1, len(head))


def _refusal(source: Source, what: str, remedy: str) -> InputError:
    return InputError(f"this is {what}, not a capture that flameslice reads", remedy, path=source.name)


def _third_party() -> dict[str, Any]:
    """Return the readers that other packages install, by name."""
    return {entry.name: entry.load() for entry in entry_points(group=_ENTRY_POINTS)}
