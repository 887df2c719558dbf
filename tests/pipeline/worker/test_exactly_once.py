"""Nothing lost, nothing twice: 200,000 rows of two captures, whatever is killed, whenever."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

KILLS = int(os.environ.get("FLAMESLICE_SOAK_KILLS", "5"))  # make soak-kills


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize(
    "point", ["after write", "after link", "before commit", "after commit", "between files"]
)
def test_a_worker_killed_at_a_point_loses_and_doubles_nothing(bench, point: str, number: int) -> None:
    bench.append()
    assert bench.run_worker(point, number) == -9, "the point was never reached"
    assert bench.run_worker() == 0
    bench.check()


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_worker_killed_at_random_loses_and_doubles_nothing(bench, seed: int) -> None:
    bench.append()
    chance = random.Random(seed)
    for _ in range(3):
        with bench.worker() as process:
            bench.wait_until_started(process)
            time.sleep(chance.uniform(0.0, 0.8))
            process.kill()
    assert bench.run_worker() == 0
    bench.check()


def test_everything_appended_twice_is_stored_once(bench) -> None:
    bench.append()
    bench.append()
    assert bench.run_worker() == 0
    bench.append()
    assert bench.run_worker() == 0
    bench.check()


def test_a_producer_that_stopped_in_the_middle_and_began_again(bench) -> None:
    bench.append(bench.made.messages[:120])
    assert bench.run_worker() == 0
    assert bench.capture("one").status == "receiving"
    bench.append()
    assert bench.run_worker() == 0
    bench.check()


def test_another_order_of_messages_makes_the_same_store(bench) -> None:
    shuffled = list(bench.made.messages)
    random.Random(1).shuffle(shuffled)
    bench.append(shuffled[:200])
    bench.run_worker("after link", 2)
    bench.append(shuffled[200:])
    assert bench.run_worker() == 0
    bench.check()


# Kafka alone


def test_workers_share_the_load_and_may_come_and_go(kafka_bench) -> None:
    bench = kafka_bench
    bench.append()
    with bench.worker() as first:
        bench.wait_until_started(first)
        with bench.worker("after commit", 4) as second:  # joins, works, is gone
            second.wait(60)
        with bench.worker() as third:
            time.sleep(0.7)
            third.send_signal(signal.SIGKILL)
        first.wait(90)
        assert first.returncode == 0
    assert bench.run_worker() == 0
    bench.check()


def test_a_worker_that_sleeps_past_its_session_stores_nothing_twice(kafka_bench) -> None:
    bench = kafka_bench
    bench.append()
    with bench.worker() as sleeper:
        bench.wait_until_started(sleeper)
        time.sleep(0.9)
        sleeper.send_signal(signal.SIGSTOP)
        try:
            assert bench.run_worker() == 0  # takes over once the session is over
            bench.check()
        finally:
            sleeper.send_signal(signal.SIGCONT)
        sleeper.wait(90)
        assert sleeper.returncode == 0
    bench.check()


def test_a_topic_that_is_made_anew_is_read_from_its_beginning(kafka_bench) -> None:
    from kafka import KafkaAdminClient

    bench = kafka_bench
    bench.append(bench.made.messages[:200])
    assert bench.run_worker() == 0
    admin = KafkaAdminClient(bootstrap_servers=bench.log_url.removeprefix("kafka://"))
    admin.delete_topics(["flameslice.perf_events", "flameslice.captures"])
    time.sleep(1)
    admin.close()
    bench.append()  # the same offsets hold other messages now
    assert bench.run_worker() == 0
    bench.check()
