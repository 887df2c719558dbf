"""The stack lines of `perf script`: address, function with offset, module; source lines between them where asked.

            7f5177671d40 _PyEval_EvalFrameDefault+0x44de (/usr/lib/libpython3.11.so.1.0)
                    2bf7 inl1+0x27 (inlined)
      /home/dev/work.cpp:22 (inlined)

The module is the last balanced (...) of the line: `([JIT] tid 12)` and `(/memfd:x (deleted))` hold spaces. A Java
symbol `a->b->c` is a chain of inlined calls, the outermost first.
"""

from __future__ import annotations

import re

from pipeline.stacks import Frame, FrameKind
from pipeline.text import decode

_ADDRESS = re.compile(rb"[0-9a-f]{1,16}")
_OFFSET = re.compile(rb"\+0x[0-9a-f]*$")
_SOURCE = re.compile(rb"^[ ]{2,}(?P<file>\S.*?)(?::(?P<line>\d+)|\[[0-9a-f]+\])(?P<inlined> \(inlined\))?$")
_CUT_MODULE = re.compile(rb" \([/\[][^()\s]*$")  # the line ends within its module
_SPLIT_INLINED = re.compile(r"(?<!operator)(?<!\s)->(?!\s|$)")
_NOT_MODULES = frozenset({"[vdso]", "[vsyscall]", "[stack]", "[heap]", "[unknown]", "[anon]", "[uprobes]"})


def parse_frame(line: bytes, has_symbols: bool = True) -> tuple[Frame, ...] | None:
    """Return the frames of a stack line, the outermost first; None where it is none, () where it holds no function."""
    words = line.split(None, 1)
    if not words or not is_address(words[0]):
        return None
    address, rest = words[0], words[1].rstrip(b" \t") if len(words) == 2 else b""
    if not rest:
        # only an address: a physical address printed after the stack, unless the file has no symbols at all
        return () if has_symbols else (Frame("[unknown]"),)
    symbol, dso = split_module(rest)
    if dso is None and b" " in symbol.strip() and not line[:1].isspace():
        return None
    symbol = _OFFSET.sub(b"", symbol)
    if _is_process_name(symbol):
        return ()
    name = decode(symbol) or " "  # both peers spell a missing symbol as one space
    module = "" if dso is None else decode(dso)
    kind = frame_kind(name, module, address)
    if "->" not in name:
        return (Frame(name, module, kind),)
    outer, *inner = _SPLIT_INLINED.split(name)
    return (Frame(outer, module, kind), *(Frame(part, module, "inlined") for part in inner))


def is_address(word: bytes) -> bool:
    """Return whether word is hexadecimal, as perf prints addresses."""
    return _ADDRESS.fullmatch(word) is not None


def is_kernel_address(word: bytes) -> bool:
    """Return whether an address lies in the upper half, where 64-bit kernels live."""
    return len(word) == 16 and word >= b"8"


def without_offset(text: bytes) -> bytes:
    """Return `symbol (module)` of `symbol+0x12 (module)`; anything else as it is."""
    at = text.rfind(b"+0x")
    if at <= 0:
        return text
    end = text.find(b" (", at)
    digits = text[at + 3 :] if end < 0 else text[at + 3 : end]
    if not digits or digits.strip(b"0123456789abcdef"):
        return text
    return text[:at] if end < 0 else text[:at] + text[end:]


def split_module(text: bytes) -> tuple[bytes, bytes | None]:
    """Return symbol and module of what follows the address; the module is None where the file prints none."""
    if not text.endswith(b")"):
        cut = _CUT_MODULE.search(text)
        return (text, None) if cut is None else (text[: cut.start()], text[cut.start() + 2 :])
    at = text.rfind(b"(")
    if at >= 0 and text.find(b")", at) == len(text) - 1 and (at == 0 or text[at - 1] in b" \t"):
        return text[:at].rstrip(b" \t"), text[at + 1 : -1]  # the usual case: no parentheses in the module
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        char = text[at]
        if char == 0x29:
            depth += 1
        elif char == 0x28:
            depth -= 1
            if depth <= 0:
                if at == 0 or text[at - 1] in b" \t":
                    return text[:at].rstrip(b" \t"), text[at + 1 : -1]
                if depth == 0:
                    break
    at = text.rfind(b" (")
    return (text, None) if at < 0 else (text[:at], text[at + 2 : -1])


def frame_kind(symbol: str, dso: str, address: bytes) -> FrameKind:
    """Tell kernel, jitted, inlined and Python frames from user code, by module first and address second."""
    if dso == "inlined":
        return "inlined"
    if symbol.startswith("py::"):
        return "python"
    base = dso.rpartition("/")[2]
    if dso.startswith("["):
        if dso.startswith(("[JIT]", "[JIT ")):
            return "jit"
        return "user" if dso in _NOT_MODULES else "kernel"
    if base.startswith("vmlinux") or base.endswith(".ko") or ".ko." in base:
        return "kernel"
    if (base.startswith("perf-") and base.endswith(".map")) or (
        base.startswith("jitted-") and base.endswith(".so")
    ):
        return "jit"
    if dso.startswith("bpf_prog_") or (not dso and is_kernel_address(address)):
        return "kernel"
    return "user"


def parse_source_line(line: bytes) -> tuple[str, int, bool] | None:
    """Return file, line and whether it is inlined, of a `+srcline` line; None where it is none."""
    match = _SOURCE.match(line.rstrip())
    if match is None:
        return None
    return decode(match["file"]), int(match["line"] or 0), match["inlined"] is not None


def _is_process_name(symbol: bytes) -> bool:
    """Return whether all of symbol is one (...): old perf printed process names so among the frames."""
    if not symbol.startswith(b"(") or not symbol.endswith(b")"):
        return False
    depth = 0
    for at, char in enumerate(symbol):
        depth += (char == 0x28) - (char == 0x29)
        if depth == 0:
            return at == len(symbol) - 1
    return False
