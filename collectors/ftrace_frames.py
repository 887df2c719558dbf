"""The stack lines of ftrace text: ` => function`, the innermost first.

=> do_syscall_64+0x22e/0x280
=> ext4_sync_file [ext4]
=> /usr/lib/x86_64-linux-gnu/libc.so.6[+0xd2350]        a user's, with the option sym-userobj
=>  <00007fc713a7f350>                                  a user's without it
=> schedule (ffffffff81c0a3b5)                          trace-cmd report
"""

from __future__ import annotations

import re

from pipeline.stacks import Frame
from pipeline.text import decode

_ADDRESS = re.compile(rb"\s*[<(]\s*[0-9a-f]{4,16}\s*[>)]\s*$")
_OFFSET = re.compile(rb"\+0x[0-9a-f]+(?:/0x[0-9a-f]+)?$")
_MODULE = re.compile(rb"^(?P<symbol>.*\S)\s+(?P<module>\[[\w.-]+\])$")
_OBJECT = re.compile(rb"^(?P<path>.+?)\s*[\[(]\+0x[0-9a-f]+[\])]$")
_KERNEL_DSO = "[kernel.kallsyms]"  # perf's name for what is in no module


def frame_of(text: bytes, kind: str) -> Frame:
    """Return the frame of a stack line's text, of a 'kernel' or a 'user' stack."""
    text = _ADDRESS.sub(b"", text).strip()
    if kind == "user":
        found = _OBJECT.match(text)
        if found is not None:
            return Frame("[unknown]", decode(found["path"]), "user")
        return Frame(decode(_OFFSET.sub(b"", text)) if text.strip(b"?") else "[unknown]", "", "user")
    found = _MODULE.match(text)
    dso = _KERNEL_DSO
    if found is not None:
        text, dso = found["symbol"], decode(found["module"])
    return Frame(decode(_OFFSET.sub(b"", text)) or "[unknown]", dso, "kernel")
