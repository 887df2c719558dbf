"""The real Kafka that tests run against does what they rely on, and nothing of it is left behind."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

if TYPE_CHECKING:
    from tools.kafka.broker import Broker, Cluster

BROKER_PROGRAM = Path(__file__).resolve().parent.parent.parent / "tools" / "kafka" / "broker.py"

# A client that is refused leaves sockets open for the garbage collector: it does so in a process of its own.
REFUSED_CLIENT = """\
import json, logging, sys, kafka
logging.basicConfig(level=logging.WARNING)
try:
    kafka.KafkaProducer(bootstrap_timeout_ms=1500, **json.loads(sys.argv[1]))
except kafka.errors.KafkaTimeoutError:
    sys.exit(3)
"""


def make_topic(**client: object) -> str:
    """Make a topic of one partition, with as many replicas as the cluster's settings say."""
    name = f"test-{uuid.uuid4().hex}"
    admin = KafkaAdminClient(**client)
    admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=-1)])
    admin.close()
    return name


def produce(topic: str, values: list[bytes], **client: object) -> None:
    producer = KafkaProducer(acks="all", enable_idempotence=True, **client)
    for sent in [producer.send(topic, value) for value in values]:
        sent.get(timeout=30)
    producer.close()


def consume(topic: str, count: int, **client: object) -> list[bytes]:
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **client)
    values = [message.value for _, message in zip(range(count), consumer, strict=False)]
    consumer.close()
    return values


def secure_client(cluster: Cluster) -> dict[str, str]:
    return {
        "bootstrap_servers": cluster.sasl_ssl_bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(cluster.ca_file),
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": cluster.username,
        "sasl_plain_password": cluster.password,
    }


def refused(client: dict[str, str]) -> str:
    """Return what a client logs that gets no connection with these settings."""
    command = [sys.executable, "-W", "ignore", "-c", REFUSED_CLIENT, json.dumps(client)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3, done.stderr
    return done.stderr


def test_message_goes_there_and_back(kafka: str, request: pytest.FixtureRequest) -> None:
    topic = make_topic(bootstrap_servers=kafka)
    produce(topic, [b"payload"], bootstrap_servers=kafka)
    assert consume(topic, 1, bootstrap_servers=kafka) == [b"payload"]
    group = request.node.get_closest_marker("xdist_group")
    assert group is not None, "no test worker would know that another one runs the broker"
    assert group.args == ("kafka",)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_message_goes_there_and_back_over_tls(kafka_sasl_ssl: Cluster, mechanism: str) -> None:
    client = secure_client(kafka_sasl_ssl) | {"sasl_mechanism": mechanism}
    topic = make_topic(**client)
    produce(topic, [b"payload"], **client)
    assert consume(topic, 1, **client) == [b"payload"]


@pytest.mark.parametrize(
    ("mechanism", "reason"),
    [
        ("PLAIN", "Invalid username or password"),
        ("SCRAM-SHA-512", "due to invalid credentials with SASL mechanism SCRAM-SHA-512"),
    ],
)
def test_wrong_password_is_refused(kafka_sasl_ssl: Cluster, mechanism: str, reason: str) -> None:
    client = {"sasl_mechanism": mechanism, "sasl_plain_password": f"not {kafka_sasl_ssl.password}"}
    refused(secure_client(kafka_sasl_ssl) | client)
    # the client may be too slow to read why, so the broker says it
    assert reason in kafka_sasl_ssl.brokers[0].log_file.read_text()


def test_certificate_of_another_authority_is_refused(kafka_sasl_ssl: Cluster, tmp_path: Path) -> None:
    options = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=another -keyout key -out ca.pem"
    subprocess.run(
        ["openssl", "req", "-x509", *options.split()],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=60,
    )
    log = refused(secure_client(kafka_sasl_ssl) | {"ssl_cafile": str(tmp_path / "ca.pem")})
    assert "certificate verify failed" in log


def test_certificate_is_for_this_host_only(kafka_sasl_ssl: Cluster) -> None:
    port = kafka_sasl_ssl.sasl_ssl_bootstrap.rpartition(":")[2]
    client = secure_client(kafka_sasl_ssl)
    make_topic(**client | {"bootstrap_servers": f"localhost:{port}"})
    log = refused(client | {"bootstrap_servers": f"127.1:{port}"})  # the same address by another name
    assert "Hostname mismatch" in log


def test_killed_broker_comes_back_with_its_data(kafka_cluster: Cluster) -> None:
    (broker,) = kafka_cluster.brokers
    topic = make_topic(bootstrap_servers=kafka_cluster.bootstrap)
    produce(topic, [b"before"], bootstrap_servers=kafka_cluster.bootstrap)
    first_pid = broker.pid
    broker.kill()
    assert not process_exists(first_pid)
    broker.start()
    assert broker.pid != first_pid
    produce(topic, [b"after"], bootstrap_servers=kafka_cluster.bootstrap)
    assert consume(topic, 2, bootstrap_servers=kafka_cluster.bootstrap) == [b"before", b"after"]

    broker.pause()
    assert broker.alive_brokers(timeout_s=0.5) == set()
    broker.resume()
    assert broker.alive_brokers() == {1}

    broker.pause()
    kafka_cluster.stop()
    assert not process_exists(broker.pid)
    assert not kafka_cluster.folder.exists()


def test_two_of_three_brokers_go_on(kafka_cluster_of_three: Cluster) -> None:
    client = {"bootstrap_servers": kafka_cluster_of_three.bootstrap}
    topic = make_topic(**client)
    leader = leader_of(topic, kafka_cluster_of_three)
    producer = KafkaProducer(acks="all", enable_idempotence=True, **client)
    producer.send(topic, b"0").get(timeout=30)
    leader.stop()
    assert leader_of(topic, kafka_cluster_of_three) is not leader
    producer.send(topic, b"1").get(timeout=30)
    leader.start()
    producer.send(topic, b"2").get(timeout=30)
    producer.close()
    assert consume(topic, 3, **client) == [b"0", b"1", b"2"]

    kafka_cluster_of_three.stop()
    assert not any(process_exists(broker.pid) for broker in kafka_cluster_of_three.brokers)


def leader_of(topic: str, cluster: Cluster) -> Broker:
    """The broker that leads the topic's partition, once the answering broker has heard of one."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    end_s = time.monotonic() + 30
    leader = None
    while leader is None:
        assert time.monotonic() < end_s, "no broker leads the partition"
        (description,) = admin.describe_topics([topic])
        ids = [partition["leader_id"] for partition in description["partitions"]]
        leader = next((broker for broker in cluster.brokers if broker.node_id in ids), None)
    admin.close()
    return leader


@pytest.mark.usefixtures("kafka_sasl_ssl")  # skips where no broker can run
def test_broker_dies_with_a_killed_program(tmp_path: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, BROKER_PROGRAM],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},  # what it has no chance to remove
    )
    assert program.stdout is not None
    host, _, port = program.stdout.readline().strip().removeprefix("kafka: ").rpartition(":")
    assert listens(host, int(port))
    program.kill()
    program.communicate()
    end_s = time.monotonic() + 30
    while listens(host, int(port)):
        assert time.monotonic() < end_s, "the broker outlives the program that started it"
        time.sleep(0.05)


def listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
