"""What every test may ask for: the command line, golden files, and things that not every machine has.

A fixture for something that the machine cannot give skips the test with the reason. What FLAMESLICE_REQUIRE
names (`perf,perf_root,chromium,corpus,kafka`) may not skip: its absence fails the test instead.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from tools.kafka.broker import Cluster

ROOT = Path(__file__).resolve().parent.parent

# no deadlines: a busy machine must not fail a law; in CI the same examples every time
hypothesis.settings.register_profile("dev", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("soak", deadline=None, max_examples=10_000)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bless", action="store_true", help="record golden files anew; read the diff afterwards"
    )


# ------------------------------------------------------------------ what a machine may lack


def _why_perf_record_fails(*options: str) -> str | None:
    """Return perf's last words if it cannot record a short command with options, None if it can."""
    perf = shutil.which("perf")
    if perf is None:
        return "perf is not on PATH (apt-get install linux-perf)"
    with tempfile.TemporaryDirectory() as folder:
        command = [perf, "record", "-q", *options, "-o", f"{folder}/perf.data", "--", "true"]
        run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    words = [line.strip() for line in run.stderr.splitlines() if line.strip()]
    return None if run.returncode == 0 else f"perf record failed: {words[-1] if words else run.returncode}"


def _why_no_perf() -> str | None:
    return _why_perf_record_fails("-e", "cpu-clock")


def _why_no_perf_root() -> str | None:
    if os.geteuid() != 0:
        return "recording the whole machine needs root"
    return _why_perf_record_fails("-a", "-e", "cpu-clock", "-e", "sched:sched_switch")


def _why_no_chromium() -> str | None:
    return None if shutil.which("chromium") else "chromium is not on PATH (apt-get install chromium)"


def _why_no_corpus() -> str | None:
    folder = os.environ.get("FLAMESLICE_CORPUS", "")
    if not folder:
        return "FLAMESLICE_CORPUS does not name the folder of captures"
    return None if Path(folder).is_dir() else f"FLAMESLICE_CORPUS is not a folder: {folder}"


def _why_no_kafka() -> str | None:
    return None if os.environ.get("FLAMESLICE_TEST_KAFKA") else _why_no_own_kafka()


def _why_no_own_kafka() -> str | None:
    return kafka_broker_module().why_missing()


PROBES: Mapping[str, Callable[[], str | None]] = {
    "perf": _why_no_perf,
    "perf_root": _why_no_perf_root,
    "chromium": _why_no_chromium,
    "corpus": _why_no_corpus,
    "kafka": _why_no_kafka,
    "kafka_cluster": _why_no_own_kafka,
}


@functools.cache
def why_missing(name: str) -> str | None:
    """Return why this machine cannot give name, None if it can."""
    return PROBES[name]()


def required_names() -> list[str]:
    """Return what FLAMESLICE_REQUIRE says may not be missing."""
    return [name.strip() for name in os.environ.get("FLAMESLICE_REQUIRE", "").split(",") if name.strip()]


def _need(name: str) -> None:
    reason = why_missing(name)
    if reason is not None and name in required_names():
        pytest.fail(f"FLAMESLICE_REQUIRE names {name}: {reason}", pytrace=False)
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def perf() -> str:
    """The path of a perf that may record a process of ours."""
    _need("perf")
    return shutil.which("perf") or ""


@pytest.fixture
def perf_root() -> str:
    """The path of a perf that may record the whole machine with tracepoints."""
    _need("perf_root")
    return shutil.which("perf") or ""


@pytest.fixture
def chromium() -> str:
    """The path of a browser that draws pages without a screen."""
    _need("chromium")
    return shutil.which("chromium") or ""


@pytest.fixture
def corpus() -> Path:
    """The folder of real captures that FLAMESLICE_CORPUS names."""
    _need("corpus")
    return Path(os.environ["FLAMESLICE_CORPUS"])


# ------------------------------------------------------------------ a real Kafka

