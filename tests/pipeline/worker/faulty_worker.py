"""A worker that holds little, and dies by SIGKILL at a chosen point: faulty_worker.py LOG DATA POINT NUMBER.

POINT is one of POINTS (or `never`), NUMBER says at which time that it is reached. It works until the log is empty.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flameslice import logs
from pipeline.log import embedded
from pipeline.log.config import LogConfig
from pipeline.store.catalog import Catalog
from pipeline.store.parts import StoredTable
from pipeline.store.place import open_place
from pipeline.worker import TOPICS, Worker

POINTS = ("after write", "after link", "before commit", "after commit", "between files")
SMALL_POLL = {"session_timeout_ms": 1500, "heartbeat_interval_ms": 300, "max_poll_records": 10}


def main() -> None:
    """Work."""
    log_url, data, point, number = sys.argv[1:5]
    reached = counter(int(number))
    is_part = [False]  # facts and manifests are links too: only parts count
    catalog = Catalog(open_place(data))
    path = logs.embedded_path(log_url, data)
    embedded._POLL_BYTES = 150_000
    if path is not None:
        log: Any = logs.open_embedded(path, catalog)
    else:
        from pipeline.log.kafka_log import KafkaLog

        log = KafkaLog(log_url.removeprefix("kafka://"), LogConfig(consumer=SMALL_POLL))
    consumer = log.consume(logs.group_of(log_url, catalog), TOPICS)
    link, publish, commit = os.link, StoredTable.publish, consumer.commit

    def dying_link(*args: Any, **options: Any) -> None:
        if point == "after write" and is_part[0]:
            reached()
        link(*args, **options)
        if point == "after link" and is_part[0]:
            reached()

    def dying_publish(self: StoredTable, *args: Any) -> int:
        is_part[0] = True
        added = publish(self, *args)
        is_part[0] = False
        if point == "between files":
            reached()
        return added

    def dying_commit(positions: Any) -> bool:
        if point == "before commit":
            reached()
        is_ours = commit(positions)
        if point == "after commit":
            reached()
        return bool(is_ours)

    os.link = dying_link  # type: ignore[assignment]
    StoredTable.publish = dying_publish  # type: ignore[method-assign, assignment]
    consumer.commit = dying_commit
    worker = Worker(log, consumer, catalog, hold_bytes=1 << 20, hold_s=0.3)
    Path(f"{data}.started").touch()
    # of the whole group: what a killed worker had comes to this one only once its session is over
    group = logs.group_of(log_url, catalog)
    while worker.step(0.2) > 0 or any(log.lag(group, TOPICS).values()):
        pass
    worker.flush()
    worker.close()
    log.close()


def counter(number: int) -> Callable[[], None]:
    """Return what kills this process when it is called for the given time."""
    left = [number]

    def reached() -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return reached


if __name__ == "__main__":
    main()
