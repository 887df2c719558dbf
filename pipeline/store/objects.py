"""A store in a bucket: S3, or what speaks its protocol, by obstore.

A part is published with If-None-Match, so that of two writers of one name one fails. Settings and credentials come from
the environment, as every S3 client reads it: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL
(plain http only to loopback, or with AWS_ALLOW_HTTP=true), or from the machine's role.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from pipeline.errors import InputError, UsageError, WorkError, from_os_error
from pipeline.store import causes
from pipeline.store.place import Creation

if TYPE_CHECKING:
    from obstore.store import S3Store

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# our choice: who waits at a terminal hears within two minutes of an address that takes every word and never answers
_CONNECT_S, _REQUEST_S, _RETRY_S, _RETRIES = 5, 60, 45, 5
_CHUNK_BYTES = 8 << 20  # of a file that is sent in pieces
_CHUNKS = 9_000  # S3 takes 10,000 pieces of one file
_CHUNKS_AT_ONCE = 4


class ObjectPlace:
    """A prefix in a bucket."""

    def __init__(self, url: str) -> None:
        from obstore.store import S3Store

        _, _, rest = url.partition("://")
        bucket, _, prefix = rest.partition("/")
        prefix = prefix.strip("/")
        if not bucket:
            raise UsageError(f"no bucket in {url!r}", "give s3://bucket/prefix")
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self._options = _options(os.environ)
        with self._told(""):
            self._store: S3Store = S3Store(
                bucket,
                prefix=prefix or None,
                config=self._options,  # type: ignore[arg-type]
                client_options={"connect_timeout": f"{_CONNECT_S}s", "timeout": f"{_REQUEST_S}s"},
                retry_config={"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S)},
            )

    def options(self) -> Mapping[str, str]:
        return self._options

    def folder(self, path: str) -> ObjectFolder:
        return ObjectFolder(self, path)

    def names(self, path: str) -> list[str]:
        return self._listed(path)[0]

    def folders(self, path: str) -> list[str]:
        return self._listed(path)[1]

    def _listed(self, path: str) -> tuple[list[str], list[str]]:
        with self._told(path):
            found: Any = obstore.list_with_delimiter(self._store, path)
            names = sorted(str(one["path"]).rpartition("/")[2] for one in found["objects"])
            folders = sorted(str(one).rstrip("/").rpartition("/")[2] for one in found["common_prefixes"])
            return names, folders

    def read(self, path: str) -> bytes | None:
        with self._told(path):
            try:
                return bytes(obstore.get(self._store, path).bytes())
            except FileNotFoundError as error:
                if causes.code_of(error) == "NoSuchBucket":
                    raise
                return None

    def create(self, path: str, data: bytes) -> bool:
        with self._told(path):
            try:
                obstore.put(self._store, path, data, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

    def replace(self, path: str, data: bytes) -> None:
        with self._told(path):
            obstore.put(self._store, path, data)

    def put_file(self, path: str, source: Path) -> None:
        try:
            size_bytes = source.stat().st_size
            read = source.open("rb")
        except OSError as error:
            raise from_os_error(error, str(source)) from error
        with read, self._told(path):
            obstore.put(
                self._store,
                path,
                read,
                chunk_size=max(_CHUNK_BYTES, -(-size_bytes // _CHUNKS)),
                max_concurrency=_CHUNKS_AT_ONCE,
            )

    def remove(self, path: str) -> None:
        with self._told(path):
            for batch in obstore.list(self._store, path):
                obstore.delete(self._store, [str(one["path"]) for one in batch])

    def target(self, path: str) -> str:
        return f"{self.url}/{path}"

    def sweep(self, path: str) -> None:
        """Do nothing: an object appears whole or not at all."""

    @contextlib.contextmanager
    def _told(self, path: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError) as error:
            words, remedy = causes.explain(
                error, "check the bucket, AWS_ENDPOINT_URL, AWS_REGION and the credentials"
            )
            raise WorkError(words, remedy, path=self.target(path)) from error
        except (
            ValueError
        ) as error:  # of obstore: what no object may be called; of Python: bytes that are no UTF-8
            problem = "an object store takes no such name"
            raise InputError(problem, "rename the file", path=self.target(path)) from error


class ObjectFolder:
    """A prefix: nothing takes its place, for compaction is for disks."""

    def __init__(self, place: ObjectPlace, path: str) -> None:
        self._place, self._path = place, path

    def names(self) -> list[str]:
        return self._place.names(self._path)

    def target(self, name: str) -> str:
        return self._place.target(f"{self._path}/{name}")

    def create(self, name: str, data: bytes) -> Creation:
        return "created" if self._place.create(f"{self._path}/{name}", data) else "exists"

    def close(self) -> None:
        """Hold nothing."""


def _options(env: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that polars and obstore share."""
    names = (
        "aws_access_key_id",
        "aws_secret_access_key",
        "aws_session_token",
        "aws_region",
        "aws_endpoint_url",
    )
    options = {name: env[name.upper()] for name in names if env.get(name.upper())}
    options.setdefault("aws_region", env.get("AWS_DEFAULT_REGION") or "us-east-1")
    endpoint = env.get("AWS_ENDPOINT_URL_S3") or options.get("aws_endpoint_url", "")
    if endpoint:
        options["aws_endpoint_url"] = endpoint
    if endpoint.startswith("http://"):
        is_allowed = env.get("AWS_ALLOW_HTTP", "").lower() in ("true", "1")
        if urlsplit(endpoint).hostname not in _LOOPBACK and not is_allowed:
            raise UsageError(
                f"AWS_ENDPOINT_URL {endpoint} is not encrypted",
                "give an https: address, or set AWS_ALLOW_HTTP=true where the network is to be trusted",
            )
        options["aws_allow_http"] = "true"
    elif endpoint and not endpoint.startswith("https://"):
        raise UsageError(f"AWS_ENDPOINT_URL {endpoint} is no address", "give https://host")
    return options
