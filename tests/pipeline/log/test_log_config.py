"""The file of --log-config: what it says reaches the clients and the topics; a real TLS and SASL listener."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.errors import InputError
from pipeline.log import config
from pipeline.log.config import TopicPlan

if TYPE_CHECKING:
    from tools.kafka.broker import Cluster

ROOT = Path(__file__).resolve().parents[3]


def load(tmp_path: Path, text: str) -> config.LogConfig:
    path = tmp_path / "log.toml"
    path.write_text(text)
    return config.load(path)


def test_settings_of_all_clients_and_of_one(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hush\n")
    found = load(
        tmp_path,
        """
        [client]
        security_protocol = "SASL_SSL"
        ssl_cafile = "ca.pem"
        sasl_plain_password_file = "secret"
        [producer]
        linger_ms = 20
        [consumer]
        session_timeout_ms = 9000
        """,
    )
    assert found.client == {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(tmp_path / "ca.pem"),
        "sasl_plain_password": "hush",
    }
    assert found.producer == {"linger_ms": 20}
    assert found.consumer == {"session_timeout_ms": 9000}


def test_topics_take_what_is_said_of_them_and_else_what_is_said_of_all(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        """
        [topics]
        partitions = 6
        retention_ms = 1000
        [topics."flameslice.spans"]
        partitions = 12
        replication_factor = 3
        """,
    )
    assert found.topic("flameslice.frames") == TopicPlan(6, -1, {"retention.ms": "1000"})
    assert found.topic("flameslice.spans") == TopicPlan(12, 3, {"retention.ms": "1000"})
    assert config.LogConfig().topic("flameslice.frames") == TopicPlan(4, -1, {})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[client", "not TOML"),
        ("[clients]\nx = 1", "clients is no table"),
        ("client = 3", "client is no table"),
        ("[client]\nsasl_pasword = 'x'", "client.sasl_pasword is no setting"),
        ("[producer]\nacks = 0", "acks cannot be changed"),
        ("[consumer]\nenable_auto_commit = true", "enable_auto_commit cannot be changed"),
        ("[client]\nsasl_plain_password_file = 'nowhere'", "no such file"),
        ("[topics]\npartitions = 0", "topics.partitions is 0"),
        ("[topics.x]\npartitions = 'many'", "topics.partitions is 'many'"),
    ],
)
def test_what_is_wrong_is_said_with_the_file(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError if "no such" not in words else Exception, match=words) as caught:
        load(tmp_path, text)
    assert str(tmp_path) in str(caught.value)


# with a real listener; a client that is refused leaks sockets, so each runs in a process of its own


def run_cli(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flameslice", *arguments]
    return subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )


def settings(cluster: Cluster, **changes: str) -> str:
    told = {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(cluster.ca_file),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": cluster.username,
        "sasl_plain_password": cluster.password,
    } | changes
    return "[client]\n" + "".join(f'{key} = "{value}"\n' for key, value in told.items())


def test_ingest_and_worker_over_tls_with_a_password(
    fresh_kafka: str, kafka_sasl_ssl: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "log.toml").write_text(
        settings(kafka_sasl_ssl) + "[topics]\npartitions = 3\nretention_ms = 86400000\n"
    )
    (tmp_path / "a.folded").write_text("main;work 3\nmain;wait 4\n")
    options = [
        "--log",
        f"kafka://{kafka_sasl_ssl.sasl_ssl_bootstrap}",
        "--log-config",
        "log.toml",
        "--data",
        "D",
    ]
    ingested = run_cli(tmp_path, "ingest", "a.folded", *options)
    assert (ingested.returncode, ingested.stderr) == (0, "")
    worked = run_cli(tmp_path, "worker", "--until-empty", *options)
    assert worked.returncode == 0, worked.stderr
    drawn = run_cli(
        tmp_path, "flamegraph", "a.folded", "--format", "folded", "--data", "D", "--input-format", "collapsed"
    )
    stored = run_cli(tmp_path, "flamegraph", "capture:a.folded", "--format", "folded", "--data", "D")
    assert (stored.returncode, stored.stdout) == (0, drawn.stdout)

    from kafka import KafkaAdminClient
    from kafka.admin import ConfigResource

    admin = KafkaAdminClient(bootstrap_servers=fresh_kafka)
    try:
        (frames,) = admin.describe_topics(["flameslice.frames"])
        assert len(frames["partitions"]) == 3
        told = admin.describe_configs([ConfigResource("TOPIC", "flameslice.frames")])
        assert "86400000" in str(told)
    finally:
        admin.close()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sasl_plain_password": "wrong"}, ("SaslAuthenticationFailed", "socket disconnected")),
        ({"ssl_cafile": "other.pem"}, ("certificate",)),
        ({"security_protocol": "PLAINTEXT"}, ("socket disconnected", "Unable to bootstrap")),
    ],
    ids=["password", "authority", "no TLS"],
)
def test_a_refusal_is_one_line_that_says_why(
    kafka_sasl_ssl: Cluster, tmp_path: Path, changes: dict[str, str], words: tuple[str, ...]
) -> None:
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            "/CN=x",
            "-keyout",
            "k",
            "-out",
            "other.pem",
        ],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    (tmp_path / "log.toml").write_text(settings(kafka_sasl_ssl, **changes))
    (tmp_path / "a.folded").write_text("main;work 3\n")
    log = f"kafka://{kafka_sasl_ssl.sasl_ssl_bootstrap}"
    run = run_cli(tmp_path, "ingest", "a.folded", "--log", log, "--log-config", "log.toml", "--data", "D")
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1, run.stderr
    assert any(word in run.stderr for word in words), run.stderr
    assert kafka_sasl_ssl.password not in run.stderr