# Under xdist every worker is a process with fixtures of its own. So that one worker starts the one broker,
# tests with a fixture of Kafka form the group "kafka" of `--dist loadgroup`: see the hook below.
# Topics are not made by using them, and the session's broker is shared: every test makes topics and names
# consumer groups of its own.


@functools.cache
def kafka_broker_module() -> ModuleType:
    """Load tools/kafka/broker.py, which lies in no package."""
    spec = importlib.util.spec_from_file_location("kafka_broker", ROOT / "tools" / "kafka" / "broker.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    for item in items:
        if any(name.startswith("kafka") for name in getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group("kafka"))
    yield
    # pytest-xdist 3.8.0 writes the group where pytest 9.2 does not read it (pytest-dev/pytest-xdist#1386)
    for item in items:
        named = getattr(item, "_nodeid", item.nodeid)
        if named != item.nodeid:
            item._id = type(item._id).parse(named)


@pytest.fixture(scope="session")
def kafka_sasl_ssl() -> Iterator[Cluster]:
    """The session's broker as a Cluster: leave it running. It also listens for SASL over TLS."""
    _need("kafka_cluster")
    with kafka_broker_module().Cluster(1, sasl_ssl=True) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> str:
    """The address of a broker that all tests of this process share, or of FLAMESLICE_TEST_KAFKA."""
    _need("kafka")
    given = os.environ.get("FLAMESLICE_TEST_KAFKA")
    return given or request.getfixturevalue("kafka_sasl_ssl").bootstrap


@pytest.fixture
def fresh_kafka(kafka: str) -> str:
    """The address of a broker that holds no topic of ours."""
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=kafka)
    try:
        while ours := [topic for topic in admin.list_topics() if topic.startswith("flameslice.")]:
            with contextlib.suppress(Exception):  # some are on their way out already
                admin.delete_topics(ours)
            time.sleep(0.1)
    finally:
        admin.close()
    return kafka


@pytest.fixture
def kafka_cluster() -> Iterator[Cluster]:
    """A Cluster of one broker that the test may stop, kill, pause and start."""
    _need("kafka_cluster")
    with kafka_broker_module().Cluster(1) as cluster:
        yield cluster


@pytest.fixture
def kafka_cluster_of_three() -> Iterator[Cluster]:
    """A Cluster of three brokers that goes on without one of them."""
    _need("kafka_cluster")
    with kafka_broker_module().Cluster(3) as cluster:
        yield cluster


# ------------------------------------------------------------------ the command line


@dataclass(frozen=True, slots=True)
class Ran:
    """How a run of the command line ended."""

    status: int
    stdout: bytes
    stderr: str


RunCli = Callable[..., Ran]


@pytest.fixture
def run_cli(tmp_path: Path) -> RunCli:
    """Run `flameslice` as a process of its own, in tmp_path and with none of the user's settings."""

    def run(
        *args: str | Path,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: Path = tmp_path,
        python_options: Sequence[str] = (),
        timeout: float = 120,
    ) -> Ran:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("FLAMESLICE_")}
        kept |= {"PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(tmp_path / "config")}
        kept |= {"XDG_DATA_HOME": str(tmp_path / "data")}
        command = [sys.executable, *python_options, "-m", "flameslice", *map(str, args)]
        done = subprocess.run(
            command, input=stdin, capture_output=True, env=kept | dict(env or {}), cwd=cwd, timeout=timeout
        )
        return Ran(done.returncode, done.stdout, done.stderr.decode("utf-8", "backslashreplace"))

    return run


# ------------------------------------------------------------------ golden files


CheckGolden = Callable[[Path, bytes], None]


@pytest.fixture
def check_golden(request: pytest.FixtureRequest) -> CheckGolden:
    """Compare bytes with a recorded file, or record them with --bless."""

    def check(path: Path, actual: bytes) -> None:
        if request.config.getoption("--bless"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(actual)
        assert path.exists(), f"{path} was never recorded: run pytest --bless and read it"
        assert actual == path.read_bytes(), f"{path.name} differs; if that is meant: pytest --bless"

    return check
