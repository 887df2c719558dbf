"""Names keep their bytes, and are always valid text in tables and on screens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline import text
from pipeline.errors import one_line


@given(st.binary(max_size=40))
def test_bytes_come_back_unchanged(raw: bytes) -> None:
    name = text.decode(raw)
    assert text.encode(name) == raw
    stored = text.escape(name)
    stored.encode("utf-8")
    assert text.encode(text.unescape(stored)) == raw


@given(st.text(alphabet=st.characters(), max_size=40))
def test_any_text_can_be_stored_written_and_shown(name: str) -> None:
    text.escape(name).encode("utf-8")
    text.encode(name).decode("utf-8", "surrogateescape")
    assert text.shown(name).isprintable()
    text.shown(name).encode("utf-8")
    assert "\n" not in one_line(name)
    one_line(name).encode("utf-8")


def test_escapes_by_hand() -> None:
    assert text.escape(text.decode(b"a\xffb\\")) == "a\\xffb\\x5c"
    assert text.folded_name("a;b\nc") == "a:b\\nc"
    assert text.shown("\x1b[31m\u202e") == "\\x1b[31m\\u202e"
