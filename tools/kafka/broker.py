"""Runs a real Apache Kafka (KRaft mode) on loopback, for tests and for `make kafka`.

    python tools/kafka/broker.py [--brokers 3] [--sasl-ssl]

prints the address and runs until Ctrl-C. Tests load this file by its path: `with Cluster(3) as cluster: ...`.
Needs java, setpriv, for SASL_SSL also openssl, and the jars that `make kafka-jars` put into .cache/kafka.
Every broker is a JVM of its own that dies with this process, however that ends; all data is temporary.
"""

from __future__ import annotations

import argparse
import atexit
import base64
import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

HERE = Path(__file__).resolve().parent
JARS = HERE.parent.parent / ".cache" / "kafka" / "libs"
HOST = "127.0.0.1"
USERNAME = "flameslice"
PASSWORD = "only-for-tests"
START_TIMEOUT_S = 90.0  # one broker needs about 2 s on an idle machine
STOP_TIMEOUT_S = 15.0  # from SIGTERM to SIGKILL
# starts fast rather than runs fast for days
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*")

# A child gets its parent's death signal when the thread that made it ends. A test may start a broker from a
# thread of its own, so all of them are made by one thread, which lives as long as this process.
_LAUNCHER = ThreadPoolExecutor(1, thread_name_prefix="kafka-launcher")


class BrokerError(Exception):
    """A broker cannot be started."""


def why_missing() -> str | None:
    """Return why no broker can run here, None if it can."""
    for program, package in (
        ("java", "default-jre-headless"),
        ("setpriv", "util-linux"),
        ("openssl", "openssl"),
    ):
        if shutil.which(program) is None:
            return f"{program} is not on PATH (apt-get install {package})"
    if not any(JARS.glob("kafka_*.jar")):
        return "Kafka's jars are not in .cache/kafka (make kafka-jars)"
    return None


def reserve_port() -> socket.socket:
    """Return a socket that keeps a free port ours; only a listener with SO_REUSEADDR, as Java's, may share it.

    While a broker is down nobody else gets its port, neither as a server nor as the near end of a connection.
    """
    holder = socket.socket()
    holder.bind((HOST, 0))
    holder.setsockopt(
        socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
    )  # after bind, so that bind refuses held ports
    return holder


