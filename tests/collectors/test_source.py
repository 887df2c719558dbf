"""A source gives the same text however it is packed, encoded and cut into pieces, and counts what it cannot give."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from collectors.source import Source, encoding_of
from pipeline.errors import FlamesliceError

TEXT = b"".join(b"frame %d;leaf %d\n" % (number % 97, number) for number in range(20_000))


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def from_bytes(data: bytes) -> Source:
    return Source("input", io.BytesIO(data))


def whole(source: Source) -> bytes:
    return b"".join(source.chunks(1 << 16))


def reasons(source: Source) -> list[str]:
    return [loss.reason for loss in source.losses.as_tuple()]


PACKED: dict[str, tuple[Callable[[bytes], bytes], list[str]]] = {
    "plain": (lambda data: data, []),
    "gzip": (gzip.compress, ["gzip"]),
    "gzip of two members": (
        lambda data: gzip.compress(data[:999], mtime=0) + gzip.compress(data[999:], mtime=0),
        ["gzip"],
    ),
    "gzip padded by a tape": (lambda data: gzip.compress(data, mtime=0) + bytes(512), ["gzip"]),
    "zstd": (zstd, ["zstd"]),
    "zstd of two frames": (lambda data: zstd(data[:999]) + zstd(data[999:]), ["zstd"]),
    "zstd after a skippable frame": (
        lambda data: b"\x50\x2a\x4d\x18\x03\0\0\0abc" + zstd(data),
        ["zstd"],
    ),
    "xz": (lzma.compress, ["xz"]),
    "xz of two padded streams": (
        lambda data: lzma.compress(data[:999]) + bytes(8) + lzma.compress(data[999:]),
        ["xz"],
    ),
    "bzip2": (bz2.compress, ["bzip2"]),
    "gzip in gzip": (lambda data: gzip.compress(gzip.compress(data), mtime=0), ["gzip", "gzip"]),
    "gzip in zstd": (lambda data: zstd(gzip.compress(data, mtime=0)), ["zstd", "gzip"]),
    "UTF-8 with a mark": (lambda data: codecs.BOM_UTF8 + data, ["byte order mark, skipped"]),
    "UTF-16": (lambda data: data.decode().encode("utf-16"), ["UTF-16, decoded"]),
    "UTF-16 big endian": (
        lambda data: codecs.BOM_UTF16_BE + data.decode().encode("utf-16-be"),
        ["UTF-16, decoded"],
    ),
    "UTF-16 without a mark": (lambda data: data.decode().encode("utf-16-le"), ["UTF-16, decoded"]),
    "UTF-32": (lambda data: data.decode().encode("utf-32"), ["UTF-32, decoded"]),
    "CRLF": (lambda data: data.replace(b"\n", b"\r\n"), ["CRLF line ends"]),
    "CRLF in UTF-16 in gzip": (
        lambda data: gzip.compress(data.replace(b"\n", b"\r\n").decode().encode("utf-16")),
        ["gzip", "UTF-16, decoded", "CRLF line ends"],
    ),
}


@pytest.mark.parametrize("name", PACKED)
def test_the_text_is_the_same_however_it_comes(name: str, tmp_path: Path) -> None:
    pack, notes = PACKED[name]
    path = tmp_path / "any.name"
    path.write_bytes(pack(TEXT))
    with Source.open_path(str(path)) as source:
        assert source.head(100) == TEXT[:100]
        assert source.head() == TEXT[: 1 << 16]
        assert source.head(1 << 30) == TEXT
        assert whole(source) == TEXT
        assert whole(source) == TEXT  # a file can be read again
        assert source.notes == notes
        assert source.losses.as_tuple() == ()
        assert source.is_plain_file() is (notes == [])
        assert source.size_bytes == path.stat().st_size


@pytest.mark.parametrize("name", PACKED)
def test_a_pipe_gives_the_same_text_once(name: str) -> None:
    pack, _ = PACKED[name]
    packed = pack(TEXT)
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "wb") as end:
            end.write(packed)

    writer = threading.Thread(target=write)
    writer.start()
    with os.fdopen(reading, "rb", buffering=0) as stream:
        source = Source("pipe", stream)
        assert source.size_bytes is None
        assert not source.is_plain_file()
        assert source.head(500) == TEXT[:500]
        assert whole(source) == TEXT
        with pytest.raises(FlamesliceError, match="read only once"):
            whole(source)
    writer.join()


@given(st.binary(max_size=300), st.integers(1, 40), st.integers(1, 40))
def test_chunks_join_to_the_text_and_all_but_the_last_are_full(data: bytes, size: int, ahead: int) -> None:
    source = from_bytes(b"A" + data)  # no byte order mark
    expected = whole(from_bytes(b"A" + data))
    source.head(ahead)
    chunks = list(source.chunks(size))
    assert b"".join(chunks) == expected
    assert all(len(chunk) == size for chunk in chunks[:-1])


@given(st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"a", b";"]), max_size=60), st.integers(1, 7))
def test_crlf_becomes_lf_wherever_pieces_are_cut(parts: list[bytes], size: int) -> None:
    data = b"x\r\n" * 70 + b"".join(parts)

    class Dribble(io.BytesIO):
        def read1(self, _: int | None = -1) -> bytes:
            return self.read(size)

    assert whole(Source("input", Dribble(data))) == data.replace(b"\r\n", b"\n")


def test_a_carriage_return_in_a_name_stays() -> None:
    text = b"a\rb;c 1\nd\r;e 2\nodd\r\nf 3\n"
    assert whole(from_bytes(text)) == text


@pytest.mark.parametrize("pack", [gzip.compress, zstd, lzma.compress, bz2.compress])
def test_a_cut_stream_gives_what_was_readable_and_a_loss(pack: Callable[[bytes], bytes]) -> None:
    data = os.urandom(300_000).hex().encode()
    source = from_bytes(pack(data)[:-100_000])
    got = whole(source)
    assert data.startswith(got)
    if pack is not bz2.compress:  # its blocks are of 900 kB, all or nothing
        assert len(got) > 100_000
    assert reasons(source) == ["truncated_input"]


@pytest.mark.parametrize("pack", [gzip.compress, zstd, lzma.compress, bz2.compress])
def test_a_damaged_stream_ends_with_a_loss(pack: Callable[[bytes], bytes]) -> None:
    packed = bytearray(pack(os.urandom(200_000).hex().encode()))
    packed[len(packed) // 2 :] = bytes(0xA5 for _ in packed[len(packed) // 2 :])
    source = from_bytes(bytes(packed))
    whole(source)
    assert set(reasons(source)) & {"damaged_input", "truncated_input"}


def test_other_bytes_after_a_gzip_member_are_a_loss() -> None:
    source = from_bytes(gzip.compress(TEXT, mtime=0) + b"and then a log line")
    assert whole(source) == TEXT
    assert reasons(source) == ["damaged_input"]


def test_a_loss_is_counted_once_however_often_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(TEXT, mtime=0)[:-5])
    with Source.open_path(str(path)) as source:
        for _ in range(3):
            source.head(1 << 30)
            whole(source)
        assert [(loss.reason, loss.count) for loss in source.losses.as_tuple()] == [("truncated_input", 1)]


def test_a_bomb_is_unpacked_piece_by_piece() -> None:
    bomb = zlib.compressobj(wbits=31)
    packed = b"".join(bomb.compress(bytes(1 << 20)) for _ in range(64)) + bomb.flush()
    assert len(packed) < 1 << 17
    pieces = [len(piece) for piece in from_bytes(packed).chunks(1 << 20)]
    assert sum(pieces) == 64 << 20
    assert max(pieces) == 1 << 20


def test_a_name_that_begins_like_a_byte_order_mark_is_no_utf_16() -> None:
    text = b"\xff\xfebin 7 1.000000: 1 cpu-clock:\n\t1 main (a)\n"
    assert encoding_of(text) == ("", 0)
    assert whole(from_bytes(text)) == text


def test_utf_16_cut_inside_a_character_is_a_loss() -> None:
    source = from_bytes("a;b 1\nc;d 2\n".encode("utf-16")[:-1])
    assert whole(source) == b"a;b 1\nc;d 2"
    assert reasons(source) == ["truncated_input"]


@given(
    st.lists(st.binary(max_size=9).map(lambda raw: raw.replace(b"\n", b"")), max_size=40), st.integers(1, 30)
)
def test_line_chunks_end_at_lines(lines: list[bytes], size: int) -> None:
    text = b"A\n" + b"\n".join(lines)
    source = from_bytes(text)
    expected = whole(from_bytes(text))
    chunks = list(source.line_chunks(size))
    assert b"".join(chunks) == expected
    assert all(chunk.endswith(b"\n") for chunk in chunks[:-1])


def test_what_cannot_be_opened_is_one_line_with_its_path(tmp_path: Path) -> None:
    missing = tmp_path / "missing.txt"
    with pytest.raises(FlamesliceError) as no_file:
        Source.open_path(str(missing))
    assert str(no_file.value) == f"{missing}: no such file or directory: check the path"
    with pytest.raises(FlamesliceError) as folder:
        Source.open_path(str(tmp_path))
    assert str(folder.value) == f"{tmp_path}: is a directory: give a file"
    with pytest.raises(FlamesliceError) as odd_name:
        Source.open_path("a\0b")
    assert str(odd_name.value) == "a\\x00b: no such file: check the path"


def test_a_fifo_is_read_like_a_file(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(gzip.compress(TEXT, mtime=0),))
    writer.start()
    with Source.open_path(str(fifo)) as source:
        assert source.head(10) == TEXT[:10]
        assert not source.is_plain_file()
        assert whole(source) == TEXT
    writer.join()


def test_standard_input_is_named_and_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(gzip.compress(TEXT, mtime=0)))
    monkeypatch.setattr(sys, "stdin", stdin)
    with Source.open("-") as source:
        assert source.name == "<stdin>"
        assert source.path is None
        assert whole(source) == TEXT
    assert not stdin.buffer.closed


def test_closed_standard_input_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(FlamesliceError, match="standard input is closed"):
        Source.stdin()


def test_a_device_is_no_plain_file() -> None:
    with Source.open_path("/dev/null") as source:
        assert not source.is_plain_file()
        assert source.size_bytes is None
        assert whole(source) == b""
