"""Rust's legacy symbol names, whole (`_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE`) or half demangled by perf
(`core::fmt::Write::write_fmt::h0123456789abcdef`, with `_$LT$impl$u20$..` inside), as readable paths without the hash.

The scheme is that of rustc's legacy mangling: length-prefixed path elements, `$..$` escapes, `..` for `::`.
"""

from __future__ import annotations

import re

_HASH = re.compile(r"(?:::)?h[0-9a-f]{16}$", re.I)
_ESCAPES = {
    "SP": "@",
    "BP": "*",
    "RF": "&",
    "LT": "<",
    "GT": ">",
    "LP": "(",
    "RP": ")",
    "C": ",",
}
_ESCAPE = re.compile(r"\.\.|\$(?:(?P<name>SP|BP|RF|LT|GT|LP|RP|C)|u(?P<code>[0-9a-f]{1,6}))\$")
_SUFFIX = re.compile(r"(?:\.[A-Za-z0-9_.@]+)?")


def demangle(symbol: str) -> str:
    """Return a Rust symbol as a readable path; any other symbol as it is."""
    if symbol.startswith("_ZN"):
        return _demangle_whole(symbol) or symbol
    match = _HASH.search(symbol) if symbol[-17:-16] in ("h", "H") else None
    if match is None:
        return symbol
    return _unescape(symbol[: match.start()])


def _demangle_whole(symbol: str) -> str | None:
    """Return the path of a whole legacy symbol; None where it is a C++ symbol or damaged."""
    at = 3
    elements: list[str] = []
    while symbol[at : at + 1] != "E":
        digits = re.compile(r"\d{1,6}").match(symbol, at)
        if digits is None:
            return None
        start, length = digits.end(), int(digits.group())
        if start + length >= len(symbol):
            return None
        elements.append(symbol[start : start + length])
        at = start + length
    suffix = symbol[at + 1 :]
    if not elements or _SUFFIX.fullmatch(suffix) is None or not symbol.isascii():
        return None
    if len(elements) > 1 and re.fullmatch(r"h[0-9a-f]+", elements[-1]):
        elements.pop()
    if suffix.startswith(".llvm."):
        suffix = ""
    return "::".join(_unescape(element) for element in elements) + suffix


def _unescape(text: str) -> str:
    if text.startswith("_$"):
        text = text[1:]

    def one(match: re.Match[str]) -> str:
        if match["name"]:
            return _ESCAPES[match["name"]]
        if match["code"]:
            code = int(match["code"], 16)
            return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else match.group()
        return "::"

    return _ESCAPE.sub(one, text)
