"""A capture as users hand it over: a directory, or a tar of one (plain, zstd, gzip, xz), unpacked with care.

A member may only be a regular file or a directory below the archive's root; everything together is bounded.
"""

from __future__ import annotations

import gzip
import lzma
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, cast

from pipeline.capture import MANIFEST_FILE
from pipeline.errors import InputError, from_os_error

MAX_BYTES = 16 << 30
MAX_MEMBERS = 10_000
_CHUNK_BYTES = 1 << 20
_TAR_MAGIC_AT = 257
_ZSTD, _GZIP, _XZ = b"\x28\xb5\x2f\xfd", b"\x1f\x8b", b"\xfd7zXZ\x00"


def is_archive(path: Path) -> bool:
    """Return whether path is a tar, told by content; a pipe is none, for looking would use it up."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as raw, _unpacked(raw) as plain:
            head = plain.read(_TAR_MAGIC_AT + 5)
    except OSError:
        return False
    except _damage():
        return False
    return head[_TAR_MAGIC_AT:] == b"ustar"


@contextmanager
def opened(path: Path, max_bytes: int = MAX_BYTES) -> Iterator[Path]:
    """Give the directory of a capture: path itself, or where its archive is unpacked meanwhile."""
    if path.is_dir():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="flameslice-") as folder:
        yield unpack(path, Path(folder), max_bytes)


def unpack(archive: Path, into: Path, max_bytes: int = MAX_BYTES) -> Path:
    """Unpack an archive of one capture into a folder; return the directory that holds capture.json."""
    where = str(archive)
    left_bytes, members = max_bytes, 0
    try:
        with (
            archive.open("rb") as raw,
            _unpacked(raw) as plain,
            tarfile.open(fileobj=plain, mode="r|") as tar,
        ):
            for member in tar:
                members += 1
                left_bytes -= max(member.size, 0)
                if left_bytes < 0 or members > MAX_MEMBERS:
                    remedy = "unpack it yourself and give the directory"
                    problem = f"unpacks to over {max_bytes} bytes or {MAX_MEMBERS} files"
                    raise InputError(problem, remedy, path=where)
                _unpack_member(tar, member, into, where)
    except _damage() as error:
        raise InputError(f"not a readable tar: {error}", "make the archive again", path=where) from None
    except OSError as error:
        raise from_os_error(error, where) from error
    found = [into, *sorted(child for child in into.iterdir() if child.is_dir())]
    holders = [folder for folder in found if (folder / MANIFEST_FILE).is_file()]
    if len(holders) != 1:
        problem = f"{'no' if not holders else 'more than one'} {MANIFEST_FILE} in this archive"
        raise InputError(problem, "make a tar of one capture directory", path=where)
    return holders[0]


def _unpack_member(tar: tarfile.TarFile, member: tarfile.TarInfo, into: Path, where: str) -> None:
    """Write one member below into; refuse what is no plain file or directory, or points elsewhere."""
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts or "\0" in member.name:
        raise InputError(f"member {member.name!r} lies outside the archive", "do not trust it", path=where)
    target = into / name
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    if not member.isreg():
        problem = f"member {member.name!r} is neither a file nor a directory"
        raise InputError(problem, "make a tar of plain files", path=where)
    target.parent.mkdir(parents=True, exist_ok=True)
    data = cast("IO[bytes]", tar.extractfile(member))
    with target.open("xb") as out:
        shutil.copyfileobj(data, out, _CHUNK_BYTES)


@contextmanager
def _unpacked(raw: BinaryIO) -> Iterator[BinaryIO]:
    """Give the plain bytes of a stream that may be compressed, told by its first bytes."""
    head = raw.read(len(_XZ))
    raw.seek(0)
    if head.startswith(_ZSTD):
        import zstandard  # slow to import, and only archives need it

        with zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as plain:
            yield cast(BinaryIO, plain)
    elif head.startswith(_GZIP):
        with gzip.open(raw) as plain_gzip:
            yield cast(BinaryIO, plain_gzip)
    elif head.startswith(_XZ):
        with lzma.open(raw) as plain_xz:
            yield cast(BinaryIO, plain_xz)
    else:
        yield raw


def _damage() -> tuple[type[Exception], ...]:
    """Return what a damaged or hostile archive makes the unpackers raise."""
    import zstandard

    return (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, gzip.BadGzipFile, zstandard.ZstdError)
