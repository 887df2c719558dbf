"""ftrace text becomes what perf script text becomes: the same names, times, stacks, and losses with their lines."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import collectors
from collectors import ftrace, ftrace_clocks, ftrace_lines, ftrace_tokens, perf_script, source_clocks
from collectors.source import Source
from pipeline import intervals
from pipeline.errors import InputError
from pipeline.filters import SampleFilter
from pipeline.folds import Fold
from pipeline.tables import Tables
from pipeline.text import escape

DATA = Path(__file__).parents[1] / "data" / "ftrace"
RECORDED = sorted(path for path in DATA.glob("*.txt"))
CLOCKS = {
    "mono": "monotonic",
    "mono_raw": "monotonic_raw",
    "boot": "boottime",
    "local": "sched_clock",
    "global": "perf",
    "perf": "perf",
    "tai": "tai",
    "x86-tsc": "tsc",
    "uptime": "relative",
    "counter": "",
}

STACKS = b"""\
              a-1       [000] ..... 1.000000: sys_read(fd: 3)
              b-2       [001] d..2. 1.000001: sched_switch: prev_comm=b prev_pid=2 prev_prio=120 prev_state=S ==> next_comm=a next_pid=1 next_prio=120
              a-1       [000] ..... 1.000002: <stack trace>
 => enter+0x4/0x20
 => ext4_read [ext4]
              b-2       [001] ..... 1.000003: <stack trace>
 => schedule
              a-1       [000] ..... 1.000004: <user stack trace>
 => /bin/a[+0x10]
 =>  <00007fc713a7f350>
              a-1       [000] ..... 1.000005: sys_read -> 0x0
