"""A file is read as what it holds, whatever it is called; anything else is refused in one line that names it."""

from __future__ import annotations

import gzip
import io
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import ModuleType

import pytest
import zstandard

import collectors
from collectors import detection, known_formats, source_clocks
from collectors.source import Source
from pipeline.errors import FlamesliceError, InputError, UsageError


def detect(data: bytes, forced: str | None = None) -> str:
    return collectors.detect(Source("file", io.BytesIO(data)), forced)


READ = {
    "perf_script": [
        b"app 7/8 [001] 12.345678: 250000 cpu-clock:\n\t7f12 main+0x1 (/bin/app)\n\n",
        b"[kworker/0] 20966 841.100000: 250000 cpu-clock:\n\tffff schedule ([kernel.kallsyms])\n",
        b"# ========\n# captured on: today\n# ========\n#\napp 7 1.000000: cycles:\n\t1 f (a)\n",
        b"app 7 [000] 1.000000: sched:sched_switch: prev_comm=app prev_pid=7 ==> next_comm=b next_pid=8",
    ],
    "ftrace": [
        (
            b"# tracer: nop\n#\n# entries-in-buffer/entries-written: 3/3   #P:2\n#\n"
            b"   bash-123  [000] d..2.  12.345678: sched_switch: prev_comm=bash prev_pid=123 ==> next_pid=0\n"
        ),
        b"cpus=2\n   bash-123  [000]  12.345678: sched_switch: bash:123 [120] S ==> swapper/0:0 [120]\n",
        b"   bash-123   (  123) [000] d..2.  12.345678: sched_switch: prev_comm=bash prev_pid=123 ==> next_pid=0\n",
    ],
    "collapsed": [
        b"main;work;leaf 12\n",
        b"[kworker/0];worker_thread 3\n",
        b"[unknown] 3",
        b"main 12",
        b"# austin: 3.3.0\n\nP1;T1;f:3 10\n",
        b"<svg parse>;f 2\n",
        b"app;GPU0 wait 3\napp;Section: 4\n",
    ],
    "py_spy_raw": [b"<module> (a.py:1);f (a.py:2) 3\n"],
    "speedscope": [
        b'{"$schema":"https://www.speedscope.app/file-format-schema.json","profiles":[],"shared":{"frames":[]}}',
        b'{"shared": {"frames": []}, "profiles": []}',
    ],
    "chrome_trace": [
        b'[{"ph": "B", "name": "a", "ts": 1}',
        b'\n{"traceEvents": [\n{"ph": "X", "name": "a", "ts": 1, "dur": 2}]}',
    ],
    "perf_data": [
        b"PERFILE2\x68\0\0\0\0\0\0\0",
        b"PERFILE2\x10\0\0\0\0\0\0\0",  # from a pipe
        b"2ELIFREP\0\0\0\0\0\0\0\x68",
    ],
}


@pytest.mark.parametrize(
    ("name", "data"), [(name, data) for name, all_data in READ.items() for data in all_data]
)
def test_what_is_read_is_told_by_its_content(name: str, data: bytes) -> None:
    assert detect(data) == name
    assert detect(gzip.compress(data, mtime=0)) == name
    assert detect(zstandard.ZstdCompressor().compress(data)) == name


