"""Walking a JSON document piece by piece finds what reading it whole finds, and ends in one line where it cannot."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import json_stream
from collectors.json_stream import CutJson, JsonStream, as_name
from collectors.source import Source
from pipeline.errors import InputError
from pipeline.text import encode

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**25), 10**25) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


def stream(text: bytes | str) -> JsonStream:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return JsonStream(Source("doc.json", io.BytesIO(data)))


def walked(document: JsonStream) -> Any:
    match document.peek():
        case "{":
            return {key: walked(document) for key in document.members()}
        case "[":
            return [walked(document) for _ in document.elements()]
        case _:
            return document.value()


def read_whole(document: JsonStream) -> None:
    document.value()
    document.end()


@pytest.mark.parametrize("chunk_bytes", [1, 3, 1 << 20])
@given(value=VALUES, indent=st.sampled_from([None, 1]), is_ascii=st.booleans())
def test_a_walk_finds_the_value(chunk_bytes: int, value: Any, indent: int | None, is_ascii: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=is_ascii)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "_CHUNK_BYTES", chunk_bytes)
        document = stream(text)
        assert walked(document) == value
        document.end()
        # what is left is skipped, whatever it is
        document = stream(f'{{"a": {text}, "b": {text}, "c": 7}}')
        assert [document.value() for key in document.members() if key == "c"] == [7]
        document.end()


def test_numbers_are_exact() -> None:
    assert stream("[0.1, 1e-9, 12345678901234567890]").value() == [
        Decimal("0.1"),
        Decimal("1e-9"),
        12345678901234567890,
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[1 2]", "doc.json:1: not valid JSON: expecting ',' delimiter"),
        ('{\n"a" 1}', "doc.json:2: not valid JSON: expecting ':' delimiter"),
        ("[NaN]", "doc.json:1: not valid JSON: nan is not a number"),
        ("[-Infinity]", "doc.json:1: not valid JSON: -infinity is not a number"),
        ("[1e999999999]", "doc.json:1: not valid JSON: 1e999999999... is no usable number"),
        ("[1" + "0" * 5000 + "]", "doc.json:1: not valid JSON: exceeds the limit (4300 digits)"),
        ("[" * 100_000 + "]" * 100_000, "doc.json:1: JSON nested too deeply"),
        ("[1] 2", "doc.json:1: not valid JSON: more text after its end"),
        ("hello", "doc.json:1: not valid JSON: expecting value"),
    ],
)
def test_what_is_no_json_is_one_line(text: str, problem: str) -> None:
    with pytest.raises(InputError) as raised:
        read_whole(stream(text))
    assert not isinstance(raised.value, CutJson)
    assert str(raised.value).startswith(problem)


@pytest.mark.parametrize(
    "text", ["", "[", "[1,", '["a', '{"a"', '{"a":', "[tru", '[{"a": {"b": [1, 2', '"a\\']
)
def test_a_cut_document_is_told_from_a_wrong_one(text: str) -> None:
    for consume in (walked, JsonStream.value, JsonStream.skip):
        with pytest.raises(CutJson, match="ends in the middle"):
            consume(stream(text))


@given(VALUES.filter(lambda value: isinstance(value, list | dict | str)), st.data())
def test_every_beginning_of_a_document_is_cut(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value)
    length = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(CutJson):
        walked(stream(text[:length]))


def test_depth_is_no_matter_for_what_is_skipped() -> None:
    deep = "[" * 200_000 + "]" * 200_000
    document = stream(f'{{"deep": {deep}, "a": 1}}')
    assert [document.value() for key in document.members() if key == "a"] == [1]


def test_brackets_in_strings_are_no_brackets() -> None:
    document = stream(r'{"skip": ["]}\"[", {"a\\": "}"}], "a": 1}')
    assert [document.value() for key in document.members() if key == "a"] == [1]


def test_a_huge_value_is_refused_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "_LARGEST_VALUE", 4 << 20)
    with pytest.raises(InputError, match="a JSON value of more than 4 MiB"):
        stream('["' + "x" * (20 << 20) + '"]').value()


@given(st.text(st.characters(), max_size=10))
def test_names_can_be_encoded_whatever_they_hold(name: str) -> None:
    encode(as_name(name))


def test_odd_bytes_and_lone_surrogates_in_names() -> None:
    assert encode(as_name(stream(b'"\xff"').value())) == b"\xff"
    assert as_name(stream(r'"a\ud800b"').value()) == r"a\ud800b"
