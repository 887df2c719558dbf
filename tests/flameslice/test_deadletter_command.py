"""Messages that no worker can take in, on both logs: each is listed with its reason, and nothing waits behind it."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
from typing import Any

import polars as pl
import pytest

from pipeline import control, schema
from pipeline.control import CaptureFact, SourceBegin, SourceFact
from pipeline.log import dead_letters
from pipeline.log.protocol import CAPTURES, DEAD_LETTERS, Message, Partition, Record
from pipeline.log.wire import Splitter

SOURCE = "5" * 64
WEIGHTS = pl.DataFrame(
    [("e", None, 0, number, number) for number in range(5)], schema=schema.STACK_WEIGHTS, orient="row"
)


def capture_messages(capture: str = "c") -> tuple[Message, list[Message], Message]:
    """Return a capture of five messages: its begin, its rows, its end."""
    splitter = Splitter(capture, SOURCE, "stack_weights", row_bytes=60)
    rows = [*splitter.add(WEIGHTS), *splitter.finish()]
    assert len(rows) == 5
    begin = CaptureFact(capture, capture, sources=(SourceBegin(SOURCE, "f", "collapsed"),))
    announced = {"messages": {"stack_weights": 5}, "table_rows": {"stack_weights": 5}}
    end = SourceFact(capture, SOURCE, "complete", **announced)  # type: ignore[arg-type]
    return control.to_message(begin), rows, control.to_message(end)


def changed(message: Message, value: bytes | None = None, **headers: str | None) -> Message:
    """Return a message with another value, its checksum right, and with other headers."""
    if value is not None:
        headers = {"sha256": hashlib.sha256(value).hexdigest(), **headers}
    texts = {name: text.decode() for name, text in message.headers} | headers
    encoded = tuple((name, text.encode()) for name, text in texts.items() if text is not None)
    return dataclasses.replace(message, value=message.value if value is None else value, headers=encoded)


def ipc(table: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.write_ipc_stream(buffer, compression="zstd", compat_level=pl.CompatLevel.oldest())
    return buffer.getvalue()


def bomb() -> bytes:
    """Return a few kilobytes that unpack to 160 MB."""
    zeros = pl.Series("samples", [0], pl.Int64).new_from_index(0, 20_000_000)
    value = ipc(pl.DataFrame([zeros]))
    assert len(value) < 1 << 20
    return value


def poisons(good: Message) -> dict[str, Message]:
    """Return messages that no worker can take in, by words of the reason."""
    fact = control.to_message(CaptureFact("other", "other"))
    lacking = {"schema_version": "1.0", "kind": "capture", "capture": "x"}
    wrong_type = ipc(WEIGHTS.with_columns(pl.col("samples").cast(pl.String)))
    return {
        "not an Arrow stream": changed(good, b"\x00\xff nonsense" * 20, capture="p1"),
        "checksum": dataclasses.replace(good, value=good.value + b"x"),
        "schema version '9.0'": changed(good, schema_version="9.0", capture="p2"),
        "schema version ''": changed(good, schema_version=None, capture="p2"),
        "unknown table": changed(good, table="nonsense"),
        "in topic": changed(good, table="frames"),
        "no usable capture id: '../../etc'": changed(good, capture="../../etc"),
        "no usable capture id: ''": dataclasses.replace(good, headers=()),
        "no usable sequence": changed(good, sequence="-1"),
        "no usable source": changed(good, source="a\nb"),
        "unpacks to": changed(good, bomb(), capture="p3"),
        "samples is": changed(good, wrong_type, capture="p4"),
        "not JSON": changed(fact, b"{" * 2000),
        "unknown kind": changed(fact, json.dumps({"schema_version": "1.0", "kind": "x"}).encode()),
        "a fact that lacks": changed(fact, json.dumps(lacking).encode()),
    }  # fmt: skip


def letters(kept: Any) -> list[dict[str, Any]]:
    ran = kept("deadletter list", "--json")
    assert ran.status == 0, ran.stderr
    body = json.loads(ran.stdout)
    assert body["schema_version"] == "1.0"
    found: list[dict[str, Any]] = body["dead_letters"]
    return found


def test_poison_is_listed_and_everything_behind_it_is_stored(kept_anywhere: Any) -> None:
    kept = kept_anywhere
    begin, rows, end = capture_messages()
    bad = poisons(rows[2])
    # the poison that claims to be the third message of the capture stands where that would
    kept.append([begin, *rows[:2], *bad.values(), *rows[3:], end])
    kept.work()
    assert kept.table("c", "stack_weights")["samples"].to_list() == [0, 1, 3, 4]
    shown = kept.shown("c")
    assert shown["status"] == "partial"
    (source,) = shown["sources"]
    assert (source["missing_messages"], source["dead_letters"]) == (1, 1)
    assert "1 message is missing, 1 of them dead letters" in kept("captures show", "c").stdout.decode()
    assert {one["id"] for one in kept.listed()} == {"c", "p1", "p2", "p3", "p4"}

    found = letters(kept)
    assert len(found) == len(bad)
    for words, message in bad.items():
        (one,) = [one for one in found if words in one["reason"]]
        assert one["topic"] == message.topic
        assert one["size_bytes"] == len(message.value)
    places = {(one["topic"], one["partition"], one["offset"]) for one in found}
    assert len(places) == len(bad)
    log = kept.open_log()
    for one in found:  # what lies there is the message itself
        (record, *_) = log.read(Partition(one["topic"], one["partition"]), one["offset"]) or [None]
        if record is not None:  # the embedded log forgets what is committed
            assert record.offset == one["offset"]
            assert record.message.value in {message.value for message in bad.values()}
    log.close()
    lines = kept("deadletter list").stdout.decode().splitlines()
    assert len(lines) == len(bad) + 1  # and the names of the columns
    assert all(line.isprintable() and len(line) <= 500 for line in lines)

    # the producer sends the right message: the capture is whole, the dead letters stay
    kept.append([rows[2]])
    kept.work()
    assert kept.table("c", "stack_weights")["samples"].to_list() == [0, 1, 2, 3, 4]
    assert kept.shown("c")["status"] == "complete"
    assert letters(kept) == found


def test_a_replayed_letter_is_stored_by_a_worker_that_can_read_it(kept_anywhere: Any) -> None:
    """As after an upgrade: an older worker buried what this one knows."""
    kept = kept_anywhere
    begin, rows, end = capture_messages()
    place = Record(Partition(rows[2].topic, 0), 77, rows[2])
    letter = dead_letters.wrap(place, "schema version '1.0' is not known")
    dead = control.to_message(control.DeadFact("c", SOURCE, "stack_weights", 2, "schema version"))
    kept.append([begin, *rows[:2], *rows[3:], end, dead, letter, letter])
    kept.work()
    assert kept.shown("c")["status"] == "partial"
    (one,) = letters(kept)  # buried twice, listed once
    assert (one["topic"], one["offset"], one["capture"], one["sequence"]) == (rows[2].topic, 77, "c", "2")

    assert kept("deadletter replay").stdout == b"1 sent back\n"
    assert letters(kept) == []
    kept.work()
    assert kept.table("c", "stack_weights")["samples"].to_list() == [0, 1, 2, 3, 4]
    assert kept.shown("c")["status"] == "complete"
    assert kept("deadletter list").stdout == b"no dead letters\n"
    assert kept("deadletter replay").stdout == b"0 sent back\n"


def test_what_is_still_poison_is_buried_again_once(kept_anywhere: Any) -> None:
    kept = kept_anywhere
    begin, rows, end = capture_messages()
    kept.append([begin, changed(rows[0], schema_version="7.1"), *rows[1:], end])
    kept.work()
    (first,) = letters(kept)
    offsets = [first["offset"]]
    for _ in range(2):
        assert kept("deadletter replay").stdout == b"1 sent back\n"
        kept.work()
        (again,) = letters(kept)
        assert again["reason"] == first["reason"] == "schema version '7.1' is not known"
        assert again["offset"] not in offsets
        offsets.append(again["offset"])
    assert kept.shown("c")["status"] == "partial"


def test_what_is_no_dead_letter_is_listed_and_not_replayed(kept_anywhere: Any) -> None:
    kept = kept_anywhere
    begin, rows, end = capture_messages()
    letter = dead_letters.wrap(Record(Partition(rows[0].topic, 0), 5, rows[0]), "why")
    foreign = [
        Message(DEAD_LETTERS, b"", b"hello"),
        changed(letter, source_topic="elsewhere"),
        changed(letter, source_topic=DEAD_LETTERS),
        changed(letter, source_offset="\u00b2"),
        changed(letter, source_offset="9" * 5000),
    ]
    kept.append([*foreign, begin, changed(rows[0], sequence="x"), *rows[1:], end])
    kept.work()
    found = letters(kept)
    assert [one["reason"] for one in found] == ["not a dead letter of ours"] * 5 + ["no usable sequence: 'x'"]
    assert [one["offset"] for one in found][:5] == [0, 1, 2, 3, 4]  # where they lie themselves
    assert kept("deadletter replay").stdout == b"1 sent back\n"


def test_a_log_that_was_never_made_holds_none(kept: Any) -> None:
    assert kept("deadletter list").stdout == b"no dead letters\n"
    assert kept("deadletter replay").stdout == b"0 sent back\n"
    assert letters(kept) == []
    assert not kept.data.exists()


def test_hostile_words_in_a_reason_stay_on_their_line(kept: Any) -> None:
    _, rows, _ = capture_messages()
    kept.append([changed(rows[0], table="\x1b[31m\nX" * 30), changed(rows[0], capture="\u202e" * 3000)])
    kept.work()
    lines = kept("deadletter list").stdout.decode().splitlines()
    assert len(lines) == 3  # and the names of the columns
    assert all(line.isprintable() and len(line) <= 500 for line in lines)
    assert len(letters(kept)) == 2


@pytest.mark.parametrize("size_bytes", [900 << 10, (900 << 10) + 5000])
def test_a_poison_as_large_as_a_message_is_buried_whole(kept_anywhere: Any, size_bytes: int) -> None:
    kept = kept_anywhere
    begin, rows, end = capture_messages()
    kept.append([begin, changed(rows[0], b"\0" * size_bytes), *rows[1:], end])
    kept.work()
    (one,) = letters(kept)
    assert (one["size_bytes"], one["reason"]) == (size_bytes, "not an Arrow stream")
    assert kept.shown("c")["status"] == "partial"


def test_the_topic_of_control_is_not_what_makes_a_capture_partial(kept: Any) -> None:
    begin, rows, end = capture_messages()
    kept.append([begin, changed(end, b"not JSON", capture="c"), *rows, end])
    kept.work()
    assert kept.shown("c")["status"] == "complete"
    (one,) = letters(kept)
    assert (one["topic"], one["capture"]) == (CAPTURES, "c")
