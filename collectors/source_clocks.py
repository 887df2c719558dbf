"""What does one source say of its clock, and of others beside it? Whatever its format.

A format with times has one function here, in READERS; of all others the clock is ''.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectors import detection, ftrace_clocks, perf_data_clocks, perf_header_clocks
from collectors.source import Source
from pipeline.clock_domains import RELATIVE, SourceClocks

if TYPE_CHECKING:
    import polars as pl

    from pipeline.tables import Tables

_PRINTED_NS = 1_000  # perf and ftrace print microseconds unless told otherwise


def of(
    argument: Path | str,
    *,
    tables: Tables | None = None,
    forced_format: str | None = None,
    name: str = "",
    host: str = "",
    boot_id: str = "",
) -> SourceClocks:
    """Return what a source says of clocks: a path, or `-` for standard input.

    tables: what was read of it already; without them a text is read whole. name: what to call it, where that is not
    its path. host, boot_id: what the caller knows better. Raises as detection.detect and the formats' readers.
    """
    with Source.open(str(argument)) as source:
        source.name = name or source.name
        kind = detection.detect_clocks(source, forced_format)
        read = READERS.get(kind)
        if read is None:
            return SourceClocks(source.name, "", host, boot_id)
        return read(source, tables, host, boot_id)


def of_meta(
    kind: str, meta: dict[str, str], name: str, clock: str, host: str = "", boot_id: str = ""
) -> SourceClocks:
    """Return what a text of format `kind` says of clocks, from its header fields; first and last are not told.

    How finely its times are printed shows in the digits of its header.
    """
    if kind == "ftrace":
        is_assumed = ftrace_clocks.is_assumed(meta)
        notes = () if is_assumed else ftrace_clocks.notes_of(meta)
        return SourceClocks(name, clock, host, boot_id, notes=notes, is_assumed=is_assumed)
    return perf_header_clocks.clocks_of(meta, name, clock, _PRINTED_NS, host, boot_id)


def of_tables(tables: Tables, name: str, host: str = "", boot_id: str = "") -> SourceClocks:
    """Return what a text of perf script says of clocks, from the tables that it became."""
    times = tables.perf_events["raw_time"].drop_nulls()
    is_placed = tables.order.kind not in ("untimed", "deltas")
    clock = tables.clock if is_placed else ""
    found = perf_header_clocks.clocks_of(tables.meta, name, clock, _resolution_ns(times), host, boot_id)
    notes = found.notes
    if tables.order.words:
        notes += (tables.order.words,)
    if clock == RELATIVE and not tables.meta:
        notes += ("its times count from its own beginning",)
    return replace(found, notes=notes, **_span(times if is_placed else times.clear()))


def _of_perf_data(source: Source, tables: Tables | None, host: str, boot_id: str) -> SourceClocks:
    found = perf_data_clocks.read(source, source.name, host, boot_id)
    # the header knows no last sample where a pipe carried it
    return found if tables is None else replace(found, **_span(tables.perf_events["raw_time"].drop_nulls()))


def _of_perf_script(source: Source, tables: Tables | None, host: str, boot_id: str) -> SourceClocks:
    from collectors import perf_script

    return of_tables(perf_script.read(source) if tables is None else tables, source.name, host, boot_id)


def _of_ftrace(source: Source, tables: Tables | None, host: str, boot_id: str) -> SourceClocks:
    from collectors import ftrace

    tables = ftrace.read(source) if tables is None else tables
    is_placed = tables.order.kind not in ("untimed", "deltas")
    found = of_meta("ftrace", tables.meta, source.name, tables.clock if is_placed else "", host, boot_id)
    words = (tables.order.words,) if tables.order.words else ()
    times = tables.perf_events["raw_time"].drop_nulls()
    return replace(found, notes=found.notes + words, **_span(times))


def _of_module(module: str, function: str) -> Callable[[Source, Tables | None, str, str], SourceClocks]:
    """Return a function of a module that is imported when it is called."""

    def read(source: Source, tables: Tables | None, host: str, boot_id: str) -> SourceClocks:
        found = getattr(importlib.import_module(module), function)(source, host, boot_id)
        assert isinstance(found, SourceClocks)
        return found

    return read


# formats with times
READERS: dict[str, Callable[[Source, Tables | None, str, str], SourceClocks]] = {
    detection.PERF_DATA: _of_perf_data,
    "perf_script": _of_perf_script,
    "ftrace": _of_ftrace,
    "chrome_trace": _of_module("collectors.trace_clocks", "of_trace"),
    "speedscope": _of_module("collectors.trace_clocks", "of_speedscope"),
    # what no reader of samples takes yet: detection.detect_clocks
    "kineto": _of_module("collectors.trace_clocks", "of_trace"),
    "nsys_sqlite": _of_module("collectors.nsys_clocks", "read"),
    "otlp_json": _of_module("collectors.span_clocks", "of_otlp"),
    "jaeger_json": _of_module("collectors.span_clocks", "of_jaeger"),
    "zipkin_json": _of_module("collectors.span_clocks", "of_zipkin"),
    "triton_json": _of_module("collectors.span_clocks", "of_triton"),
    "prometheus": _of_module("collectors.metric_clocks", "of_prometheus"),
    "nvidia_smi": _of_module("collectors.metric_clocks", "of_nvidia_smi"),
    "nvidia_smi_csv": _of_module("collectors.metric_clocks", "of_nvidia_smi_csv"),
}


def _resolution_ns(times: pl.Series) -> int:
    """Return how finely times are printed."""
    return 1 if (times % _PRINTED_NS != 0).any() else _PRINTED_NS


def _span(times: pl.Series) -> dict[str, Any]:
    return {"first": times.min(), "last": times.max()} if len(times) else {"first": None, "last": None}
