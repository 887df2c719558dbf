"""An S3 server of the tests' own, and captures in stores."""

from __future__ import annotations

import itertools
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SERVER = Path(__file__).with_name("s3_server.py")


@dataclass(frozen=True, slots=True)
class S3:
    """A server and one empty bucket of it."""

    address: str
    bucket: str

    @property
    def environment(self) -> dict[str, str]:
        """What a client of it has in its environment."""
        return {
            "AWS_ENDPOINT_URL": self.address,
            "AWS_ACCESS_KEY_ID": "fake",
            "AWS_SECRET_ACCESS_KEY": "fake",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def refuse_credentials(self, is_on: bool) -> None:
        """Let the server check who calls (it knows nobody), or let it take everyone."""
        _ask(f"{self.address}/moto-api/reset-auth", "POST", b"0" if is_on else b"inf")


def _ask(address: str, method: str, body: bytes | None = None) -> None:
    headers = {"Content-Type": "text/plain"}  # else the server takes the body for a form
    request = urllib.request.Request(address, data=body, headers=headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


@pytest.fixture(scope="session")
def s3_address() -> Iterator[str]:
    """The address of an S3 server on loopback."""
    with subprocess.Popen(
        [sys.executable, str(SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.stdin.close()
        assert server.wait(timeout=30) == 0


_numbers = itertools.count()


@pytest.fixture
def s3(s3_address: str, monkeypatch: pytest.MonkeyPatch) -> S3:
    """An empty bucket, which the environment leads to."""
    found = S3(s3_address, f"bucket-{next(_numbers)}")
    _ask(f"{s3_address}/{found.bucket}", "PUT")
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ENDPOINT_URL_S3", "AWS_ALLOW_HTTP"):
        monkeypatch.delenv(name, raising=False)
    return found
