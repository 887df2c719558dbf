"""The real Kafka that tests run against does what they rely on."""

from __future__ import annotations

import uuid

from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic


def make_topic(**client: object) -> str:
    name = f"test-{uuid.uuid4().hex}"
    admin = KafkaAdminClient(**client)
    admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=-1)])
    admin.close()
    return name


def round_trip(**client: object) -> bytes:
    topic = make_topic(**client)
    producer = KafkaProducer(acks="all", enable_idempotence=True, **client)
    producer.send(topic, b"payload").get(timeout=30)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **client)
    value: bytes = next(consumer).value
    consumer.close()
    return value


def test_message_goes_there_and_back(kafka: str) -> None:
    assert round_trip(bootstrap_servers=kafka) == b"payload"
