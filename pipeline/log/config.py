"""The file of `--log-config`: settings of the Kafka clients, and how topics are made.

[client]                                  # all clients: every setting of kafka-python, by its name
security_protocol = "SASL_SSL"
ssl_cafile = "ca.pem"                     # a relative path counts from this file
sasl_mechanism = "SCRAM-SHA-512"
sasl_plain_username = "flameslice"
sasl_plain_password_file = "password"     # or sasl_plain_password
[producer]                                # one client's own: producer, consumer
linger_ms = 20
[topics]                                  # of topics that do not exist yet
partitions = 4
replication_factor = 3
retention_ms = 604800000                  # and any other setting of Kafka's topics
[topics."flameslice.perf_events"]         # one topic's own
partitions = 16
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.errors import InputError, from_os_error

# what exactly-once rests on is not for a file to change
_OURS = frozenset(
    {
        "acks",
        "bootstrap_servers",
        "compression_type",
        "enable_auto_commit",
        "enable_idempotence",
        "auto_offset_reset",
        "group_id",
        "transactional_id",
        "key_serializer",
        "value_serializer",
        "key_deserializer",
        "value_deserializer",
        "kafka_client",
        "selector",
        "ssl_context",
        "partitioner",
    }
)
_PATHS = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile")
_SECRETS = ("sasl_plain_password", "ssl_password")
_PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """How a topic is made; -1 leaves it to the broker."""

    partitions: int = _PARTITIONS
    replication_factor: int = -1
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """What the file says."""

    client: Mapping[str, Any] = field(default_factory=dict)
    producer: Mapping[str, Any] = field(default_factory=dict)
    consumer: Mapping[str, Any] = field(default_factory=dict)
    topics: Mapping[str, Any] = field(default_factory=dict)
    path: str = ""

    def topic(self, name: str) -> TopicPlan:
        """Return how a topic is made."""
        own = self.topics.get(name, {})
        merged = {key: value for key, value in self.topics.items() if not isinstance(value, dict)} | own
        partitions = merged.pop("partitions", _PARTITIONS)
        replicas = merged.pop("replication_factor", -1)
        for key, value in (("partitions", partitions), ("replication_factor", replicas)):
            if type(value) is not int or not (value == -1 or 1 <= value <= 10_000):
                raise InputError(f"topics.{key} is {value!r}", "give a number from 1 on", path=self.path)
        settings = {key.replace("_", "."): _text(value) for key, value in merged.items()}
        return TopicPlan(partitions, replicas, settings)


def load(path: Path) -> LogConfig:
    """Return what a file says; raises InputError that names the file and the key."""
    try:
        body = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise from_os_error(error, str(path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"not TOML: {error}", "correct that place", path=str(path)) from None
    known = ("client", "producer", "consumer", "topics")
    for name, table in body.items():
        if name not in known or not isinstance(table, dict):
            remedy = f"known are the tables {', '.join(known)}"
            raise InputError(f"{name} is no table of this file", remedy, path=str(path))
    parts = {name: _client_settings(body.get(name, {}), path) for name in ("client", "producer", "consumer")}
    config = LogConfig(**parts, topics=body.get("topics", {}), path=str(path))
    _check_names(config)
    for name in ["", *(name for name, value in config.topics.items() if isinstance(value, dict))]:
        config.topic(name)
    return config


def _client_settings(table: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return a table's settings: paths from the file's folder, secrets from their own files."""
    settings = {}
    for key, value in table.items():
        if key in _OURS:
            problem = f"{key} cannot be changed: what is delivered once rests on it"
            raise InputError(problem, "take it out", path=str(path))
        if key.removesuffix("_file") in _SECRETS and key.endswith("_file"):
            settings[key.removesuffix("_file")] = _secret(path.parent / str(value))
        elif key in _PATHS:
            settings[key] = str(path.parent / str(value))
        else:
            settings[key] = value
    return settings


def _secret(path: Path) -> str:
    try:
        return path.read_text("utf-8").rstrip("\r\n")
    except OSError as error:
        raise from_os_error(error, str(path)) from None
    except UnicodeDecodeError:
        raise InputError("not UTF-8 text", "save it as UTF-8", path=str(path)) from None


def _check_names(config: LogConfig) -> None:
    """Refuse what no client of kafka-python knows."""
    import kafka

    known = {
        "producer": set(kafka.KafkaProducer.DEFAULT_CONFIG),
        "consumer": set(kafka.KafkaConsumer.DEFAULT_CONFIG),
    }
    known["client"] = known["producer"] | known["consumer"]
    for name, settings in (
        ("client", config.client),
        ("producer", config.producer),
        ("consumer", config.consumer),
    ):
        for key in settings:
            if key not in known[name]:
                raise InputError(
                    f"{name}.{key} is no setting of kafka-python", "see its documentation", path=config.path
                )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
