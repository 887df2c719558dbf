"""perf.data becomes the text that perf prints of it; where perf fails, its own last words are in our one line."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import perf_data, perf_script
from collectors.source import Source
from pipeline.errors import FlamesliceError, InputError, WorkError
from pipeline.folds import Fold

TEXT = b"app 7/8 1.000000001: 250000 cpu-clock:\n\t7f12 main+0x1 (/bin/app)\n\n"
MAGIC = b"PERFILE2"

FakePerf = Callable[[str], None]


@pytest.fixture
def fake_perf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePerf:
    """Put a perf on PATH that runs the Python lines given, with `args`, `data` (what -i names) and `out` (bytes)."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def make(body: str) -> None:
        perf = folder / "perf"
        perf.write_text(
            f"#!{sys.executable}\n"
            "import os, signal, sys, time\n"
            "args = sys.argv[1:]\n"
            "out = sys.stdout.buffer\n"
            "with open(args[args.index('-i') + 1], 'rb') as file:\n    data = file.read()\n"
            "if '--header-only' in args:\n    print('# clockid: monotonic (1)\\nnot a comment')\n    sys.exit(0)\n"
            f"TEXT = {TEXT!r}\n{body}\n"
        )
        perf.chmod(0o755)

    return make


def capture(tmp_path: Path, name: str = "perf.data", data: bytes = MAGIC + b"\0\0\xff\r\n") -> str:
    (tmp_path / name).write_bytes(data)
    return str(tmp_path / name)


def text_of(path: str) -> bytes:
    with Source.open_path(path) as source, perf_data.open_text(source) as text:
        return b"".join(text.chunks())


def fold_of(path: str) -> Fold:
    with Source.open_path(path) as source, perf_data.open_text(source) as text:
        return perf_script.fold(text, workers=1)


def failure(path: str) -> FlamesliceError:
    with pytest.raises(FlamesliceError) as raised:
        text_of(path)
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith(path)
    return raised.value


def test_the_text_is_what_perf_prints_under_its_own_header(fake_perf: FakePerf, tmp_path: Path) -> None:
    fake_perf("out.write(TEXT)")
    assert text_of(capture(tmp_path)) == b"# clockid: monotonic (1)\n" + TEXT
    fold = fold_of(capture(tmp_path))
    assert fold.clock == "monotonic"
    assert fold.events["cpu-clock"].period == 250_000