"""  # noqa: E501


def source(data: bytes) -> Source:
    return Source("trace.txt", io.BytesIO(data))


def read(data: bytes, keep: SampleFilter | None = None) -> Tables:
    return ftrace.read(source(data), keep or SampleFilter())


def fold(data: bytes) -> Fold:
    return ftrace.fold(source(data))


def line(text: str, *, comm: str = "app", tid: int = 7, cpu: int = 0, time: str = "1.000000") -> bytes:
    return f"{comm:>16}-{tid:<7d} [{cpu:03d}] d..2. {time}: {text}\n".encode()


def told(tables: Tables) -> dict[str, tuple[int, int | None]]:
    return {loss.reason: (loss.count, loss.first_line) for loss in tables.losses}


def with_stacks(tables: Tables) -> pl.DataFrame:
    """Return events with their stacks as text, the outermost first."""
    symbols = {
        row["frame_id"]: f"{row['symbol']} ({row['dso']})" for row in tables.frames.iter_rows(named=True)
    }
    nodes = {row["stack_id"]: row for row in tables.stacks.iter_rows(named=True)}

    def text(stack: int) -> str:
        names = []
        while stack:
            names.append(symbols[nodes[stack]["frame_id"]])
            stack = nodes[stack]["parent_id"]
        return ";".join(reversed(names))

    events = tables.perf_events
    return events.with_columns(stack=pl.Series([text(one) for one in events["stack_id"]], dtype=pl.String))


# recordings of Linux 6.18 and trace-cmd 3.1


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recordings_read_as_they_did(path: Path, check_golden: Callable[[Path, bytes], None]) -> None:
    data = path.read_bytes()
    assert collectors.detect(source(data)) == "ftrace"
    assert collectors.detect(source(gzip.compress(data))) == "ftrace"
    tables = read(data)
    table = with_stacks(tables).select("raw_time", "cpu", "pid", "tid", "comm", "event", "args", "stack")
    losses = "".join(f"# {loss.describe()}\n" for loss in tables.losses)
    check_golden(path.with_suffix(".csv"), (losses + table.write_csv()).encode())
    assert {loss.reason for loss in tables.losses} <= {"kernel_lost"}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_fold_counts_what_the_tables_hold(path: Path) -> None:
    data = path.read_bytes()
    tables, counted = read(data), fold(data)
    assert counted.rows == tables.rows == tables.perf_events.height
    by_event = dict(tables.perf_events.group_by("event").len().iter_rows())
    assert {event: totals.samples for event, totals in counted.events.items()} == by_event
    assert counted.first_ns == tables.perf_events["raw_time"].min()
    assert counted.losses.as_tuple() == tables.losses
    assert counted.clock == tables.clock


def test_a_recording_is_paired_as_perfs_tracepoints_are() -> None:
    found, _, captured = intervals.build(read((DATA / "mono.txt").read_bytes()).perf_events)
    assert captured == {"running", "off_cpu", "syscall", "irq", "softirq", "block_io", "dma_wait"}
    ours = found.filter(pl.col("tid") == 2636)

    def lengths_us(kind: str, name: str) -> list[int]:
        rows = ours.filter((pl.col("kind") == kind) & (pl.col("name") == name)).sort("raw_start")
        return [length // 1000 for length in rows["raw_end"] - rows["raw_start"]]

    # as the lines' own times say: 216925 to 216926, 218045 to 218052; 216929 to 218038; 218065 to 218125
    assert lengths_us("syscall", "write") == [1, 7]
    assert lengths_us("syscall", "clock_nanosleep") == [1109]
    assert lengths_us("block_io", "254,0") == [60]
    assert lengths_us("off_cpu", "blocked")[0] == 218014 - 216942
    assert ours["comm"].unique().to_list() == ["a b-1 [2] <x>"]


def test_trace_cmd_and_ftrace_name_events_alike() -> None:
    by_trace_cmd = set(read((DATA / "trace_cmd.txt").read_bytes()).perf_events["event"])
    assert by_trace_cmd == {
        "ftrace:print",
        "raw_syscalls:sys_enter",
        "raw_syscalls:sys_exit",
        "sched:sched_switch",
        "sched:sched_waking",
        "syscalls:sys_enter_clock_nanosleep",
        "syscalls:sys_enter_write",
        "syscalls:sys_exit_clock_nanosleep",
        "syscalls:sys_exit_write",
    }
    times = [
        read((DATA / f"trace_cmd{kind}.txt").read_bytes()).perf_events["raw_time"] for kind in ("", "_t")
    ]
    # -t prints ns; without it trace-cmd rounds to microseconds
    assert ((times[0] - times[1]).abs() <= 500).all()
    assert (times[1] % 1000 != 0).any()


# clocks


@pytest.mark.parametrize(("word", "clock"), CLOCKS.items())
@pytest.mark.parametrize("comment", ["# clock: {}\n", "# trace_clock: {}\n", "#\n# clock = {}\n#\n"])
def test_a_comment_names_the_clock(word: str, clock: str, comment: str) -> None:
    time = "20000000000" if word in ("x86-tsc", "uptime", "counter") else "20.000001"
    tables = read(comment.format(word).encode() + line("sched_waking: comm=a pid=3", time=time))
    assert tables.clock == clock
    assert tables.perf_events["clock"].to_list() == [clock]
    expected = {"x86-tsc": 20_000_000_000, "uptime": 200_000_000_000_000_000, "counter": None}
    assert tables.perf_events["raw_time"].to_list() == [expected.get(word, 20_000_001_000)]


def test_without_a_comment_the_form_of_times_tells_what_it_can() -> None:
    def clock(*times: str) -> tuple[str, str]:
        tables = read(b"".join(line("x: a=1", time=time) for time in times))
        return tables.clock, tables.notes[0].partition(":")[0]

    assert clock("1796139727.000000")[0] == "tai"
    assert clock("1.000000") == (
        "sched_clock",
        "its clock is taken as sched_clock (trace_clock local, the default)",
    )
    assert clock("95540116498203")[0] == "tsc"
    assert clock("3680238", "3680238")[0] == "relative"
    assert clock("7", "8")[0] == ""
    assert read(b"# clock: mono\n" + line("x: a=1")).notes == ()
    assert read(b"# clock: sundial\n" + line("x: a=1")).clock == "relative"


def test_a_comment_behind_the_first_event_says_nothing() -> None:
    assert read(line("x: a=1") + b"# clock: mono\n").clock == "sched_clock"


def test_clocks_are_told_with_what_was_assumed(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_bytes(line("x: a=1", time="3.000001") + line("x: a=1", time="2.000001"))
    found = source_clocks.of(path, host="web-1")
    assert (found.clock, found.host, found.first, found.last) == (
        "sched_clock",
        "web-1",
        2_000_001_000,
        3_000_001_000,
    )
    assert found.is_assumed
    assert found.notes[0] == "1 of 2 events are earlier than the one before them"
    path.write_bytes(line("x: a=1", time="3"))
    found = source_clocks.of(path)
    assert (found.clock, found.first) == ("", None)
    assert "no times" in found.notes[0]


# lines


@pytest.mark.parametrize(
    ("text", "event", "args"),
    [
        ("sys_write(fd: 1, buf: 0x7f, count: 2)", "syscalls:sys_enter_write", "fd: 1, buf: 0x7f, count: 2"),
        ("sys_getpid()", "syscalls:sys_enter_getpid", None),
        ("sys_write -> 0x2", "syscalls:sys_exit_write", "0x2"),
        ("sys_enter_write:      fd: 0x1", "syscalls:sys_enter_write", "fd: 0x1"),
        ("sys_exit_write:       0x2", "syscalls:sys_exit_write", "0x2"),
        ("sys_enter: NR 1 (1, 2, 3, 4, 5, 6)", "raw_syscalls:sys_enter", "NR 1 (1, 2, 3, 4, 5, 6)"),
        ("sys_exit: NR 1 = 2", "raw_syscalls:sys_exit", "NR 1 = 2"),
        ("tracing_mark_write: a: b -> c", "ftrace:print", "a: b -> c"),
        ("tracing_mark_write+0x8a/0x170: a", "ftrace:print", "a"),
        ("print:                tracing_mark_write: a", "ftrace:print", "a"),
        ("bprint:               work: a", "ftrace:print", "work: a"),
        ("irq_handler_exit: irq=36 ret=handled", "irq:irq_handler_exit", "irq=36 ret=handled"),
        ("softirq_entry: vec=4 [action=BLOCK]", "irq:softirq_entry", "vec=4 [action=BLOCK]"),
        ("block_rq_issue: 8,0 W 0 () 1 + 2 [a]", "block:block_rq_issue", "8,0 W 0 () 1 + 2 [a]"),
        ("dma_fence_wait_start: driver=a seqno=2", "dma_fence:dma_fence_wait_start", "driver=a seqno=2"),
        ("page_fault_user: address=0x5", "page_fault_user", "address=0x5"),
        ("my_event:", "my_event", None),
    ],
)
def test_events_have_perfs_names(text: str, event: str, args: str | None) -> None:
    tables = read(line(text) * 2)  # the second time it is remembered
    assert tables.perf_events.select("event", "args").rows() == [(event, args)] * 2
    assert tables.losses == ()


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("            bash-4469    [001] ..... ", ("bash", None, 4469, 1)),
        ("            bash-4469    (   4460) [001] ..... ", ("bash", 4460, 4469, 1)),
        ("            bash-4469    (-------) [001]  ", ("bash", None, 4469, 1)),
        ("            bash-4469    [001]  ", ("bash", None, 4469, 1)),
        ("            bash-4469    [001] d..2 ", ("bash", None, 4469, 1)),
        ("            bash-4469    [001] dNh1.. ", ("bash", None, 4469, 1)),
        ("          <idle>-0       [000] d..2. ", ("<idle>", None, 0, 0)),
        ("           <...>-123     [000] d..2. ", (":123", None, 123, 0)),
        (" memfd:sealed-91-28300   [001] ..... ", ("memfd:sealed-91", None, 28300, 1)),
        ("   a b-1 [2] <x>-2636    [000] ..... ", ("a b-1 [2] <x>", None, 2636, 0)),
        ("     a-1 [000] x-2       [003] ..... ", ("a-1 [000] x", None, 2, 3)),
        ("web:             bash-5043  [001] ", ("bash", None, 5043, 1)),
        ("bash-5043  [001] ..... ", ("bash", None, 5043, 1)),  # its indentation is lost
        ("kworker/0:0-H-5043 [001] ", ("kworker/0:0-H", None, 5043, 1)),
    ],
)
def test_columns_are_read_whatever_the_options(head: str, expected: tuple[str, int | None, int, int]) -> None:
    tables = read(f"{head}12.345678: sched_waking: comm=a pid=3\n".encode() * 2)
    assert tables.perf_events.select("comm", "pid", "tid", "cpu").rows() == [expected] * 2
    assert tables.losses == ()


NAMES = st.text(min_size=1, max_size=15) | st.lists(
    st.sampled_from(["-1", " [0]", "<x>", " 1.5: ", "a", "-", ":", "(2)", " ", "\n", "# "]),
    min_size=1,
    max_size=6,
).map("".join)


@given(
    name=NAMES.map(lambda name: name.strip(" \t\n\0")).filter(
        lambda name: 0 < len(name.encode()) < 16 and "\0" not in name and name != "<...>"
    ),
    has_flags=st.booleans(),
    has_pid=st.booleans(),
)
def test_a_tasks_name_may_be_anything(name: str, has_flags: bool, has_pid: bool) -> None:
    pid = b"(     42) " if has_pid else b""
    flags = b"d..2. " if has_flags else b" "
    text = name.encode().rjust(16) + b"-1234    " + pid + b"[003] " + flags + b"12.345678: sched_stat: x=1\n"
    row = read(b"# tracer: nop\n" + line("x: a=1") + text).perf_events.row(1, named=True)
    assert row["comm"] == escape(name)
    assert (row["tid"], row["pid"], row["cpu"]) == (1234, 42 if has_pid else None, 3)
    assert row["raw_time"] == 12_345_678_000


def test_line_feeds_in_names_and_texts() -> None:
    text = (
        b"             a\nb-7       [000] ..... 1.000000: sched_waking: comm=c\nd pid=9 prio=120 target_cpu=000\n"
        b"             e\n\n-7       [000] ..... 1.000001: tracing_mark_write: one\ntwo\n  three\n"
    )
    tables = read(line("x: a=1") + text + line("x: a=1", time="1.000002"))
    assert tables.perf_events.select("comm", "args").rows()[1:3] == [
        ("a\nb", "comm=c\nd pid=9 prio=120 target_cpu=000"),
        ("e\n\n", "one\ntwo\n  three"),
    ]
    assert tables.losses == ()


def test_a_forgotten_name_is_found_where_it_stands() -> None:
    data = (
        line("x: a=1", comm="<...>", tid=9)
        + line("x: a=1", comm="<...>", tid=10)
        + line("x: a=1", comm="found", tid=9)
        + line(
            "sched_switch: prev_comm=gone prev_pid=10 prev_prio=120 prev_state=S ==> "
            "next_comm=a next_pid=1 next_prio=1",
            comm="<...>",
            tid=10,
        )
        + line("x: a=1", comm="<...>", tid=11)
    )
    assert {comm for _, comm, _ in fold(data).weights} == {"found", "gone", ":11"}
    stream = ftrace.Stream(source(data))
    comms = pl.concat([batch.perf_events for batch in stream.batches()])["comm"].to_list()
    assert comms == [":9", ":10", "found", ":10", ":11"]
    assert stream.renamed_threads() == {9: "found", 10: "gone"}


# stacks


def test_a_stack_belongs_to_the_last_event_of_its_cpu_and_task() -> None:
    events = with_stacks(read(STACKS))
    assert events["stack"].to_list() == [
        "[unknown] ();[unknown] (/bin/a);ext4_read ([ext4]);enter ([kernel.kallsyms])",
        "schedule ([kernel.kallsyms])",
        "",
    ]
    assert fold(STACKS).events.keys() == set(events["event"])


def test_trace_cmds_stacks() -> None:
    text = (
        b"cpus=2\n             a-1     [000]     1.000000: sched_waking:         comm=b pid=2\n"
        b"             a-1     [000]     1.000001: kernel_stack:         <stack trace >\n"
        b"=> try_to_wake_up (ffffffff810b2a31)\n=> do_syscall_64 (ffffffff81c0a3b5)\n"
    )
    assert with_stacks(read(text))["stack"].to_list() == [
        "do_syscall_64 ([kernel.kallsyms]);try_to_wake_up ([kernel.kallsyms])"
    ]


def test_a_stack_whose_event_is_gone_is_counted() -> None:
    stack = line("<stack trace>") + b" => f\n => g\n"
    tables = read(b" => cut\n" + stack + line("x: a=1", tid=8) + stack + line("x: a=1", tid=8))
    assert told(tables) == {"stack_without_event": (3, 1)}
    assert tables.perf_events["stack_id"].to_list() == [0, 0]


@given(st.lists(st.integers(0, STACKS.count(b"\n")), max_size=6))
def test_where_the_text_is_cut_makes_no_difference(cuts: list[int]) -> None:
    lines = STACKS.splitlines(keepends=True)
    stamp = ftrace_clocks.learn(STACKS)
    assert stamp is not None

    def rows(borders: list[int]) -> list[tuple[object, ...]]:
        tokens = ftrace_tokens.FtraceTokens(stamp)
        taken = []
        for start, end in zip([0, *borders], [*borders, len(lines)], strict=True):
            if start < end:
                tokens.feed(b"".join(lines[start:end]))
                taken.append(tokens.take())
        tokens.finish()
        taken.append(tokens.take(is_last=True))
        assert tokens.losses.as_tuple() == ()
        return [
            (time, head.comm, tail.event, tuple(tokens.trie.path(node)), part.args.get(at))
            for part in taken
            for at, ((head, tail, node, _), time) in enumerate(zip(part.keys, part.times, strict=True))
        ]

    assert rows(sorted(cuts)) == rows([])


def test_stacks_of_rows_beyond_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collectors.perf_read._BATCH_ROWS", 5)
    monkeypatch.setattr("collectors.perf_pieces.FEED_BYTES", 300)
    monkeypatch.setattr(ftrace_tokens, "_KEPT_ROWS", 3)
    batches = [batch.perf_events.height for batch in ftrace.Stream(source(STACKS * 9)).batches()]
    assert len(batches) > 2
    assert sum(batches) == 27
    assert (
        with_stacks(read(STACKS * 9))["stack"].to_list() == with_stacks(read(STACKS))["stack"].to_list() * 9
    )


# losses


def test_what_cannot_be_read_is_lost_with_its_line() -> None:
    tables = read(b"# tracer: nop\n" + line("x: a=1") + b"garbage\n\n" + line("x: a=1") + line("123 ?"))
    assert told(tables) == {"unreadable_line": (2, 3)}
    assert tables.rows == 4


def test_events_that_the_kernel_lost_are_counted() -> None:
    text = (
        b"# tracer: nop\n# entries-in-buffer/entries-written: 3/10   #P:2\n" + line("x: a=1")
        + b"CPU:1 [LOST 123 EVENTS]\n" + line("x: a=1") + b"CPU:0 [LOST EVENTS]\nCPU:0 [5 EVENTS DROPPED]\n"
        + b"##### CPU 1 buffer started ####\n" + line("x: a=1")
    )  # fmt: skip
    tables = read(text)
    assert told(tables) == {"kernel_lost": (7 + 123 + 1 + 5, 2)}
    assert tables.rows == 3


FUNCTIONS = [
    line("vfs_write <-ksys_write"),
    line("vfs_write(file=0xf, count=1) <-ksys_write"),
    line("function:             vfs_write <-- ksys_write"),
    line("funcgraph_entry:        1.234 us   |  vfs_write();"),
    b" 0)               |  vfs_write() {\n",
    b" 1)   0.456 us    |    fdget();\n",
    b" 0)   1.234 us    |  }\n",
    b" 1) + 12.345 us   |  } /* vfs_write */\n",
    b" 0)               |  /* sched_waking: comm=a pid=1 */\n",
    b" 0)   bash-123    =>  cat-456\n",
    b" ------------------------------------------\n",
    b"  123.456789 |   0)   1.234 us    |  vfs_write();\n",
]


@pytest.mark.parametrize("text", FUNCTIONS)
def test_lines_of_function_tracers_are_left_out_and_counted(text: bytes) -> None:
    tables = read(line("x: a=1") + text + text)
    assert told(tables) == {"function_trace": (2, 2)}
    assert tables.rows == 1


def test_a_file_of_functions_alone_is_refused_with_what_to_do() -> None:
    data = b"# tracer: function_graph\n#\n# CPU  DURATION                  FUNCTION CALLS\n" + b"".join(
        FUNCTIONS
    )
    assert collectors.detect(source(data)) == "ftrace"
    assert collectors.detect(source(b"".join(FUNCTIONS[4:7]))) == "ftrace"
    for use in (fold, read):
        with pytest.raises(
            InputError, match=r"^trace.txt: its 12 lines are those of a function tracer.*-e sched"
        ):
            use(data)


def test_a_trace_without_events_is_refused() -> None:
    for use in (fold, read):
        with pytest.raises(InputError, match=r"^trace.txt: no event found"):
            use(b"# tracer: nop\n#\n")


def test_a_second_trace_in_one_file_is_told_with_its_line() -> None:
    first = b"# tracer: nop\n" + line("x: a=1", time="50.000000") * 3
    order = read(first + first).order
    assert [(one.first_row, one.rows, one.line) for one in order.sessions] == [(0, 3, None), (3, 3, 5)]


def test_filters_and_ranges() -> None:
    data = (DATA / "mono.txt").read_bytes()
    kept = read(data, SampleFilter(tids=frozenset({2636}), to_ns=36801_216_930_000)).perf_events
    assert kept["event"].to_list() == [
        "syscalls:sys_enter_write",
        "syscalls:sys_exit_write",
        "syscalls:sys_enter_clock_nanosleep",
    ]


# told from perf script

SWITCH = b"sched_switch: prev_comm=a prev_pid=1 ==> next_comm=b next_pid=2\n"


@pytest.mark.parametrize(
    "data",
    [
        b"            bash-123   [000]    12.345678: " + SWITCH,  # trace-cmd without its first line
        b"bash-123 [000] 12.345678: " + SWITCH,
        b"            bash-123   [000]    12.345678: sched_switch: bash:123 [120] S ==> swapper/0:0 [120]\n",
        b"            bash-123   [000]    12.345678: sys_enter:            NR 1 (1, 2)\n",
        b"            bash-123   [000]    12.345678: my_event:             count=3\n",
        b"            bash-123   [000] d..2 12.345678: my_event: text\n",
        b"# a note\n\n# tracer: nop\n",
        b"cpus=2\n",
        b"version = 6\ncpus=2\n",
        b"CPU:0 [LOST 3 EVENTS]\n            bash-123   [000]    12.345678: my_event: text\n",
    ],
)
def test_ftrace_text_is_no_perf_script_text(data: bytes) -> None:
    assert ftrace_lines.sniff(data) is True
    assert perf_script.sniff(data) is False
    assert collectors.detect(source(data)) == "ftrace"


@pytest.mark.parametrize(
    "data",
    [
        b"bash  123 [000] 12.345678: sched:" + SWITCH,
        b"bash 123/123 [000] 12.345678:   250000 cpu-clock:\n\t7f12 f (/bin/a)\n\n",
        b"worker-1 [000] 12.345678:   250000 cpu-clock:\n\t7f12 f (/bin/a)\n\n",  # -F comm,cpu,time,event
        b"worker-1 [000] 12.345678: cpu-clock:\n\t7f12 f (/bin/a)\n\n",
        b"worker-1 [000] 12.345678: cycles:  ffffffff81 f ([kernel.kallsyms])\n",
        b"worker-1 [000] 12.345678: sched:" + SWITCH,
        b"kworker/0:1-1 1 [000] 12.345678: sched:" + SWITCH,
        b"worker-1 123 [000] d..2 12.345678: irq:softirq_entry: vec=1\n",
    ],
)
def test_perf_script_text_is_no_ftrace_text(data: bytes) -> None:
    assert ftrace_lines.sniff(data) is False
    assert collectors.detect(source(data)) == "perf_script"
