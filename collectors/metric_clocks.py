"""What readings of GPUs and servers say of when they were taken: mostly nothing.

    # TYPE DCGM_FI_DEV_GPU_UTIL gauge
    DCGM_FI_DEV_GPU_UTIL{gpu="0"} 97 1796097220690           Prometheus' text: ms since 1970, which few write

    timestamp, name, utilization.gpu [%]                     nvidia-smi --query-gpu=... --format=csv
    2026/12/01 12:00:00.123, NVIDIA H200, 97 %               local time of that host, in no zone that it names

Times of the CSV count from its first row here: `--wall-start` says when that was, or `--offset` places it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from collectors.source import Source
from pipeline.clock_domains import RELATIVE, SourceClocks
from pipeline.errors import one_line

_SAMPLE = re.compile(
    rb'[a-zA-Z_:][\w:]*(?:\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?[ \t]+\S+[ \t]+(-?\d{1,15})[ \t]*'
)
_LOCAL = re.compile(rb"(\d{4})/(\d\d)/(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?")
_PRINTED = re.compile(
    rb"(?:Timestamp\s*: |<timestamp>)([^<\n]{1,60})|^(\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})", re.M
)
_NO_TIMES: Final = "it holds no times"


def of_prometheus(source: Source, host: str = "", boot_id: str = "") -> SourceClocks:
    """Return what Prometheus' text says: the wall clock where its samples carry times."""
    times = [
        int(match[1]) * 1_000_000
        for line in _lines(source)
        if not line.startswith(b"#") and (match := _SAMPLE.fullmatch(line)) is not None
    ]
    times = [one for one in times if 0 < one < 1 << 62]
    if not times:
        return SourceClocks(source.name, "", host, boot_id, notes=(_NO_TIMES,))
    return SourceClocks(source.name, "realtime", host, boot_id, first=min(times), last=max(times))


def of_nvidia_smi(source: Source, host: str = "", boot_id: str = "") -> SourceClocks:
    """Return what a print of nvidia-smi says: at most when it was printed, in local time, as a note."""
    note = _NO_TIMES
    match = _PRINTED.search(source.head())
    if match is not None:
        text = (match[1] or match[2]).decode("utf-8", "replace").strip()
        note += one_line(f"; it was printed at {text}, local time in no zone that it names", 200)
    return SourceClocks(source.name, "", host, boot_id, notes=(note,))


def of_nvidia_smi_csv(source: Source, host: str = "", boot_id: str = "") -> SourceClocks:
    """Return the times of nvidia-smi's CSV as ns since its first row."""
    column: int | None = None
    times: list[int] = []
    began = b""
    for line in _lines(source):
        cells = [cell.strip() for cell in line.split(b",")]
        if b"timestamp" in cells:
            column = cells.index(b"timestamp")
        elif column is not None and column < len(cells):
            match = _LOCAL.fullmatch(cells[column])
            time_ns = None if match is None else _local_ns(match)
            if time_ns is not None:
                times.append(time_ns)
                began = began or cells[column]
    if not times:
        return SourceClocks(source.name, "", host, boot_id, notes=(_NO_TIMES,))
    note = (
        f"its times are local time in no zone that it names, and count from its first row here, {began.decode()}: "
        "say when that was with --wall-start"
    )
    return SourceClocks(
        source.name,
        RELATIVE,
        host,
        boot_id,
        first=min(times) - times[0],
        last=max(times) - times[0],
        notes=(note,),
    )


def _lines(source: Source) -> Iterator[bytes]:
    for chunk in source.line_chunks():
        yield from chunk.splitlines()


def _local_ns(match: re.Match[bytes]) -> int | None:
    """Return ns between year 1 and a time of a calendar without zones."""
    try:
        year, month, day, hour, minute, second = (int(match[part]) for part in range(1, 7))
        moment = datetime(year, month, day, hour, minute, second)
    except ValueError:
        return None
    since = moment - datetime(1970, 1, 1)
    return (since.days * 86_400 + since.seconds) * 10**9 + int((match[7] or b"0").ljust(9, b"0"))
