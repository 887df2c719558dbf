"""Names are bytes in captures; here is how they become text and come back unchanged.

In memory a name is `str` with surrogate escapes (PEP 383), so that folded output is byte for byte the input.
In tables and JSON it is valid UTF-8: a byte that is not is `\\xNN`, and a real backslash is `\\x5c`.
"""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\\x([0-9a-f]{2})")
_OTHER_SURROGATES = re.compile("[\ud800-\udc7f\udd00-\udfff]")
_NEEDS_ESCAPE = re.compile("[\\\\\udc80-\udcff]")


def decode(raw: bytes) -> str:
    """Return raw as text that `encode` turns back into the same bytes."""
    return raw.decode("utf-8", "surrogateescape")


def encode(name: str) -> bytes:
    """Return the bytes that `decode` made name from; a lone surrogate, which JSON can hold, becomes U+FFFD."""
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return _OTHER_SURROGATES.sub("\ufffd", name).encode("utf-8", "surrogateescape")


def escape(name: str) -> str:
    """Return name as valid Unicode for tables and JSON: odd bytes as \\xNN, a backslash as \\x5c."""

    def one(match: re.Match[str]) -> str:
        char = match.group()
        return "\\x5c" if char == "\\" else f"\\x{ord(char) - 0xDC00:02x}"

    return _OTHER_SURROGATES.sub("\ufffd", _NEEDS_ESCAPE.sub(one, name))


def unescape(stored: str) -> str:
    """Return the in-memory name that `escape` made stored from."""

    def one(match: re.Match[str]) -> str:
        byte = int(match.group(1), 16)
        return chr(byte) if byte < 0x80 else chr(0xDC00 + byte)

    return _ESCAPE.sub(one, stored)


def folded_name(name: str) -> str:
    """Return name as it stands in a folded line: LF is the two characters \\n, `;` is `:`."""
    return name.replace("\n", "\\n").replace(";", ":")


def shown(name: str) -> str:
    """Return name for screens and XML: every control character and odd byte visible as \\xNN."""
    if name.isprintable() and not _NEEDS_ESCAPE.search(name):
        return name
    out = []
    for char in name:
        code = ord(char)
        if 0xDC80 <= code <= 0xDCFF:
            out.append(f"\\x{code - 0xDC00:02x}")
        elif char.isprintable():
            out.append(char)
        elif code < 0x100:
            out.append(f"\\x{code:02x}")
        else:
            out.append(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return "".join(out)
