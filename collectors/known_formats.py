"""What is this file, if no reader takes it? A catalogue of what people hand over instead of a capture.

Each entry has words for what it is and for what to do. Binary formats are told by their first bytes, JSON by its keys,
text by a line that no stack trace has; the first entry that fits counts.
"""

from __future__ import annotations

import re
from typing import NamedTuple

AS_SCRIPT = "give the output of perf script"
NOT_YET = "this version reads perf, ftrace, py-spy, speedscope, Chrome traces and folded stacks"
_ITS_SOURCE = "give the capture or the folded stacks that it was made from"
_RECORD_RAW = "record with py-spy record -f raw, speedscope or chrometrace"
_WITH_PRINT = "print its samples: perf script, or give perf.data"
_TABLES = "open it with polars, pandas or DuckDB"
_UNPACK = "unpack it and give the capture in it"


class Kind(NamedTuple):
    """What a file is, and what to do instead."""

    what: str
    remedy: str = NOT_YET
    clocks: str = ""  # what source_clocks calls it, where that can say something of its times


EMPTY = Kind("empty", "record again")
# what source_clocks takes and no reader of samples does
CLOCKS_ONLY = (
    "nsys_sqlite",
    "kineto",
    "otlp_json",
    "jaeger_json",
    "zipkin_json",
    "triton_json",
    "prometheus",
    "nvidia_smi",
    "nvidia_smi_csv",
)

_MAGIC: tuple[tuple[bytes, Kind], ...] = (
    (
        b"PERFFILE",
        Kind(
            "a perf.data file of the first version (PERFFILE v1), which perf no longer reads", "record again"
        ),
    ),
    (b"SIMPLEPERF", Kind("a simpleperf protobuf", "print it with simpleperf's report_sample.py")),
    (b"SQLite format 3\0", Kind("an SQLite database (Nsight Systems exports one)", clocks="nsys_sqlite")),
    (b"NVR\0", Kind("an Nsight Compute report (.ncu-rep)")),
    (b"\x17\x08\x44tracing", Kind("a trace-cmd file (trace.dat)", "print it: trace-cmd report -t")),
    (b"\x7fELF", Kind("a program or core dump (ELF)", "record it: flameslice record -- PROGRAM")),
    (b"MZ", Kind("a Windows program", "record it where it runs")),
    (b"PK\x03\x04", Kind("a zip archive", _UNPACK)),
    (b"7z\xbc\xaf\x27\x1c", Kind("a 7-Zip archive", _UNPACK)),
    (b"\x04\x22\x4d\x18", Kind("an lz4 file", "unpack it with lz4 -d")),
    (b"\x89PNG", Kind("a PNG picture", _ITS_SOURCE)),
    (b"\xff\xd8\xff", Kind("a JPEG picture", _ITS_SOURCE)),
    (b"GIF8", Kind("a GIF picture", _ITS_SOURCE)),
    (b"%PDF", Kind("a PDF document", _ITS_SOURCE)),
    (b"PAR1", Kind("a Parquet file", _TABLES)),
    (b"ARROW1", Kind("an Arrow file", _TABLES)),
    (b"FLR\0", Kind("a Java Flight Recorder file", "convert it: jfrconv -o collapsed FILE OUT")),
    (b"JAVA PROFILE", Kind("a Java heap dump", "heap dumps hold no samples")),
    (b"memray\0", Kind("a memray capture", "it measures memory; draw it with memray flamegraph")),
    (b"Nettrace", Kind(".NET's nettrace", "convert it: dotnet-trace convert --format speedscope")),
)

_JSON: tuple[tuple[re.Pattern[bytes], Kind], ...] = tuple(
    (re.compile(pattern, re.S), kind)
    for pattern, kind in (
        (rb'"resourceSpans"|"scopeSpans"', Kind("OpenTelemetry spans (OTLP JSON)", clocks="otlp_json")),
        (rb'"resourceMetrics"', Kind("OpenTelemetry metrics (OTLP JSON)", clocks="otlp_json")),
        (rb'"resourceLogs"', Kind("OpenTelemetry logs (OTLP JSON)", clocks="otlp_json")),
        (
            (
                rb'"deviceProperties"|"baseTimeNanoseconds"|"distributedInfo"'
                rb'|"cat"\s*:\s*"(?:[Kk]ernel|cpu_op|cuda_runtime|Runtime|gpu_memcpy|Operator)"'
            ),
            Kind("a PyTorch profiler trace", clocks="kineto"),
        ),
        (rb'"linux-perf-json-version"', Kind("the output of perf data convert --to-json", _WITH_PRINT)),
        (
            rb'"EventHeaderPerf|"n"\s*:\s*"\w+:\w+"',
            Kind("LinuxTracepoints' JSON of a perf.data", _WITH_PRINT),
        ),
        (rb'"os_thread_id".*"frames"', Kind("py-spy dump --json, a single look at each thread", _RECORD_RAW)),
        (rb'"localEndpoint"', Kind("Zipkin spans", clocks="zipkin_json")),
        (rb'"traceID"|"operationName"|"serviceName"', Kind("Jaeger spans", clocks="jaeger_json")),
        (rb'"timeDeltas"', Kind("a V8 .cpuprofile", "open it in speedscope and export its JSON")),
        (
            rb'"stackTable"|"frameTable"',
            Kind("a Firefox profile", "open it in speedscope and export its JSON"),
        ),
        (rb'"hash_ids"', Kind("a trace of inference requests (Mooncake)")),
        (rb'"timestamps".*"ns"', Kind("a Triton trace", clocks="triton_json")),
        (rb'"experiments".*"requests"|"time_to_first_token"', Kind("a genai-perf report")),
        (rb'"load_summary"', Kind("an inference-perf report")),
        (rb'"flamebearer"', Kind("a Pyroscope profile", "export it as collapsed stacks or speedscope")),
    )
)