def known_brokers(port: int, timeout_s: float) -> set[int]:
    """Ask the broker at port for its metadata; return the ids of the brokers that it says are alive."""
    client_id = b"ready?"
    request = struct.pack(f">hhih{len(client_id)}si", 3, 1, 7, len(client_id), client_id, 0)  # no topics
    with socket.create_connection((HOST, port), timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            answer = stream.read(size)
    count = struct.unpack_from(">i", answer, 4)[0]
    at, ids = 8, set()
    for _ in range(count):
        node_id, host_size = struct.unpack_from(">ih", answer, at)
        at += 6 + host_size + 4  # id, host, port
        at += 2 + max(struct.unpack_from(">h", answer, at)[0], 0)  # rack, -1: none
        ids.add(node_id)
    return ids


class Broker:
    """One broker and controller in a JVM of its own, on a fixed port and folder."""

    def __init__(self, node_id: int, port: int, settings_file: Path) -> None:
        self.node_id = node_id
        self.port = port
        self.log_file = settings_file.with_suffix(".log")
        self._settings_file = settings_file
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of the JVM that runs, or ran last."""
        assert self._process is not None, "the broker was never started"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the JVM is there, paused or not."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the JVM, on the same port and data as before, and wait until it answers as alive."""
        self.launch()
        self.wait_ready({self.node_id})

    def launch(self) -> None:
        """Start the JVM and return at once."""
        assert not self.running, f"broker {self.node_id} runs already"
        command = ["setpriv", "--pdeathsig", "KILL", "java", *JVM, "kafka.Kafka", str(self._settings_file)]
        with self.log_file.open("ab") as log:
            self._process = _LAUNCHER.submit(
                subprocess.Popen,
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is ours to handle
            ).result()

    def wait_ready(self, node_ids: set[int], timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the broker answers that all of node_ids are alive, itself among them."""
        end_s = time.monotonic() + timeout_s
        while True:
            if not self.running:
                raise BrokerError(f"broker {self.node_id} ended while it started:\n{self._last_words()}")
            if node_ids <= self.alive_brokers():
                return
            if time.monotonic() > end_s:
                raise BrokerError(
                    f"broker {self.node_id} is not ready after {timeout_s:g} s:\n{self._last_words()}"
                )
            time.sleep(0.05)

    def alive_brokers(self, timeout_s: float = 5.0) -> set[int]:
        """Ask it for the ids of all brokers that are alive; none of them where it does not answer in time."""
        with contextlib.suppress(OSError, struct.error):
            return known_brokers(self.port, timeout_s)
        return set()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Ask it to shut down and wait, paused or not; kill it where it does not within timeout_s."""
        self.terminate()
        self.wait_ended(timeout_s)

    def terminate(self) -> None:
        """Ask it to shut down and return at once."""
        self._send(signal.SIGTERM)
        self.resume()  # a paused process does not see SIGTERM

    def wait_ended(self, timeout_s: float) -> None:
        """Wait until it ended; kill it where it does not within timeout_s."""
        if self._process is None:
            return
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it with no chance to write or to say goodbye."""
        self._send(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def pause(self) -> None:
        """Stop its clock: connections stay open and nothing answers."""
        self._send(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)  # its threads stop one after the other

    def resume(self) -> None:
        """Let it go on after pause()."""
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)  # does nothing to a process that ended

    def _last_words(self) -> str:
        lines = self.log_file.read_text("utf-8", "replace").splitlines()
        telling = [line for line in lines if " ERROR " in line or "Exception" in line or "Error" in line]
        return "\n".join((telling or lines)[-10:])


class Cluster:
    """Brokers that know one another; they run once this is made, until stop().

    `bootstrap` is the plaintext address. With sasl_ssl there is a second listener at `sasl_ssl_bootstrap` for
    `username` and `password` (PLAIN or SCRAM-SHA-512), whose certificate `ca_file` vouches for.
    """

    username = USERNAME
    password = PASSWORD

    def __init__(
        self, brokers: int = 1, *, sasl_ssl: bool = False, settings: Mapping[str, str] | None = None
    ) -> None:
        self._holders: list[socket.socket] = []
        self._temporary = tempfile.TemporaryDirectory(prefix="flameslice-kafka-", ignore_cleanup_errors=True)
        self.folder = Path(self._temporary.name)
        self.brokers: list[Broker] = []
        atexit.register(self.stop)
        try:
            self._prepare(brokers, sasl_ssl, dict(settings or {}))
            for broker in self.brokers:
                broker.launch()
            node_ids = {broker.node_id for broker in self.brokers}
            for broker in self.brokers:
                broker.wait_ready(node_ids)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def ca_file(self) -> Path:
        """The PEM file of the authority that signed the certificate of the SASL_SSL listener."""
        return self.folder / "ca.pem"

    def stop(self) -> None:
        """Stop every broker and remove all data."""
        atexit.unregister(self.stop)
        for broker in self.brokers:
            broker.terminate()
        # without a majority of its controllers a broker waits in vain for leave to go; its data goes anyway
        for broker in self.brokers:
            broker.wait_ended(STOP_TIMEOUT_S if len(self.brokers) == 1 else 1.0)
        for holder in self._holders:
            holder.close()
        self._temporary.cleanup()

    def _reserve(self, count: int) -> list[int]:
        holders = [reserve_port() for _ in range(count)]
        self._holders += holders
        return [holder.getsockname()[1] for holder in holders]

    def _prepare(self, count: int, sasl_ssl: bool, settings: dict[str, str]) -> None:
        """Choose ports, write settings and format the folders."""
        ports, controller_ports = self._reserve(count), self._reserve(count)
        secure_ports = self._reserve(count) if sasl_ssl else []
        self.bootstrap = ",".join(f"{HOST}:{port}" for port in ports)
        self.sasl_ssl_bootstrap = ",".join(f"{HOST}:{port}" for port in secure_ports)
        if sasl_ssl:
            make_certificates(self.folder)
        voters = ",".join(f"{node_id}@{HOST}:{port}" for node_id, port in enumerate(controller_ports, 1))
        for node_id, (port, controller_port) in enumerate(zip(ports, controller_ports, strict=True), 1):
            listeners = {"PLAINTEXT": port}
            if sasl_ssl:
                listeners["SASL_SSL"] = secure_ports[node_id - 1]
            lines = {
                "node.id": str(node_id),
                "controller.quorum.voters": voters,
                "listeners": _addresses(listeners | {"CONTROLLER": controller_port}),
                "advertised.listeners": _addresses(listeners),
                "log.dirs": str(self.folder / f"broker-{node_id}"),
                **_replication_settings(count),
                **(_sasl_ssl_settings(self.folder) if sasl_ssl else {}),
                **settings,
            }
            settings_file = self.folder / f"broker-{node_id}.properties"
            own = "".join(f"{key}={value}\n" for key, value in lines.items())
            settings_file.write_text(
                f"{(HERE / 'server.properties').read_text()}{own}"
            )  # the last one counts
            self.brokers.append(Broker(node_id, port, settings_file))
        _format([self.folder / f"broker-{node_id}.properties" for node_id in range(1, count + 1)], sasl_ssl)


def _addresses(listeners: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items())


def _replication_settings(count: int) -> dict[str, str]:
    """Return settings with which a cluster of three goes on without one of its brokers."""
    in_sync = str(max(count - 1, 1))
    settings = {"default.replication.factor": str(count), "min.insync.replicas": in_sync}
    for topic in ("transaction.state.log", "share.coordinator.state.topic"):
        settings |= {f"{topic}.replication.factor": str(count), f"{topic}.min.isr": in_sync}
    return settings | {"offsets.topic.replication.factor": str(count)}


def _sasl_ssl_settings(folder: Path) -> dict[str, str]:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "ssl.keystore.location": str(folder / "server.pem"),
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{module} required user_{USERNAME}="{PASSWORD}";',
    }


def _format(settings_files: Sequence[Path], sasl_ssl: bool) -> None:
    """Let Kafka's own tool make each broker's folder, all at once."""
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    command = ["java", *JVM, "kafka.tools.StorageTool", "format", "-t", cluster_id.replace("-", "_")]
    if sasl_ssl:
        command += ["--add-scram", f"SCRAM-SHA-512=[name={USERNAME},password={PASSWORD}]"]
    running = [
        subprocess.Popen(
            [*command, "-c", str(settings_file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for settings_file in settings_files
    ]
    for process, words in [(process, process.communicate()[0]) for process in running]:
        if process.returncode != 0:
            raise BrokerError(f"StorageTool failed:\n{words}")


def make_certificates(folder: Path) -> None:
    """Write an authority's certificate to ca.pem, and a key and certificate that it signed to server.pem."""
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    for options in (
        ["-extensions", "ca", "-keyout", "ca.key", "-out", "ca.pem"],
        [
            "-extensions",
            "server",
            "-keyout",
            "server.key",
            "-out",
            "server.crt",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
        ],
    ):
        command = ["openssl", "req", "-x509", "-config", str(HERE / "openssl.cnf"), *new_key, *options]
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
        )
        if done.returncode != 0:
            raise BrokerError(f"openssl made no certificate:\n{done.stderr}")
    (folder / "server.pem").write_text(
        "".join((folder / name).read_text() for name in ("server.key", "server.crt"))
    )


def main() -> int:
    """Run brokers until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(description="Run a real Kafka on loopback until Ctrl-C.")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--sasl-ssl", action="store_true", help="with a second listener for SASL over TLS")
    options = parser.parse_args()
    reason = why_missing()
    if reason is not None:
        print(f"kafka: {reason}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Cluster(options.brokers, sasl_ssl=options.sasl_ssl) as cluster:
            print(f"kafka: {cluster.bootstrap}")
            if options.sasl_ssl:
                print(f"kafka: SASL_SSL {cluster.sasl_ssl_bootstrap}, {cluster.username}:{cluster.password}")
                print(f"kafka: trust {cluster.ca_file}")
            print("kafka: runs until Ctrl-C; its data goes with it", flush=True)
            while all(broker.running for broker in cluster.brokers):
                time.sleep(0.5)
            print(f"kafka: a broker ended, so all do: {cluster.folder}", file=sys.stderr)
            return 1
    except BrokerError as error:
        print(f"kafka: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
