"""Records are counted as they appear, however perf cuts what it writes."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from collectors.perf_growth import Growth

HEAD = b"PERFILE2" + struct.pack("=QQQQQQ", 104, 128, 104, 0, 200, 0) + b"\0" * 144
assert len(HEAD) == 200


def record(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHH", kind, 0, 8 + len(body)) + body


RECORDS = [
    record(9, b"\0" * 32),  # a sample
    record(3, struct.pack("=II", 70, 71) + b"comm\0\0\0\0"),
    record(9, b"\0" * 8),
    record(10, struct.pack("=II", 80, 80) + b"\0" * 64),
    record(2, struct.pack("=QQ", 1, 5)),  # LOST: id 1, 5 events
    record(13, struct.pack("=Q", 4)),  # LOST_SAMPLES
    record(5, b"\0" * 24),
    record(15, b"\0" * 8),  # a switch
    record(68, b""),  # FINISHED_ROUND
]
DATA = HEAD + b"".join(RECORDS)


def summary(growth: Growth) -> tuple[int, int, int, set[int], int]:
    return growth.events, growth.lost, growth.throttled, growth.pids, growth.offset


WHOLE = (3, 9, 1, {70, 80}, len(DATA))


@given(st.lists(st.integers(0, len(DATA))))
def test_the_count_does_not_depend_on_where_perf_was_interrupted(cuts: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "perf.data"
        growth = Growth(path)
        growth.read()  # not there yet
        for cut in sorted(cuts):
            path.write_bytes(DATA[:cut])
            growth.read()
        path.write_bytes(DATA)
        growth.read()
        assert summary(growth) == WHOLE


def test_a_flood_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "perf.data"
    path.write_bytes(HEAD + record(9, b"\0" * 1016) * 5000)
    growth = Growth(path)
    growth.read(most_events=10)
    assert 10 <= growth.events < 2000
    growth.read()
    assert growth.events == 5000


def test_what_is_no_perf_data_counts_nothing(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"something else " * 100)
    growth = Growth(tmp_path / "x")
    growth.read()
    assert growth.events == 0