_TEXT: tuple[tuple[re.Pattern[bytes], Kind], ...] = tuple(
    (re.compile(pattern, re.M), kind)
    for pattern, kind in (
        # perf's other outputs
        (rb"^\s*time\s+cpu\s.*task name\s", Kind("the output of perf sched timehist", _WITH_PRINT)),
        (
            rb"^ *\d+\.\d{6} \[\d{4}\]\s+\S.*\[\d+(?:/\d+)?\](?:\s+\d+\.\d{3}){3}",
            Kind("the output of perf sched timehist", _WITH_PRINT),
        ),
        (rb"^Runtime summary\s*$", Kind("the summary of perf sched timehist", _WITH_PRINT)),
        (rb"^\s*Task +\| +Runtime ms +\|", Kind("the output of perf sched latency", _WITH_PRINT)),
        (rb"^ +(?:[ *]?[A-Z.]\d ?)+ +\d+\.\d+ secs", Kind("the output of perf sched map", _WITH_PRINT)),
        (
            rb"^ *(?:\d+\.\d+|\?) \( *(?:\d+\.\d+ ms)? *\): .*(?:\) += |continued\])",
            Kind("the output of perf trace, not of perf script", _WITH_PRINT),
        ),
        (rb"^ *Summary of events:\s*$", Kind("the summary of perf trace", _WITH_PRINT)),
        (
            rb"^# To display the perf\.data header info|^# Overhead\s|^#\s*Samples: .*of event",
            Kind("the output of perf report", _WITH_PRINT),
        ),
        (rb"^ *Percent \|\s+Source code", Kind("the output of perf annotate", _WITH_PRINT)),
        (
            rb"^ *Performance counter stats for |\A# started on \w+ \w+ ",
            Kind("the output of perf stat", "it counts, and has no stacks"),
        ),
        (rb"^\. \.\.\. raw event: size", Kind("the output of perf script -D", "leave out -D")),
        (rb"^# cmdline : .*perf", Kind("the header of a perf.data alone", _WITH_PRINT)),
        (rb'^"EventHeaderPerf', Kind("LinuxTracepoints' JSON of a perf.data", _WITH_PRINT)),
        # other tools' stacks and traces
        (
            rb"^\s*[\w.]+`[\w$.:~]+(?:\+0x[0-9a-f]+)?$",
            Kind("stacks of DTrace", "collapse them with stackcollapse.pl"),
        ),
        (rb"^@(?:\w*)\[$", Kind("stacks of bpftrace", "collapse them with stackcollapse-bpftrace.pl")),
        (
            rb"^Process \d+: .*\nPython v",
            Kind("py-spy dump, a single look at each thread", _RECORD_RAW),
        ),
        (rb"^(?:# callgrind format|events: \w+)", Kind("Callgrind's output", "it counts instructions")),
        (rb"^Flat profile:\s*$", Kind("gprof's output", "it has no stacks")),
        (rb"^heap profile: |^--- contentionz", Kind("a pprof profile in its old text form")),
        # NVIDIA's
        (rb"^==(?:PROF|WARNING|ERROR)== ", Kind("the output of Nsight Compute (ncu)")),
        (rb'^"?ID"?,"?Process ID"?,"?Process Name"?', Kind("a CSV of Nsight Compute (ncu)")),
        (rb'^"Kernel Name",".*\n"Address","Source"', Kind("a source page of Nsight Compute (ncu)")),
        (
            rb"^ *Section: |^ *Metric Name +Metric Unit|Nsight Compute Comm",
            Kind("the output of Nsight Compute (ncu)"),
        ),
        (rb"^\w+__\w+ +(?:Counter|Ratio|Throughput) ", Kind("a list of Nsight Compute's metrics")),
        (rb"^Time \(%\),Total Time \(ns\)", Kind("a CSV of nsys stats")),
        (
            rb"^\s*GPU0\s|^\| NVIDIA-SMI |^==+NVSMI LOG==+|^GPU \d+: |^\$ nvidia-smi",
            Kind("the output of nvidia-smi", clocks="nvidia_smi"),
        ),
        (
            rb"\A(?:[\w.]+(?: \[[^\],]*\])?, ?)*timestamp,(?: ?[\w.]+(?: \[[^\],]*\])?,?)+\s",
            Kind("a CSV of nvidia-smi", clocks="nvidia_smi_csv"),
        ),
        (rb"^memcpy \w+ CPU\(row\)", Kind("the output of nvbandwidth")),
        (rb"^DCGM_FI_\w+, *\w+", Kind("a list of DCGM's fields")),
        (
            rb"^(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] \w|^-\[[0-9a-f]{4}:",
            Kind("the output of lspci"),
        ),
        # metrics and requests
        (rb"^# (?:HELP|TYPE) \w+", Kind("metrics in Prometheus' text format", clocks="prometheus")),
        (
            rb'^[a-zA-Z_:][\w:]*\{(?:\w+="[^"\n]*",?)+\} \S+$',
            Kind("metrics in Prometheus' text format", clocks="prometheus"),
        ),
        (rb"^TIMESTAMP,ContextTokens,GeneratedTokens", Kind("a trace of inference requests (Azure)")),
        (rb"^Metric,avg,min,max,", Kind("a genai-perf report")),
        (rb'^"?build_commit"?,"?build_number"?', Kind("a llama-bench report")),
    )
)