REFUSED = {
    "an SVG picture": [
        b'<?xml version="1.0" standalone="no"?><!DOCTYPE svg><svg width="1200"/>',
        b"<svg/>",
        b"  <SVG >",
    ],
    "an HTML page": [b"<!DOCTYPE html>\n<html><body>", b"<html lang=en>"],
    "an XML document": [b"<!-- topology -->\n<system version='2'>", b'<?xml version="1.0"?>\n<topology>'],
    "the output of perf sched timehist": [
        (
            b"           time    cpu  task name                       wait time  sch delay   run time\n"
            b"                        [tid/pid]                          (msec)     (msec)     (msec)\n"
            b"     836.534317 [0000]  perf[20858]                         0.000      0.000      0.000\n"
        ),
        b"     836.534317 [0000]  a b: c[20858/20850]                 0.000      0.000      0.000    f <- g\n"
        * 9,
    ],
    "the output of perf sched latency": [b"\n ----\n  Task                  |   Runtime ms  | Switches |\n"],
    "the output of perf trace, not of perf script": [
        (
            b"     0.073 ( 0.017 ms): ls/16918 brk()                        = 0x55e\n"
            b"     0.354 ( 0.021 ms): ls/16918 mmap(len: 8192, prot: READ)  = 0x7f0\n"
        ),
        b"         ? (         ): ls/16918  ... [continued]: execve())   = 0\n",
    ],
    "the output of perf report": [
        (
            b"# To display the perf.data header info, please use --header/--header-only options.\n#\n"
            b"# Samples: 377  of event 'cpu-clock'\n#\n# Overhead  Command  Shared Object  Symbol\n"
            b"    52.00%  work     work           [.] leaf\n"
        )
    ],
    "the output of perf stat": [
        b"# started on Tue Dec  1 06:54:31 2026\n\n\n Performance counter stats for 'true':\n\n 0.47 msec\n",
        b"# started on Tue Dec  1 06:54:31 2026\n\n0.47,msec,task-clock,466554,100.00,0.488,CPUs utilized\n",
    ],
    "the output of perf annotate": [
        b" Percent |\tSource code & Disassembly of libc.so.6 for cpu-clock (4 samples)\n"
    ],
    "the output of perf script -D": [
        b"\n0x108@perf.data [0x50]: event: 69\n.\n. ... raw event: size 80 bytes\n"
    ],
    "the header of a perf.data alone": [
        b"# ========\n# captured on    : Tue Dec  1 2026\n# cmdline : /usr/bin/perf record -g\n# ========\n#\n"
    ],
    "stacks of DTrace": [
        b"\n              genunix`read+0x1\n              unix`_sys_sysenter+0x2\n              123\n\n"
    ],
    "stacks of bpftrace": [b"Attaching 1 probe...\n\n@[\n    vfs_read+1\n    ksys_read+95\n]: 12\n"],
    "py-spy dump, a single look at each thread": [
        b'Process 7: python a.py\nPython v3.11.7 (/bin/python3.11)\n\nThread 1 (idle): "MainThread"\n    f (a.py:3)\n'
    ],
    "py-spy dump --json, a single look at each thread": [
        b'[{"pid": 1, "thread_id": 1, "thread_name": "w", "os_thread_id": 3, "frames": [{"name": "f", "line": 3}]}]'
    ],
    "the output of Nsight Compute (ncu)": [
        b"==PROF== Connected to process 1 (/bin/app)\n",
        b"\xef\xbb\xbf==WARNING== x\r\n==PROF== y\r\n",
    ],
    "a CSV of Nsight Compute (ncu)": [
        b'"ID","Process ID","Process Name","Host Name","Kernel Name"\n"0","1","app"\n'
    ],
    "a CSV of nsys stats": [b"Time (%),Total Time (ns),Instances\n12.0,34,5\n"],
    "metrics in Prometheus' text format": [
        b"# HELP up Whether it is up.\n# TYPE up gauge\nup 1\n",
        b'vllm:num_requests_running{engine="0",model_name="m"} 0.0\nvllm:x{engine="0"} 3.0\n',
    ],
    "a PyTorch profiler trace": [
        b'{"deviceProperties": [], "traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2}]}',
        b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::zeros", "ts": 1, "dur": 2}]}',
    ],
    "OpenTelemetry spans (OTLP JSON)": [
        b'{"resourceSpans": [{"scopeSpans": []}]}',
        b'{"resourceSpans":[]}\n' * 2,
    ],
    "Jaeger spans": [b'{"data": [{"traceID": "1", "spans": [{"operationName": "x"}]}]}'],
    "JSON of an unknown kind": [b'{"a": 1}', b"[1, 2]", b'[{"x": 2'],
    "a script": [b"#!/bin/bash\nset -e\n"],
    "source code": [
        b"#include <stdio.h>\nint main(void) { return 0; }\n",
        b"import os\n\ndef f():\n    return 1\n",
    ],
    "a Markdown document": [b"# Title\n\nSome words.\n", b"words\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"],
    "a CSV table of an unknown kind": [b"a,b,c\n1,2,3\n4,5,6\n"],
    "text of an unknown kind": [
        b"\nthis\nis an unknown\nformat\n",
        b"hello",
        b"total 48\ndrwxr-xr-x 2 root root 4096 .\n",
    ],
    "a simpleperf protobuf": [b"SIMPLEPERF\x01\0abc"],
    "an Nsight Compute report (.ncu-rep)": [b"NVR\0\x12\0\0\0"],
    "an SQLite database (Nsight Systems exports one)": [b"SQLite format 3\0\x10\0"],
    "a trace-cmd file (trace.dat)": [b"\x17\x08\x44tracing6\0"],
    "a program or core dump (ELF)": [b"\x7fELF\x02\x01\x01\0"],
    "a zip archive": [b"PK\x03\x04\x14\0"],
    "a tar archive": [b"perf.data".ljust(257, b"\0") + b"ustar  \0"],
    "a PNG picture": [b"\x89PNG\r\n\x1a\n"],
    "a Parquet file": [b"PAR1\x15\x04"],
    "a Java Flight Recorder file": [b"FLR\0\0\x02\0\0"],
    "a pprof profile": [
        b"\x0a\x04\x08\x01\x10\x02\x32\x07samples\x32\x05count\x32\x03cpu\x32\x0bnanoseconds\0\x01"
    ],
    "binary data of an unknown kind": [bytes(range(256)) * 4, b"\x01\x02\x03" * 50],
    "a perf.data file of the first version (PERFFILE v1), which perf no longer reads": [
        b"PERFFILE\x68\0\0\0"
    ],
}


