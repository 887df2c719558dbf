"""A broker restarted, one of three gone, a topic made anew under a running worker: nothing lost, nothing twice."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from kafka.errors import UnknownBrokerIdError
from kafka.structs import MemberState

from pipeline.errors import WorkError
from pipeline.log import kafka_group
from pipeline.log.config import LogConfig
from pipeline.log.kafka_clients import KafkaClients
from pipeline.log.kafka_log import KafkaLog
from pipeline.log.protocol import Message

if TYPE_CHECKING:
    from tools.kafka.broker import Cluster

pytestmark = pytest.mark.xdist_group("kafka")


class Appending:
    """Appends the captures in a thread, slowly enough for something to happen meanwhile."""

    def __init__(self, bench: Any) -> None:
        self._bench = bench
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self.half = threading.Event()

    def __enter__(self) -> Appending:
        self._thread.start()
        assert self.half.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(120)
        assert not self._thread.is_alive()
        if self._problem is not None:
            raise self._problem

    def _run(self) -> None:
        try:
            messages = self._bench.made.messages
            log = self._bench.open_log()
            for start in range(0, len(messages), 20):
                log.append(messages[start : start + 20])
                log.flush()
                time.sleep(0.05)
                if start >= len(messages) // 3:
                    self.half.set()
            log.close()
        except BaseException as error:
            self._problem = error
        finally:
            self.half.set()


def test_a_broker_restarted_under_producer_and_worker(
    kafka_cluster: Cluster, tmp_path: Path, bench_on: Any
) -> None:
    bench = bench_on(kafka_cluster.bootstrap, tmp_path)
    with bench.service():
        with Appending(bench):
            kafka_cluster.brokers[0].stop()
            time.sleep(1)
            kafka_cluster.brokers[0].start()
        bench.wait_until_complete()
    bench.check()


def test_a_broker_killed_under_producer_and_worker(
    kafka_cluster: Cluster, tmp_path: Path, bench_on: Any
) -> None:
    bench = bench_on(kafka_cluster.bootstrap, tmp_path)
    with bench.service():
        with Appending(bench):
            kafka_cluster.brokers[0].kill()
            kafka_cluster.brokers[0].start()
        bench.wait_until_complete()
    bench.check()


def test_one_of_three_brokers_gone(kafka_cluster_of_three: Cluster, tmp_path: Path, bench_on: Any) -> None:
    bench = bench_on(kafka_cluster_of_three.bootstrap, tmp_path)
    with bench.service():
        with Appending(bench):
            kafka_cluster_of_three.brokers[1].stop()
        bench.wait_until_complete()
    bench.check()


def test_a_topic_made_anew_under_a_running_worker(kafka_bench: Any) -> None:
    from kafka import KafkaAdminClient

    bench = kafka_bench
    with bench.service():
        bench.append(bench.made.messages[:200])
        time.sleep(3)
        admin = KafkaAdminClient(bootstrap_servers=bench.log_url.removeprefix("kafka://"))
        admin.delete_topics(["flameslice.perf_events"])
        time.sleep(1)
        admin.close()
        bench.append()  # more messages than the offsets that were read: none of them may be passed over
        bench.wait_until_complete()
    bench.check()


def test_an_unreachable_broker_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match="Kafka") as caught:
        KafkaLog("127.0.0.1:1", timeout_s=1)
    assert "check the address" in str(caught.value)
    assert "\n" not in str(caught.value)


class NeverJoins:
    """A client that waits for ever for an answer to its joining: kafka-python 3.0.12 does after a broker's end."""

    def poll(self, timeout_ms: int) -> dict[object, object]:
        time.sleep(timeout_ms / 1000)
        return {}

    def group_metadata(self) -> Any:
        return SimpleNamespace(state=MemberState.REBALANCING)

    def close(self, **_: object) -> None:
        """Close nothing."""


def test_a_worker_that_never_gets_to_join_begins_anew(
    fresh_kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_group, "_STUCK_S", 1.0)
    log = KafkaLog(fresh_kafka)
    message = Message("flameslice.frames", b"k", b"v")
    log.append([message])
    log.flush()
    consumer = log.consume("g", ["flameslice.frames"])
    consumer._member.close()
    consumer._member = NeverJoins()
    found: list[Message] = []
    deadline_s = time.monotonic() + 30
    while not found and time.monotonic() < deadline_s:
        records = consumer.poll(0.3)
        lost = consumer.lost()
        found += [record.message for record in records if record.partition not in lost]
    consumer.close()
    log.close()
    assert found == [message]


def test_a_client_that_asks_a_broker_that_has_gone_is_replaced(fresh_kafka: str) -> None:
    clients = KafkaClients(fresh_kafka, LogConfig(), 10.0)
    stale = clients.admin
    with pytest.raises(WorkError, match="2"), clients.told():
        raise UnknownBrokerIdError(2)  # what kafka-python's client says for ever once its controller has gone
    assert clients.admin is not stale
    assert isinstance(clients.admin.list_topics(), list)
    clients.close()