# looked at last: weak marks, and only where no reader claimed the text
_GENERAL: tuple[tuple[re.Pattern[bytes], Kind], ...] = tuple(
    (re.compile(pattern, re.M), kind)
    for pattern, kind in (
        (rb"\A#!", Kind("a script", "record it: flameslice record -- SCRIPT")),
        (
            rb"^#include |^(?:import|from) [\w.]+(?: import .*)?;?$|^(?:def|class|func|fn) \w+",
            Kind("source code", AS_SCRIPT),
        ),
        (rb"\A\s*(?:# \S|\|)|^\|[-| :]+\|\s*$", Kind("a Markdown document", AS_SCRIPT)),
        (rb"\A\s*(?:apiVersion:|---$|\w+:\n  ?\S)", Kind("a YAML document", AS_SCRIPT)),
        (
            rb"\A[^,\n]+(?:,[^,\n]*){2,}\n[^,\n]*(?:,[^,\n]*){2,}",
            Kind("a CSV table of an unknown kind", AS_SCRIPT),
        ),
    )
)

# not `<module> (a.py:1);...`, which begins many stacks of Python
_MARKUP = re.compile(rb"\s*<(?:\?xml|!doctype|!--|svg\s*/?>|html\s*>|[a-z][\w:-]*\s+[\w:-]+\s*=)", re.I)
_SVG = re.compile(rb"<svg[\s/>]", re.I)
_HTML = re.compile(rb"<!doctype html|<html[\s>]", re.I)
_PPROF_WORDS = (b"nanoseconds", b"samples", b"count", b"inuse_space", b"alloc_space")


def of_binary(head: bytes) -> Kind | None:
    """Return what a file with these first bytes can only be."""
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if head[257:262] == b"ustar":
        return Kind("a tar archive", _UNPACK)
    return None


def of_markup(head: bytes) -> Kind | None:
    """Return which XML or HTML this is, None for anything else."""
    if not _MARKUP.match(head):
        return None
    if _SVG.search(head[:8192]):
        return Kind("an SVG picture", _ITS_SOURCE)
    if _HTML.search(head[:8192]):
        return Kind("an HTML page", _ITS_SOURCE)
    if b"<nvidia_smi_log" in head[:8192]:
        return Kind("the XML of nvidia-smi", clocks="nvidia_smi")
    return Kind("an XML document")


def of_json(head: bytes) -> Kind:
    """Return which JSON this is, by its keys."""
    return _first(_JSON, head) or Kind("JSON of an unknown kind")


def of_text(head: bytes) -> Kind | None:
    """Return what a text is that has a line no capture has."""
    return _first(_TEXT, head)


def of_anything(head: bytes) -> Kind:
    """Return the best words for what nothing else recognised."""
    if b"\0" in head[:4096] or _odd_share(head[:4096]) > 0.1:
        if head[:1] == b"\x0a" and sum(word in head for word in _PPROF_WORDS) >= 2:
            return Kind("a pprof profile", "export it: go tool pprof -raw, or as collapsed stacks")
        if head[:1] == b"\x0a" and b"service.name" in head:
            return Kind("OpenTelemetry data (OTLP protobuf)")
        return Kind("binary data of an unknown kind", "give perf.data, or the output of perf script")
    return _first(_GENERAL, head) or Kind("text of an unknown kind", AS_SCRIPT)


def _first(kinds: tuple[tuple[re.Pattern[bytes], Kind], ...], head: bytes) -> Kind | None:
    return next((kind for pattern, kind in kinds if pattern.search(head)), None)


def _odd_share(head: bytes) -> float:
    """Return the share of control characters that no text holds."""
    odd = sum(byte < 8 or 13 < byte < 27 or 27 < byte < 32 or byte == 127 for byte in head)
    return odd / max(1, len(head))