@pytest.mark.parametrize(
    ("what", "data"), [(what, data) for what, all_data in REFUSED.items() for data in all_data]
)
def test_what_is_not_read_is_named_in_one_line(what: str, data: bytes) -> None:
    for packed in (data, gzip.compress(data, mtime=0)):
        with pytest.raises(InputError) as raised:
            detect(packed)
        assert raised.value.problem == f"this is {what}, not a capture that flameslice reads"
        assert raised.value.remedy
        assert str(raised.value).startswith("file: this is ")
        assert "\n" not in str(raised.value)


CLOCKS_ONLY = {
    "nsys_sqlite": b"SQLite format 3\0" + bytes(84),
    "kineto": b'{"traceEvents": [{"ph": "X", "ts": 1}], "baseTimeNanoseconds": 5}',
    "otlp_json": b'{"resourceSpans": []}\n{"resourceSpans": []}\n',
    "jaeger_json": b'{"data": [{"traceID": "1", "spans": []}]}',
    "zipkin_json": b'[{"localEndpoint": {}}]',
    "triton_json": b'[{"id": 1, "timestamps": [{"name": "A", "ns": 5}]}]',
    "prometheus": b"# TYPE up gauge\nup 1\n",
    "nvidia_smi": b'<?xml version="1.0"?>\n<nvidia_smi_log>\n',
    "nvidia_smi_csv": b"index, timestamp, utilization.gpu [%]\n0, 2026/12/01 12:00:00.123, 7 %\n",
}


@pytest.mark.parametrize(("name", "data"), CLOCKS_ONLY.items())
def test_what_only_tells_of_its_clock_is_told_apart_from_what_is_read(name: str, data: bytes) -> None:
    for packed in (data, gzip.compress(data, mtime=0)):
        assert detection.detect_clocks(Source("file", io.BytesIO(packed))) == name
        with pytest.raises(InputError, match="not a capture that flameslice reads"):
            detect(packed)
    assert detection.detect_clocks(Source("file", io.BytesIO(data)), name) == name
    with pytest.raises(UsageError, match="no input format"):
        detect(data, name)


def test_every_format_of_clocks_is_told_and_can_be_asked() -> None:
    assert set(CLOCKS_ONLY) == set(known_formats.CLOCKS_ONLY)
    assert set(known_formats.CLOCKS_ONLY) <= set(source_clocks.READERS)
    assert detection.detect_clocks(Source("file", io.BytesIO(b"main;work 12\n"))) == "collapsed"
    with pytest.raises(InputError, match="this is a PNG picture"):
        detection.detect_clocks(Source("file", io.BytesIO(b"\x89PNG")))


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", "file: the file is empty: record again"),
        (b"\n \n\t\r\n", "file: the file holds nothing but blanks: record again"),
        (bytes(100), "file: the file holds nothing but blanks: record again"),
        (gzip.compress(b"", mtime=0), "file: the file is empty once unpacked (gzip): record again"),
        (
            gzip.compress(b"abc" * 100, mtime=0)[:11],
            "file: the file is empty once unpacked (gzip): 1 input ends in the middle of a record",
        ),
    ],
)
def test_nothing_is_refused_as_nothing(data: bytes, line: str) -> None:
    with pytest.raises(InputError) as raised:
        detect(data)
    assert str(raised.value) == line