def test_perf_is_asked_in_a_way_that_no_file_name_changes(
    fake_perf: FakePerf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_perf(
        "print(' '.join(args[:-1]), args[-1], os.environ['LC_ALL'], repr(data), repr(sys.stdin.read()))"
    )
    monkeypatch.chdir(tmp_path)
    for name in ("-h", "-", "a b;'c", "--input=x"):
        (tmp_path / name).write_bytes(MAGIC)
        said = text_of(f"./{name}" if name == "-" else name).split(b"\n", 1)[1].decode()
        assert said == (
            "script -f --no-inline --ns --show-lost-events --show-switch-events -F +pid,+ip,+sym,+symoff,+dso"
            f" -i {tmp_path / name} C {MAGIC!r} ''\n"
        )


def test_a_perf_that_lacks_an_option_is_asked_again_without(fake_perf: FakePerf, tmp_path: Path) -> None:
    fake_perf("if '-F' in args:\n    sys.exit('Error: unknown option')\nout.write(TEXT)")
    assert text_of(capture(tmp_path)).endswith(TEXT)


@pytest.mark.parametrize("pack", [gzip.compress, lambda data: gzip.compress(gzip.compress(data), mtime=0)])
def test_a_packed_file_is_unpacked_first(
    pack: Callable[[bytes], bytes], fake_perf: FakePerf, tmp_path: Path
) -> None:
    fake_perf("print(data)")
    binary = MAGIC + b"\0" + b"\r\n" * 9 + b"\xff\xfe"
    assert text_of(capture(tmp_path, data=pack(binary))).endswith(f"\n{binary!r}\n".encode())


def test_standard_input_is_put_on_disk_first(fake_perf: FakePerf) -> None:
    fake_perf("out.write(data)")
    source = Source("<stdin>", io.BytesIO(MAGIC + b"from a pipe"))
    assert perf_data.sniff(source.head())
    with perf_data.open_text(source) as text:
        assert text.name == "<stdin>"
        assert b"".join(text.chunks()).endswith(MAGIC + b"from a pipe")


def test_what_was_noted_and_lost_on_the_way_stays(fake_perf: FakePerf, tmp_path: Path) -> None:
    fake_perf("out.write(TEXT)")
    cut = capture(tmp_path, data=gzip.compress(MAGIC, mtime=0)[:-3])
    with Source.open_path(cut) as source, perf_data.open_text(source) as text:
        text.head()
        assert text.notes == ["gzip", "perf.data, printed by perf script"]
        assert [loss.reason for loss in text.losses.as_tuple()] == ["truncated_input"]


def test_without_perf_there_is_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    error = failure(capture(tmp_path))
    assert isinstance(error, WorkError)
    assert "perf is not installed" in error.problem
    assert error.remedy.endswith("or give the output of perf script")


@pytest.mark.parametrize("before", ["", "out.write(TEXT * 5000)\nout.flush()\n"])
def test_perfs_last_line_ends_ours(before: str, fake_perf: FakePerf, tmp_path: Path) -> None:
    fake_perf(
        before
        + "print('some warning', file=sys.stderr)\nsys.exit('incompatible file format (rerun with -v).')"
    )
    error = failure(capture(tmp_path))
    assert isinstance(error, WorkError)
    assert str(error).endswith(": perf: incompatible file format (rerun with -v).")
    assert error.text == "some warning\nincompatible file format (rerun with -v).\n"


def test_a_perf_that_fails_in_silence_or_by_a_signal_is_told(fake_perf: FakePerf, tmp_path: Path) -> None:
    fake_perf("sys.exit(7)")
    assert str(failure(capture(tmp_path))).endswith(": perf: exit status 7")
    fake_perf("os.kill(os.getpid(), signal.SIGSEGV)")
    assert str(failure(capture(tmp_path))).endswith(": perf: SIGSEGV")


def test_a_file_in_which_perf_finds_nothing_is_refused(fake_perf: FakePerf, tmp_path: Path) -> None:
    fake_perf("pass")
    error = failure(capture(tmp_path))
    assert isinstance(error, InputError)
    assert error.problem == "perf finds no samples in it"


def test_a_chatty_perf_neither_blocks_nor_fills_the_memory(fake_perf: FakePerf, tmp_path: Path) -> None:
    fake_perf(
        "out.write(TEXT)\nout.flush()\n"
        "for _ in range(50_000):\n    sys.stderr.write('y' * 99 + '\\n')\n"
        "sys.exit('the end')"
    )
    error = failure(capture(tmp_path))
    assert str(error).endswith(": perf: the end")
    assert len(error.text) <= 1 << 16


def test_an_end_that_perf_calls_unexpected_is_a_loss(fake_perf: FakePerf, tmp_path: Path) -> None:
    fake_perf("out.write(TEXT)\nprint('unexpected end of event stream', file=sys.stderr)")
    fold = fold_of(capture(tmp_path))
    assert [(loss.reason, loss.count) for loss in fold.losses.as_tuple()] == [("truncated_input", 1)]
    assert fold.events["cpu-clock"].samples == 1


def test_a_reader_that_stops_early_leaves_no_process_behind(fake_perf: FakePerf, tmp_path: Path) -> None:
    fake_perf(
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\nwhile True:\n    out.write(TEXT)"
    )
    with Source.open_path(capture(tmp_path)) as source, perf_data.open_text(source) as text:
        assert text.head(1 << 20)
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(
    ("head", "answer"),
    [
        (b"", None),
        (b"PERF", None),
        (b"2EL", None),
        (b"PERFFILE", False),
        (b"PERFILE2", True),
        (b"2ELIFREP\0", True),
    ],
)
def test_sniff(head: bytes, answer: bool | None) -> None:
    assert perf_data.sniff(head) is answer


@given(st.binary(max_size=12))
def test_sniff_knows_once_and_for_all(head: bytes) -> None:
    answers = [perf_data.sniff(head[:length]) for length in range(len(head) + 1)]
    told = [answer for answer in answers if answer is not None]
    assert len(set(told)) <= 1


# ------------------------------------------------------------------ a real perf


def plain_fold(perf: str, path: str, tmp_path: Path) -> Fold:
    """Fold what `perf script` prints by itself."""
    text = tmp_path / "plain.txt"
    command = [perf, "script", "-f", "--no-inline", "--ns", "-i", path]
    with text.open("wb") as out:
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL, check=True)
    with Source.open_path(str(text)) as source:
        return perf_script.fold(source, workers=1)


def content(fold: Fold) -> dict[object, list[int]]:
    return {
        (event, comm, *fold.trie.path(node)): weight for (event, comm, node), weight in fold.weights.items()
    }


def test_a_recording_gives_the_stacks_of_perfs_own_text(perf: str, tmp_path: Path) -> None:
    path = str(tmp_path / "perf.data")
    program = f"{sys.executable} -c 'sum(range(3_000_000))'"
    command = [
        perf,
        "record",
        "-q",
        "-g",
        "-e",
        "cpu-clock",
        "-F",
        "999",
        "-k",
        "mono",
        "-o",
        path,
        "--",
        "sh",
        "-c",
    ]
    subprocess.run([*command, program], check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    fold = fold_of(path)
    assert content(fold) == content(plain_fold(perf, path, tmp_path))
    assert fold.clock == "monotonic"
    assert sum(total.samples for total in fold.events.values()) > 10


def test_every_capture_of_the_corpus_gives_the_stacks_of_perfs_own_text(corpus: Path, tmp_path: Path) -> None:
    perf = shutil.which("perf")
    if perf is None:
        pytest.skip("perf is not on PATH")
    read = 0
    for path in sorted((corpus / "perf/local/perfdata").glob("*.data")):
        fold = fold_of(str(path))
        if path.name == "lost.data":
            assert not fold.events
            assert [(loss.reason, loss.count) for loss in fold.losses.as_tuple()] == [("kernel_lost", 40241)]
            continue
        assert content(fold) == content(plain_fold(perf, str(path), tmp_path)), path.name
        read += 1
    assert read >= 10
    # perf 6.1 says this of files that a later perf wrote; a newer perf reads them
    newer = corpus / "perf/perfdata/linux-perf-data/sleep.data"
    told = subprocess.run([perf, "script", "-f", "-i", newer], capture_output=True, check=False)
    if told.returncode:
        assert str(failure(str(newer))).endswith("perf: " + told.stderr.decode().strip().splitlines()[-1])
