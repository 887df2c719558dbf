"""Texts of several perfs become one in order of time, without the recorder and with all the rest."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import zstandard
from hypothesis import given
from hypothesis import strategies as st

from collectors.perf_text import Recorded, TextReport, blocks, write_text

TARGET = b"""\
yield 50/50 [000]     1.000000010:    1001001 cpu-clock:u: 
\tffff spin+0x1 (/bin/yield)
\t   1 main+0x1 (/bin/yield)

yield 50/50 [000]     1.000000030:          1 raw_syscalls:sys_enter: NR 0 (1, 2)
\tffff read+0x1 (/bin/libc)

"""  # noqa: W291 - as perf prints it
SYSTEM = b"""\
swapper     0/0     [000]     0.000000000: PERF_RECORD_COMM: init:1/1
            perf     7/7     [000]     1.000000005: PERF_RECORD_SWITCH_CPU_WIDE OUT          next pid/tid:     0/0    
         swapper     0/0     [000]     1.000000006: PERF_RECORD_SWITCH_CPU_WIDE IN           prev pid/tid:     7/7    
            perf     7/7     [000]     1.000000007: PERF_RECORD_SWITCH_CPU_WIDE OUT          next pid/tid:    50/50   
yield 50/50 [000]     1.000000020:          1 sched:sched_switch: prev_comm=yield prev_pid=50 ==> next_comm=perf next_pid=7
\tffff schedule+0x1 ([kernel.kallsyms])

perf 7/7 [001]     1.000000025:    1001001 cpu-clock:u: 
\tffff poll+0x1 (/bin/perf)

         swapper     0/0     [000]     0.000000000: PERF_RECORD_LOST lost 7
"""  # noqa: E501, W291 - as perf prints it


def script(folder: Path, texts: dict[str, bytes], status: int = 0) -> str:
    """Make a perf whose `script -i FILE` prints FILE's content."""
    for name, text in texts.items():
        (folder / name).write_bytes(text)
    perf = folder / "perf"
    perf.write_text(
        f"#!{sys.executable}\nimport sys\n"
        "sys.stdout.buffer.write(open(sys.argv[sys.argv.index('-i') + 1], 'rb').read())\n"
        f"if {status}: sys.exit('Error:\\nthe file is damaged.')\n"
    )
    perf.chmod(0o755)
    return str(perf)


def merged(
    folder: Path, perf: str, names: list[str], pids: frozenset[int], from_ns: int = 0
) -> tuple[bytes, TextReport]:
    out = io.BytesIO()
    recorded = [Recorded(folder / name, True, True, from_ns) for name in names]
    report = write_text(perf, recorded, "cpu-clock", pids, out)
    return zstandard.ZstdDecompressor().decompressobj().decompress(out.getvalue()), report


def test_two_texts_become_one_in_order_of_time_without_the_recorder(tmp_path: Path) -> None:
    perf = script(tmp_path, {"a": TARGET, "b": SYSTEM})
    text, report = merged(tmp_path, perf, ["a", "b"], frozenset({7}))
    heads = [line.split(b": ")[0].split()[-1] for line in text.splitlines() if b"] " in line and b"/" in line]
    heads = [line for line in heads if line[:2] in (b"1.", b"0.")]
    assert heads == [b"1.000000007", b"1.000000010", b"1.000000020", b"0.000000000", b"1.000000030"]
    assert b"init" not in text  # made up by perf at the start
    assert b"next_comm=perf" in text  # the target's own switch stays
    assert b"PERF_RECORD_LOST lost 7" in text
    assert report.events == {"cpu-clock:u": 1, "sched:sched_switch": 1, "raw_syscalls:sys_enter": 1}
    assert report.recorder_samples == 1
    assert report.default_event("cpu-clock") == "cpu-clock:u"
    assert report.failures == []


def test_frames_stay_with_their_sample(tmp_path: Path) -> None:
    perf = script(tmp_path, {"a": TARGET, "b": SYSTEM})
    text, _ = merged(tmp_path, perf, ["a", "b"], frozenset({7}))
    assert TARGET.split(b"\n\n")[0] + b"\n\n" in text
    assert b"\tffff poll" not in text


def test_what_perf_recorded_while_it_set_itself_up_is_left_out_but_losses_are_not(tmp_path: Path) -> None:
    perf = script(tmp_path, {"b": SYSTEM})
    text, _ = merged(tmp_path, perf, ["b"], frozenset({7}), from_ns=1_000_000_020)
    assert text.startswith(b"yield 50/50 [000]     1.000000020")
    assert b"PERF_RECORD_LOST" in text


def test_a_failing_perf_script_is_told_and_what_it_printed_is_kept(tmp_path: Path) -> None:
    perf = script(tmp_path, {"a": TARGET}, status=1)
    text, report = merged(tmp_path, perf, ["a"], frozenset())
    assert text == TARGET
    assert report.failures == ["a: perf: the file is damaged"]


def test_the_first_event_is_the_default_where_no_cpu_was_sampled(tmp_path: Path) -> None:
    perf = script(tmp_path, {"b": SYSTEM.replace(b"cpu-clock:u", b"page-faults")})
    _, report = merged(tmp_path, perf, ["b"], frozenset())
    assert report.default_event("cpu-clock") == "sched:sched_switch"
    assert TextReport().default_event("cpu-clock") == ""


def test_a_name_with_a_line_feed_stays_in_one_piece() -> None:
    text = b"a 1/1 [000] 1.000000001: 1 x: \n\tff f (d)\n\nnew\nline 2/2 [000] 1.000000002: 1 x: \n\tff f (d)\n\n"
    assert [(time_ns, block[:8]) for time_ns, block in blocks(text.splitlines(keepends=True))] == [
        (1_000_000_001, b"a 1/1 [0"),
        (1_000_000_002, b"new\nline"),
    ]


@given(
    st.lists(st.sampled_from(TARGET.splitlines(keepends=True) + SYSTEM.splitlines(keepends=True) + [b"?\n"]))
)
def test_blocks_are_all_of_the_text(lines: list[bytes]) -> None:
    assert b"".join(block for _, block in blocks(lines)) == b"".join(lines)