def test_a_forced_format_is_taken_at_its_word() -> None:
    assert detect(b"anything", "collapsed") == "collapsed"
    assert detect(b"", "perf_data") == "perf_data"
    with pytest.raises(UsageError, match=r"^no input format 'svg': known are perf_script, .*perf_data$"):
        detect(b"a;b 1\n", "svg")


def test_detecting_consumes_nothing() -> None:
    source = Source("file", io.BytesIO(b"a;b 1\nc;d 2\n"))
    assert collectors.detect(source) == "collapsed"
    assert b"".join(source.chunks()) == b"a;b 1\nc;d 2\n"


def test_every_reader_has_its_two_functions() -> None:
    for module in collectors.READERS.values():
        reader = __import__(module, fromlist=["sniff"])
        assert callable(reader.sniff)
        assert callable(reader.fold)


@pytest.fixture
def third_party(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Two readers of other packages: one claims what begins with XYZ, one is broken."""
    good, broken = ModuleType("xyz_reader"), ModuleType("broken_reader")
    good.sniff = lambda head: head.startswith(b"XYZ")  # type: ignore[attr-defined]
    broken.sniff = lambda head: 1 / 0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "xyz_reader", good)
    monkeypatch.setitem(sys.modules, "broken_reader", broken)
    points = EntryPoints(
        EntryPoint(name, module, detection.ENTRY_POINTS)
        for name, module in (
            ("broken", "broken_reader"),
            ("missing", "no_such_module_anywhere"),
            ("collapsed", "xyz_reader"),
            ("xyz", "xyz_reader"),
        )
    )
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: points)
    monkeypatch.setattr(detection, "READERS", dict(detection.READERS))
    return good


def test_a_reader_of_another_package_takes_what_no_built_in_takes(third_party: ModuleType) -> None:
    for _ in range(2):
        assert detect(b"XYZ, says their tool") == "xyz"
        assert detection.READERS["xyz"] == "xyz_reader"
    assert detect(b"anything", "xyz") == "xyz"
    assert detection.READERS["collapsed"] == "collectors.collapsed"
    with pytest.raises(InputError, match="text of an unknown kind"):
        detect(b"ABC is not theirs")


@pytest.mark.usefixtures("third_party")
def test_a_reader_of_another_package_is_not_asked_first() -> None:
    assert detect(b"XYZ;main 3\n") == "collapsed"


def answer(source: Source) -> str:
    """Return a source's reader, or what it is instead; any other error fails the test."""
    try:
        return collectors.detect(source)
    except FlamesliceError as error:
        line, problem = str(error), error.problem
    assert "\n" not in line
    assert line.startswith(f"{source.name}: ")
    return problem


def test_every_file_of_the_corpus_is_read_or_named(corpus: Path) -> None:
    names: dict[str, str] = {}
    for path in sorted(corpus.rglob("*")):
        if not path.is_file():
            continue
        with Source.open_path(str(path)) as source:
            names[str(path.relative_to(corpus))] = answer(source)
    assert len(names) > 500
    expected = {
        "perf/local/fp_default.txt": "perf_script",
        "perf/local/derived/one_xx.txt": "perf_script",
        "perf/local/derived/one__kworker.txt": "perf_script",
        "perf/local/perfdata/pipe.data": "perf_data",
        "perf/perfdata/hotspot/perf.data.true.v2.gz": "perf_data",
        "perf/pyspy/default.raw": "py_spy_raw",
        "perf/pyspy/default.speedscope": "speedscope",
        "perf/pyspy/default.chrometrace": "chrome_trace",
        "perf/inferno/flamegraph/bad-lines/bad-lines.txt": "collapsed",
        "perf/local/perf_trace.out.txt": "the file is empty",
    }
    assert {name: names[name] for name in expected} == expected
    readers = {*collectors.READERS, collectors.PERF_DATA}
    # what is text of no kind that anybody could name
    unnamed = {name for name, what in names.items() if what not in readers and "unknown kind" in what}
    assert {Path(name).name for name in unnamed} == {
        "unknown-format.txt",
        "SUMMARY.tsv",
        "analyzed_reports_legend.json",
        "bench_llama3.1-8b_q5km.provenance.txt",
    }
    # every other folder holds what later versions read, or nothing of ours
    ours = {name for name, what in names.items() if what in readers}
    assert not {
        name for name in ours if name.startswith(("ncu/", "nsys/", "nvml/", "otel/", "serving/kineto/"))
    }
    folded = {name for name in names if name.endswith(".folded") and (corpus / name).stat().st_size}
    assert {names[name] for name in folded} <= {"collapsed"}
