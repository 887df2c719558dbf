"""Where a store lies: a folder on a disk (`LocalPlace`) or a bucket (`objects.ObjectPlace`), told by its URL.

Paths have `/` and count from the store's root. A file is created whole and only if its name is free, or replaced whole.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from pipeline.errors import InputError, UsageError, from_os_error

Creation = Literal["created", "exists", "moved"]
DRAFT = ".draft-"  # what a file is called while it is written; no glob of ours finds it
_STALE_DRAFT_S = 24 * 3600


class Folder(Protocol):
    """One folder as it was when it was opened."""

    def names(self) -> list[str]:
        """Return the names of its files, sorted."""

    def target(self, name: str) -> str:
        """Return what polars reads a file of it by."""

    def create(self, name: str, data: bytes) -> Creation:
        """Publish a file durably; 'exists': the name is taken; 'moved': another folder stands here by now."""

    def close(self) -> None:
        """Let go of it."""


class Place(Protocol):
    """The root of a store; calls raise WorkError, which says what to do."""

    url: str

    def options(self) -> Mapping[str, str] | None:
        """Return polars' storage options."""

    def folder(self, path: str) -> Folder:
        """Open a folder, made where it is missing."""

    def names(self, path: str) -> list[str]:
        """Return the files directly in a folder, sorted; none where there is no such folder."""

    def folders(self, path: str) -> list[str]:
        """Return the folders directly in a folder, sorted."""

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes, None where there is none."""

    def create(self, path: str, data: bytes) -> bool:
        """Publish a file durably; False where the name is taken."""

    def replace(self, path: str, data: bytes) -> None:
        """Publish a file durably in place of an older one."""

    def put_file(self, path: str, source: Path) -> None:
        """Publish a copy of a file, however large, in place of an older one."""

    def remove(self, path: str) -> None:
        """Remove a folder and everything in it."""

    def target(self, path: str) -> str:
        """Return what polars reads a file by."""

    def sweep(self, path: str) -> None:
        """Remove what processes left behind in a folder that were killed long ago."""


def open_place(url: str) -> Place:
    """Return the store of a path, a file: URL or an s3: URL."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return _local(Path(url))
    if scheme == "file":
        return _local(Path("/" + rest.lstrip("/")))
    if scheme in ("s3", "s3a"):
        from pipeline.store.objects import ObjectPlace

        return ObjectPlace(url)
    raise UsageError(f"no store of kind {scheme}:", "give a path, or s3://bucket/prefix")


def _local(root: Path) -> LocalPlace:
    """Return a folder as a place; what is there and is no folder must not look like an empty store."""
    with _told(root):
        if root.exists() and not root.is_dir():
            raise InputError("not a directory", "give the directory of a store", path=str(root))
    return LocalPlace(root)


class LocalPlace:
    """A folder on a disk, readable by its user alone."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = str(root)

    def options(self) -> None:
        return None

    def folder(self, path: str) -> LocalFolder:
        with _told(self.root / path):
            return LocalFolder(self._made(path))

    def _made(self, path: str) -> Path:
        """Make a folder and those above it, each durable in the one above."""
        here = self.root
        if not here.is_dir():
            here.mkdir(parents=True, exist_ok=True, mode=0o700)
        for part in path.split("/"):
            above, here = here, here / part
            try:
                here.mkdir(mode=0o700)
            except FileExistsError:
                continue
            sync_folder(above)
        return here

    def names(self, path: str) -> list[str]:
        with _told(self.root / path):
            return _files(str(self.root / path))

    def folders(self, path: str) -> list[str]:
        with _told(self.root / path):
            try:
                with os.scandir(self.root / path) as entries:
                    return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
            except (FileNotFoundError, NotADirectoryError):
                return []

    def read(self, path: str) -> bytes | None:
        with _told(self.root / path):
            try:
                return (self.root / path).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def create(self, path: str, data: bytes) -> bool:
        above, _, name = path.rpartition("/")
        folder = self.folder(above)
        try:
            return folder.create(name, data) == "created"
        finally:
            folder.close()

    def replace(self, path: str, data: bytes) -> None:
        above, _, name = path.rpartition("/")
        with _told(self.root / path):
            folder = self._made(above)
            with _draft(folder) as draft:
                write_durably(draft, data)
                draft.replace(folder / name)
            sync_folder(folder)

    def put_file(self, path: str, source: Path) -> None:
        above, _, name = path.rpartition("/")
        with _told(source):
            read = source.open("rb")
        with read, _told(self.root / path):
            folder = self._made(above)
            with _draft(folder) as draft:
                with _created(draft) as out:
                    shutil.copyfileobj(read, out, 4 << 20)
                    out.flush()
                    os.fsync(out.fileno())
                draft.replace(folder / name)
            sync_folder(folder)

    def remove(self, path: str) -> None:
        with _told(self.root / path):
            target = self.root / path
            hidden = self.root / f"{DRAFT}removed-{secrets.token_hex(8)}"
            try:
                target.rename(hidden)  # at once for whoever looks, and out of sight of globs over captures/
            except FileNotFoundError:
                return
            sync_folder(target.parent)
            shutil.rmtree(hidden)

    def target(self, path: str) -> str:
        return str(self.root / path)

    def sweep(self, path: str) -> None:
        now_s = time.time()
        with contextlib.suppress(OSError), os.scandir(self.root / path) as entries:
            for entry in entries:
                if entry.name.startswith(DRAFT) and now_s - entry.stat().st_mtime > _STALE_DRAFT_S:
                    if entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(entry.path, ignore_errors=True)
                    else:
                        Path(entry.path).unlink(missing_ok=True)


class LocalFolder:
    """A folder held open: what is created goes into this one, even where another has taken its name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def names(self) -> list[str]:
        return _files(f"/proc/self/fd/{self._handle}")

    def target(self, name: str) -> str:
        return f"/proc/self/fd/{self._handle}/{name}"

    def create(self, name: str, data: bytes) -> Creation:
        draft = f"{DRAFT}{secrets.token_hex(8)}"
        with _told(self._path / name):
            try:
                handle = os.open(
                    draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self._handle
                )
            except FileNotFoundError:
                return "moved"  # the folder was removed
            try:
                with os.fdopen(handle, "wb") as out:
                    out.write(data)
                    out.flush()
                    os.fsync(out.fileno())
                os.link(draft, name, src_dir_fd=self._handle, dst_dir_fd=self._handle)
            except FileExistsError:
                return "exists"
            except FileNotFoundError:
                return "moved"  # removed meanwhile, and the draft with it
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(draft, dir_fd=self._handle)
            os.fsync(self._handle)
        return "created" if self._is_current() else "moved"

    def _is_current(self) -> bool:
        try:
            now, held = self._path.stat(), os.fstat(self._handle)
        except FileNotFoundError:
            return False
        return (now.st_dev, now.st_ino) == (held.st_dev, held.st_ino)

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def write_durably(path: Path, data: bytes) -> None:
    """Write a new file so that a crash afterwards does not take it."""
    with _created(path) as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _created(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


@contextlib.contextmanager
def _draft(folder: Path) -> Iterator[Path]:
    draft = folder / f"{DRAFT}{secrets.token_hex(8)}"
    try:
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _files(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(
                entry.name for entry in entries if not entry.name.startswith(DRAFT) and entry.is_file()
            )
    except (FileNotFoundError, NotADirectoryError):
        return []


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise from_os_error(error, str(path)) from error
