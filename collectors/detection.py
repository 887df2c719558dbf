"""Which format is this? By content, over several lines, never by the file's name.

First what only one format can be (magic bytes), then the readers' own `sniff`, then third parties'. What nothing reads
is refused in one line that says what it is (`known_formats`) and what to do.
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, NoReturn

from collectors import known_formats
from collectors.known_formats import Kind
from pipeline.errors import InputError, UsageError

if TYPE_CHECKING:
    from collectors.source import Source

# format -> module; text formats are asked in this order. Third parties' are added when they are found.
READERS: dict[str, str] = {
    "perf_script": "collectors.perf_script",
    "ftrace": "collectors.ftrace",
    "speedscope": "collectors.speedscope",
    "chrome_trace": "collectors.chrome_trace",
    "py_spy_raw": "collectors.py_spy",
    "collapsed": "collectors.collapsed",
}
SAMPLED = ("perf_script", "ftrace")  # their readers have read and Stream: single samples or events with times
PERF_DATA = "perf_data"  # read as the text that perf script prints: perf_data.open_text
ENTRY_POINTS = "flameslice.readers"

_JSON_READERS = ("speedscope", "chrome_trace")
_LOOK_BYTES = 1 << 18
_PERF_MAGICS = (b"PERFILE2", b"2ELIFREP")  # little and big endian, in a file or from a pipe
# not a process name in brackets, `[kworker/0] 20966 841.1:` or `[kworker/0];worker_thread 3`
_JSON_START = re.compile(
    rb"\s*(?:\{\s*[\"}]|\[\s*(?:[{\"]|\[\s*[\[{\"\d-]|\]\s*\Z|(?:-?\d[\d.eE+-]*|true|false|null)\s*,))"
)


def detect(source: Source, forced: str | None = None) -> str:
    """Return the name of the reader for a source: a key of READERS, or PERF_DATA.

    Raises InputError that says what the source is where nothing reads it, UsageError for an unknown forced name.
    """
    if forced is not None:
        return _known(forced)
    found = _told(source)
    return found if isinstance(found, str) else _refuse(found, source)


def detect_clocks(source: Source, forced: str | None = None) -> str:
    """Return as `detect` does, or what source_clocks calls a file whose samples are not read, but whose clock is.

    Raises as `detect`.
    """
    if forced is not None:
        return forced if forced in known_formats.CLOCKS_ONLY else _known(forced)
    found = _told(source)
    if isinstance(found, str):
        return found
    return found.clocks or _refuse(found, source)


def _refuse(kind: Kind, source: Source) -> NoReturn:
    raise InputError(
        f"this is {kind.what}, not a capture that flameslice reads", kind.remedy, path=source.name
    )


def _told(source: Source) -> str | Kind:
    """Return the reader of a source, or what it is where there is none."""
    head = source.head(_LOOK_BYTES)
    if len(head) < _LOOK_BYTES:
        head += b"\n"  # all of it: the last line has its end
    if not head.strip(b"\0 \t\r\n"):
        raise _nothing_in(source, head)
    if head.startswith(_PERF_MAGICS):
        return PERF_DATA
    kind = known_formats.of_binary(head) or known_formats.of_markup(head)
    if kind is None:
        claimed = _claimed(head)
        if isinstance(claimed, str):
            return claimed
        kind = claimed
    third_party = _claimed_by_third_party(head)
    if third_party is not None:
        return third_party
    return kind or known_formats.of_anything(head)


def _claimed(head: bytes) -> str | Kind | None:
    """Return the built-in reader of a text, or what it is instead; None where nothing tells."""
    if _JSON_START.match(head):
        return _json_reader(head) or known_formats.of_json(head)
    for name in SAMPLED:
        if _sniffs(name, head):
            return name
    # many texts hold lines that end in a number, as folded stacks do
    kind = known_formats.of_text(head)
    if kind is not None:
        return kind
    for name in ("py_spy_raw", "collapsed"):
        if _sniffs(name, head):
            return name
    return "collapsed" if _is_whole_collapsed(head) else None


def _sniffs(name: str, head: bytes) -> bool:
    return importlib.import_module(READERS[name]).sniff(head) is True


def _is_whole_collapsed(head: bytes) -> bool:
    from collectors import collapsed

    return len(head) < _LOOK_BYTES and collapsed.holds_only_stacks(head)


def _json_reader(head: bytes) -> str | None:
    if _sniffs("speedscope", head) or (b'"shared"' in head and b'"profiles"' in head):
        return "speedscope"
    is_torch = known_formats.of_json(head).what == "a PyTorch profiler trace"
    return "chrome_trace" if _sniffs("chrome_trace", head) and not is_torch else None


def _nothing_in(source: Source, head: bytes) -> InputError:
    packed = f" once unpacked ({', '.join(source.notes)})" if source.notes else ""
    problem = "the file is empty" if head == b"\n" else "the file holds nothing but blanks"
    lost = "; ".join(loss.describe() for loss in source.losses.as_tuple())
    return InputError(problem + packed, lost or "record again", path=source.name)


def _known(forced: str) -> str:
    if forced in READERS or forced == PERF_DATA or forced in _third_parties():
        return forced
    known = ", ".join([*READERS, PERF_DATA])
    raise UsageError(f"no input format {forced!r}", f"known are {known}")


def _claimed_by_third_party(head: bytes) -> str | None:
    """Return the first reader of another package that claims a text; one that fails claims nothing."""
    for name, module in _third_parties().items():
        try:
            if importlib.import_module(module).sniff(head):
                return name
        except Exception:  # another package's code, and there is an answer without it
            continue
    return None


def _third_parties() -> dict[str, str]:
    """Find the readers that other packages install, and add them to READERS; built-in names win."""
    from importlib.metadata import entry_points

    installed = {entry.name: entry.module for entry in entry_points(group=ENTRY_POINTS)}
    found = {name: module for name, module in installed.items() if READERS.get(name, module) == module}
    READERS.update(found)
    return found
