"""The clients of kafka-python as flameslice sets them up, and their errors as one line that says why."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import kafka
from kafka import errors as kafka_errors

from pipeline.errors import InputError, WorkError
from pipeline.log.config import LogConfig
from pipeline.log.protocol import MAX_MESSAGE_BYTES, Message, Partition, Record

REQUEST_MS = 15_000
LARGEST_MESSAGE_BYTES = 2 << 20  # a dead letter carries the whole message and why
_POLL_RECORDS = 16  # of at most 900 KiB each
_CLIENT_LOGGER = logging.getLogger("kafka")
_CAUSES = (
    "SaslAuthenticationFailed",
    "SSL",
    "certificate",
    "ECONNREFUSED",
    "Name or service",
    "socket disconnected",
)


class _LastWords(logging.Handler):
    """Keeps what the client said last of a failed connection: its errors do not carry it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        words = record.getMessage()
        # of what it says about one failure, only this names the cause
        for cause in _CAUSES:
            if cause in words:
                self.text = words[words.index(cause) :].splitlines()[0][:200]
                return


class KafkaClients:
    """Makes the clients of one cluster."""

    def __init__(self, servers: str, config: LogConfig, timeout_s: float) -> None:
        """Connect; raises WorkError after timeout_s without an answer."""
        self._servers, self.config, self._timeout_s = servers, config, timeout_s
        self._last_words = _LastWords()
        _CLIENT_LOGGER.addHandler(self._last_words)
        _CLIENT_LOGGER.propagate = False  # what matters of it is in our errors
        self._admin: Any = None
        with self.told():
            self._connect()

    def settings(self, client: Any, **own: Any) -> dict[str, Any]:
        """Return the settings of one client."""
        known = client.DEFAULT_CONFIG
        settings: dict[str, Any] = {
            "bootstrap_servers": self._servers.split(","),
            "bootstrap_timeout_ms": int(self._timeout_s * 1000),
            "request_timeout_ms": REQUEST_MS,
            "client_id": "flameslice",
            "reconnect_backoff_max_ms": 5_000,
        }
        settings |= {key: value for key, value in self.config.client.items() if key in known}
        return {key: value for key, value in settings.items() if key in known} | own

    @property
    def admin(self) -> Any:
        """Return the client that asks about topics and makes them."""
        return self._admin or self._connect()

    def _connect(self) -> Any:
        self._admin = kafka.KafkaAdminClient(**self.settings(kafka.KafkaAdminClient))
        return self._admin

    def _disconnect(self) -> None:
        admin, self._admin = self._admin, None
        with contextlib.suppress(Exception):  # it is over anyway
            if admin is not None:
                admin.close()

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Turn the client's errors into one line."""
        try:
            yield
        except (kafka_errors.KafkaError, OSError, AssertionError, ValueError, TypeError) as error:
            # it asks a broker that has gone again and again: the next call begins with those that are known to all
            self._disconnect()
            raise self._error(error) from error

    def _error(self, error: BaseException) -> Exception:
        where = f"kafka://{self._servers}"
        words = str(error) or type(error).__name__
        if isinstance(error, kafka_errors.KafkaTimeoutError) and self._last_words.text:
            words = f"{words} ({self._last_words.text})"
        if isinstance(error, kafka_errors.AuthorizationError | kafka_errors.SaslAuthenticationFailedError):
            remedy = "check the user, the password and the rights in --log-config"
        elif isinstance(error, kafka_errors.KafkaTimeoutError | kafka_errors.KafkaConnectionError | OSError):
            remedy = (
                "check the address, that a broker runs there, and the security settings in --log-config; "
                "what was acknowledged is kept, and the same command goes on from there"
            )
        elif isinstance(
            error, AssertionError | ValueError | TypeError | kafka_errors.KafkaConfigurationError
        ):
            return InputError(f"a setting is wrong: {words}", "correct it", path=self.config.path or where)
        elif isinstance(error, kafka_errors.InvalidReplicationFactorError):
            words = "the topics cannot have so many replicas: the cluster has fewer brokers"
            remedy = "lower replication_factor in the file of --log-config, or start more brokers"
        else:
            remedy = "run it again: it adds only what is missing"
        return WorkError(f"Kafka: {words}", remedy, path=where)

    def new_producer(self) -> Any:
        own: dict[str, Any] = {
            "batch_size": MAX_MESSAGE_BYTES + (16 << 10),
            "linger_ms": 5,
            "max_request_size": LARGEST_MESSAGE_BYTES,
            "delivery_timeout_ms": 60_000,
        }
        own |= self.config.producer
        own |= {"acks": "all", "enable_idempotence": True, "compression_type": None}
        return kafka.KafkaProducer(**self.settings(kafka.KafkaProducer, **own))

    def _consumer_settings(self, **own: Any) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "enable_incremental_fetch_sessions": False,
            "max_poll_records": _POLL_RECORDS,
            "fetch_max_bytes": 16 << 20,
            "max_partition_fetch_bytes": 4 << 20,
            "allow_auto_create_topics": False,
        }
        settings |= self.config.consumer
        settings |= {"enable_auto_commit": False, "auto_offset_reset": "earliest", **own}
        return self.settings(kafka.KafkaConsumer, **settings)

    def new_consumer(self, group: str | None) -> Any:
        """Return a client that reads, as a possible member of a group."""
        return kafka.KafkaConsumer(**self._consumer_settings(group_id=group))

    def close(self) -> None:
        """Close the connection of this object; the clients are their users'."""
        self._disconnect()
        _CLIENT_LOGGER.removeHandler(self._last_words)


def record_of(raw: Any) -> Record:
    """Return a record of the client as ours."""
    headers = tuple((name, text or b"") for name, text in raw.headers)
    message = Message(raw.topic, raw.key or b"", raw.value or b"", headers)
    return Record(Partition(raw.topic, raw.partition), raw.offset, message)
