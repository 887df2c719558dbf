"""How folded output spells a frame: the way inferno does, so that graphs of both tools can be compared line by line.

Argument lists go, template arguments, Go receivers and anonymous namespaces stay; Rust symbols are demangled as
rustc-demangle does; an unknown symbol becomes its module in brackets. In processes named java..., the leading L of
`Lorg/some/Class;` goes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from analyzers import rust_symbols
from pipeline.stacks import Frame
from pipeline.text import folded_name

_UNKNOWN = "[unknown]"
_ANONYMOUS = "(anonymous namespace)"


def speller(comm: str | None) -> Callable[[Frame], str]:
    """Return the function that spells the frames of a process of this name."""
    return _spell_java if is_java(comm) else spell


def is_java(comm: str | None) -> bool:
    """Return whether a process of this name spells its frames the Java way."""
    return comm is not None and comm.startswith("java")


@lru_cache(maxsize=1 << 18)
def spell(frame: Frame) -> str:
    """Return a frame's name as folded output spells it."""
    if frame.symbol == _UNKNOWN:
        return folded_name(_module_name(frame.dso))
    name = folded_name(without_arguments(rust_symbols.demangle(frame.symbol)))
    # a link of a Java chain `a->b->c`; frames that perf itself marks `(inlined)` keep their plain name
    return f"{name}_[i]" if frame.kind == "inlined" and frame.dso != "inlined" else name


@lru_cache(maxsize=1 << 16)
def _spell_java(frame: Frame) -> str:
    name = spell(frame)
    return name[1:] if name.startswith("L") and "/" in name else name


def _module_name(dso: str) -> str:
    if dso in ("", _UNKNOWN):
        return _UNKNOWN
    return f"[{dso.rpartition('/')[2]}]"


def without_arguments(symbol: str) -> str:
    """Return symbol up to the first parenthesis that opens an argument list.

    None does inside <>, {}, [] or after a dot (Go: `net/http.(*Client).Do`), nor `(anonymous namespace)`.
    """
    if "(" not in symbol:
        return symbol
    depth = 0
    for at, char in enumerate(symbol):
        if char in "<{[":
            depth += 1
        elif char in ">}])":
            depth -= symbol[at - 1 : at + 1] != "->"  # operator-> closes nothing
        elif char == "(":
            if depth == 0 and symbol[at - 1 : at] != "." and not symbol.startswith(_ANONYMOUS, at):
                return symbol[:at]
            depth += 1
    return symbol
