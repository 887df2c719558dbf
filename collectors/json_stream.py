"""Reads a JSON document piece by piece, so that memory follows its largest element and not its size.

A reader walks it: `members` of an object, `elements` of an array, `value` for what it wants whole; what it leaves is
skipped. Hostile documents (too deep, cut off, numbers of a million digits, NaN) end in one clear line.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from collectors.source import Source
from pipeline.errors import InputError

_CHUNK_BYTES = 1 << 20
_LARGEST_VALUE = 64 << 20  # characters
_MOST_DIGITS = 80
_LARGEST_EXPONENT = 60
_BLANK = " \t\r\n"  # the empty text is in it too
_NOT_BLANK = re.compile(r"[^ \t\r\n]")
_BRACKET = re.compile(r'[\[\]{}"]')
_STRING_END = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_AFTER_VALUE = tuple(" \t\r\n,:]}")
_WORDS = ("true", "false", "null", "-Infinity", "NaN")
_AT_THE_END = 10  # longer than any word that may be cut at the end of what was read


class CutJson(InputError):
    """The document ends in the middle."""


class JsonStream:
    """One walk through the document of a source."""

    def __init__(self, source: Source) -> None:
        self._name = source.name
        self._chunks = source.chunks(_CHUNK_BYTES)
        self._utf8 = codecs.getincrementaldecoder("utf-8")("surrogateescape")  # names may hold odd bytes
        self._decoder = json.JSONDecoder(parse_float=_decimal, parse_constant=_no_number, strict=False)
        self._text = ""
        self._at = 0
        self._passed = 0  # characters dropped before the text held
        self._passed_lines = 0
        self._is_ended = False

    @property
    def line(self) -> int:
        """Return the number of the line reached."""
        return self._passed_lines + self._text.count("\n", 0, self._at) + 1

    def error(self, problem: str, remedy: str = "") -> InputError:
        """Return an error at the line reached."""
        return InputError(problem, remedy, path=self._name, line=self.line)

    def peek(self) -> str:
        """Return the first character of what comes next, '' at the end."""
        char = self._text[self._at : self._at + 1]
        if char not in _BLANK:
            return char
        while True:
            found = _NOT_BLANK.search(self._text, self._at)
            if found is not None:
                self._at = found.start()
                return found.group()
            self._at = len(self._text)
            if not self._more():
                return ""

    def members(self) -> Iterator[str]:
        """Yield the keys of the object that comes next; take each one's value before the next key."""
        self._expect("{")
        if self._took("}"):
            return
        while True:
            key = self.value()
            if not isinstance(key, str):
                raise self.error("not valid JSON: a key is not text")
            self._expect(":")
            self.peek()
            start = self._passed + self._at
            yield key
            if self._passed + self._at == start:
                self.skip()
            if self._took("}"):
                return
            self._expect(",")

    def elements(self) -> Iterator[int]:
        """Yield the positions in the array that comes next; take each one's value before the next."""
        self._expect("[")
        if self._took("]"):
            return
        position = 0
        while True:
            self.peek()
            start = self._passed + self._at
            yield position
            if self._passed + self._at == start:
                self.skip()
            position += 1
            if self._took("]"):
                return
            self._expect(",")

    def value(self) -> Any:
        """Return the whole value that comes next; numbers with a point are Decimal, so that none is rounded."""
        self.peek()
        while True:
            try:
                found, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                rest = self._text[error.pos :].strip()
                is_at_end = len(rest) < _AT_THE_END
                is_open = error.msg.startswith("Unterminated") or (
                    error.msg.startswith("Invalid \\") and is_at_end and '"' not in rest
                )
                if (is_open or is_at_end) and self._more():
                    continue
                if is_open or not rest or any(word.startswith(rest) for word in _WORDS):
                    raise self._cut() from None
                self._at = error.pos
                raise self.error(f"not valid JSON: {error.msg.lower()}") from None
            except RecursionError:
                raise self.error("JSON nested too deeply", "it was not written by a profiler") from None
            except ValueError as error:  # a number that is none, or one of thousands of digits
                raise self.error(f"not valid JSON: {str(error).partition(';')[0].lower()}") from None
            else:
                # a number at the border may go on behind it
                if self._text[end : end + 1] in _AFTER_VALUE or not self._more():
                    self._at = end
                    return found

    def skip(self) -> None:
        """Pass over the value that comes next, however large or deep, without keeping it."""
        if self.peek() not in ("[", "{"):
            self.value()
            return
        depth = 0
        while True:
            found = _BRACKET.search(self._text, self._at)
            if found is None:
                self._at = len(self._text)
                if not self._more():
                    raise self._cut()
                continue
            self._at = found.start()
            if found.group() == '"':
                self._skip_string()
                continue
            self._at += 1
            depth += 1 if found.group() in "[{" else -1
            if depth == 0:
                return

    def end(self) -> None:
        """Raise where anything but blanks follows."""
        if self.peek():
            raise self.error("not valid JSON: more text after its end")

    def _skip_string(self) -> None:
        while (found := _STRING_END.match(self._text, self._at + 1)) is None:
            if not self._more():
                raise self._cut()
        self._at = found.end()

    def _took(self, char: str) -> bool:
        if self.peek() != char:
            return False
        self._at += 1
        return True

    def _expect(self, char: str) -> None:
        if not self._took(char):
            if not self.peek():
                raise self._cut()
            raise self.error(f"not valid JSON: expected {char!r}, found {self.peek()!r}")

    def _cut(self) -> CutJson:
        return CutJson(
            "the JSON ends in the middle", "was it cut off? Export it again", path=self._name, line=self.line
        )

    def _more(self) -> bool:
        """Read on; drop what was passed. Return False at the end."""
        if self._is_ended:
            return False
        # doubling what is held keeps the cost of a long value linear
        wanted = max(_CHUNK_BYTES, len(self._text) - self._at)
        if wanted > _LARGEST_VALUE:
            raise self.error(f"a JSON value of more than {_LARGEST_VALUE >> 20} MiB", "is this a capture?")
        self._passed += self._at
        self._passed_lines += self._text.count("\n", 0, self._at)
        parts, size = [self._text[self._at :]], 0
        while size < wanted and not self._is_ended:
            chunk = next(self._chunks, None)
            self._is_ended = chunk is None
            part = self._utf8.decode(chunk or b"", self._is_ended)
            parts.append(part)
            size += len(part)
        self._text, self._at = "".join(parts), 0
        return size > 0


def as_name(value: str) -> str:
    """Return a JSON string as a name that pipeline.text can encode: a lone surrogate stays as its escape."""
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return "".join(f"\\u{ord(char):04x}" if "\ud800" <= char <= "\udfff" else char for char in value)
    return value


def _decimal(text: str) -> Decimal:
    # an exponent of a billion is a short text and a number that fills the memory
    exponent = text.lower().partition("e")[2]
    if len(text) > _MOST_DIGITS or abs(int(exponent or 0)) > _LARGEST_EXPONENT:
        raise ValueError(f"{text[:20]}... is no usable number")
    return Decimal(text)


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number")
