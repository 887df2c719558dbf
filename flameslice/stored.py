"""Reads stored captures: as a fold, or as tables, the same that their files would give."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import polars as pl

from flameslice.commands.options import Asked
from pipeline import schema, time_order
from pipeline.control import SourceFact
from pipeline.errors import InputError, UsageError, WorkError, one_line
from pipeline.filters import SampleFilter
from pipeline.folds import EventTotals, Fold
from pipeline.loss_table import losses_of
from pipeline.losses import Loss
from pipeline.stacks import Frame, StackTrie
from pipeline.store import causes
from pipeline.store.catalog import Catalog
from pipeline.store.parts import identities_of
from pipeline.store.place import open_place
from pipeline.store.states import SourceState, StoredCapture
from pipeline.table_filter import of_origin
from pipeline.tables import Tables
from pipeline.text import shown, unescape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pipeline.timespec import WallClock

PREFIX = "capture:"
Result = TypeVar("Result")
_ID_DIGITS = 8  # that name a source by its id
_TRIES = 5  # a capture is compacted once, seldom twice, while it is read


def data_url(given: str | None, env: Mapping[str, str] = os.environ) -> str:
    """Return where captures are kept: --data, FLAMESLICE_DATA, or the XDG data home."""
    if given or env.get("FLAMESLICE_DATA"):
        return given or env["FLAMESLICE_DATA"]
    home = env.get("XDG_DATA_HOME", "")
    if not home.startswith("/"):  # the XDG specification: ignore a relative path
        home = str(Path(env.get("HOME") or "~").expanduser() / ".local/share")
    return f"{home}/flameslice"


def find(argument: str, data: str | None, sources: Sequence[str] = ()) -> StoredCaptureReader | None:
    """Return the stored capture that an argument names (no file does), or of it the sources that are named.

    None: the argument can only be a path.
    """
    is_forced = argument.startswith(PREFIX)
    url = data_url(data)
    capture = _resolved(argument, url)
    if capture is not None:
        return capture.of_sources(sources) if sources else capture
    if is_forced:
        raise InputError(f"no such capture in {url}", "see flameslice captures", path=argument)
    if os.sep not in argument:
        raise InputError(
            f"no such file, and no capture in {url} has this id or name", "check the path", path=argument
        )
    return None


def open_capture(name: str, data: str | None) -> StoredCaptureReader:
    """Return the stored capture of an id or name; raises InputError where there is none, or several of one name."""
    url = data_url(data)
    capture = _resolved(name, url)
    if capture is None:
        raise InputError(f"no such capture in {url}", "see flameslice captures", path=name)
    return capture


def _resolved(name: str, url: str) -> StoredCaptureReader | None:
    catalog = Catalog(open_place(url))
    capture = catalog.resolve(name.removeprefix(PREFIX))
    return None if capture is None else StoredCaptureReader(catalog, capture)


class MovedError(WorkError):
    """Parts went away while they were read: compaction put others in their place, with the same rows."""


def again_if_moved(read: Callable[[], Result]) -> Result:
    """Return what read returns, called again where compaction came in between."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(MovedError):
            return read()
    return read()


@dataclass(frozen=True, slots=True)
class StoredCaptureReader:
    """One capture of a store, ready to be read."""

    catalog: Catalog
    capture: StoredCapture
    is_part: bool = False  # not all of its sources

    def of_sources(self, names: Sequence[str]) -> StoredCaptureReader:
        """Return this capture with only the sources of these file names or ids (the beginning is enough)."""
        chosen: list[SourceState] = []
        for name in names:
            found = [
                one
                for one in self.capture.sources
                if one.begin.file == name or (len(name) >= _ID_DIGITS and one.begin.source.startswith(name))
            ]
            if len(found) != 1:
                known = ", ".join(shown(one.begin.file) for one in self.capture.sources[:20])
                problem = f"{'no' if not found else 'more than one'} source {name!r} in this capture"
                raise UsageError(problem, f"give one of {known}, or the beginning of its SHA-256")
            chosen += [one for one in found if one not in chosen]
        return StoredCaptureReader(self.catalog, replace(self.capture, sources=tuple(chosen)), is_part=True)

    @property
    def _ends(self) -> list[SourceFact]:
        return [one.end for one in self.capture.sources if one.end is not None]

    def scan(self, table: str) -> pl.LazyFrame:
        """Return the rows of a table that are stored now; a newer minor version's columns are left out."""
        place = self.catalog.place
        names = self.catalog.parts(self.capture.id).get(table, ())
        columns = {**schema.KEYS, **schema.TABLES[table]}
        if not names:
            if self._is_stored(table):  # the folder was read while another took its place
                raise MovedError(
                    "its parts changed while they were read", "run it again", path=self.capture.id
                )
            return pl.LazyFrame(schema=columns)
        targets = [place.target(f"captures/capture={self.capture.id}/{name}") for name in names]
        options = place.options()
        rows = pl.scan_parquet(
            targets,
            storage_options=dict(options) if options else None,
            glob=False,  # a [ in the store's path is no pattern
            hive_partitioning=False,
            extra_columns="ignore",
            missing_columns="insert",
            schema=pl.Schema(columns),
        )
        if self.is_part:
            rows = rows.filter(pl.col("source").is_in([one.begin.source for one in self.capture.sources]))
        return rows

    def collect(self, query: pl.LazyFrame) -> pl.DataFrame:
        """Run a query; raises WorkError where a part cannot be read, MovedError where compaction took it away."""
        try:
            return query.collect()
        except FileNotFoundError as error:
            raise MovedError(
                "its parts changed while they were read", "run it again", path=self.capture.id
            ) from error
        except (pl.exceptions.ComputeError, OSError) as error:
            self._name_what_is_damaged()
            words, remedy = causes.explain(error, "run it again")
            raise WorkError(f"reading failed: {words}", remedy, path=self.capture.id) from error

    def _name_what_is_damaged(self) -> None:
        """Raise InputError for the first part that is none: what reads all of them does not say which."""
        place = self.catalog.place
        for names in self.catalog.parts(self.capture.id).values():
            for name in names:
                target = place.target(f"captures/capture={self.capture.id}/{name}")
                try:
                    identities_of(target, place, target)
                except InputError as error:
                    error.remedy = "move it away and ingest the same files again: only what it held is added"
                    raise

    def table(self, table: str) -> pl.DataFrame:
        """Return the rows of a table in the order of their sources."""
        return again_if_moved(lambda: self.collect(self.scan(table).sort("source", "row")))

    def losses(self) -> tuple[Loss, ...]:
        """Return the losses of all sources."""
        return losses_of(self.table("losses"))

    def notes(self) -> tuple[str, ...]:
        """Return what a reader of results must know."""
        told = [note for end in self._ends for note in end.notes]
        if self.capture.status != "complete":
            told.append(f"the capture is {self.capture.status}: what is missing is not in this result")
        return tuple(dict.fromkeys(told))

    def _is_stored(self, table: str) -> bool:
        """Return whether the capture was known to hold rows of a table."""
        return bool(self.capture.parts.get(table))

    # as a fold

    def fold(self, asked: Asked) -> Fold:
        """Count the stacks of the capture, filtered, as reading its files would."""
        return again_if_moved(lambda: self._fold(asked))

    def _fold(self, asked: Asked) -> Fold:
        weights = self.table("stack_weights")
        events = self.scan("perf_events")
        keep = asked.origins()
        if weights.height and (asked.has_range or not keep.is_trivial):
            raise UsageError(
                "this capture holds a source without single samples to filter",
                "leave out --from, --to, --pid, --tid, --cpu and --comm",
            )
        if asked.has_range and self.needs_alignment():
            raise InputError(
                "its sources are on different clocks, so no range of times is the same in all of them",
                "choose one: --source FILE; flameslice slices and chart place them on one timeline",
                path=shown(self.capture.name),
            )
        if asked.has_range:
            bounds = self.collect(events.select(pl.min("raw_time").alias("a"), pl.max("raw_time").alias("b")))
            clocks = {end.clock for end in self._timed}
            first_ns, last_ns = bounds.row(0)
            unit_clock = "tsc" if "tsc" in clocks else ""
            keep = asked.resolve(first_ns, last_ns, wall=self._wall(asked), clock=unit_clock)
        counted = self.collect(_counted(events, keep))
        if self.capture.status == "receiving" and not (weights.height or counted.height):
            raise InputError(
                "the capture is receiving: nothing that can be drawn is stored yet",
                "see flameslice captures show; a worker stores it, or ingest the same files again",
                path=self.capture.id,
            )
        result = Fold()
        result.notes = self.notes()
        result.losses.merge(self.losses())
        result.rows = sum(end.rows for end in self._ends)
        result.clock = ", ".join(dict.fromkeys(end.clock for end in self._ends if end.clock))
        units = {end.unit for end in self._ends if end.table_rows.get("stack_weights")}
        if len(units) > 1 or (weights.height and counted.height):
            files = ", ".join(one_line(shown(one.begin.file), 60) for one in self.capture.sources[:10])
            raise InputError(
                "its sources count different things",
                f"draw them one by one: --source FILE, one of {files}",
                path=shown(self.capture.name),
            )
        result.unit = next(iter(units), "")
        result.is_folded = any(end.is_folded for end in self._ends) and weights.height > 0
        nodes = self._trie(result.trie, {*counted["stack_id"], *weights["stack_id"]})
        names = dict(self.collect(self.scan("threads").select("tid", "comm")).iter_rows())
        for event, comm, stack_id, samples, period, has_period, first_ns, last_ns in counted.iter_rows():
            name = unescape(event)
            totals = result.events.setdefault(name, EventTotals())
            totals.samples += samples
            totals.period += int(period)
            totals.has_period |= has_period
            _add(result, name, _named(comm, names), nodes[stack_id], samples, int(period))
            if first_ns is not None:
                result.first_ns = first_ns if result.first_ns is None else min(first_ns, result.first_ns)
                result.last_ns = last_ns if result.last_ns is None else max(last_ns, result.last_ns)
        for event, comm, stack_id, samples, period in weights.select(
            schema.STACK_WEIGHTS.names()
        ).iter_rows():
            comm = None if comm is None else unescape(comm)
            result.add(unescape(event), comm, nodes[stack_id], samples, period)
        for end in self._ends:
            first = result.events.pop(end.default_event, None)
            if first is not None:
                result.events = {end.default_event: first, **result.events}
        return result

    def _wall(self, asked: Asked) -> WallClock | None:
        """Return what ties the times to the wall clock, where a question needs it."""
        if not asked.names_wall_time:
            return None
        from flameslice import clock_sources
        from pipeline import align

        return align.align(clock_sources.of_stored(self)).wall()

    def _trie(self, trie: StackTrie, wanted: set[int]) -> dict[int, int]:
        """Put the stacks that are wanted into a trie; return the node of each."""
        stacks = self.collect(self.scan("stacks").select("stack_id", "parent_id", "frame_id").unique())
        by_id = {stack: (parent, frame) for stack, parent, frame in stacks.iter_rows()}
        frames = self.collect(self.scan("frames").drop("capture", "source", "row").unique("frame_id"))
        numbers = {
            frame_id: trie.frame(
                Frame(unescape(symbol), unescape(dso), kind, unescape(file or ""), line or 0)
            )
            for frame_id, symbol, dso, file, line, kind in frames.iter_rows()
        }
        nodes = {0: 0}
        for stack in sorted(wanted):
            path = []
            while stack not in nodes:
                if stack not in by_id:  # its message is not stored yet
                    by_id[stack] = (0, -1)
                path.append(stack)
                stack = by_id[stack][0]
            for inner in reversed(path):
                parent, frame = by_id[inner]
                number = numbers.get(frame)
                if number is None:
                    number = numbers[frame] = trie.frame(Frame("[unknown]"))
                nodes[inner] = trie.push(nodes[parent], number)
        return nodes

    # as tables

    @property
    def _timed(self) -> list[SourceFact]:
        return [end for end in self._ends if end.table_rows.get("perf_events")]

    def timed_sources(self) -> list[str]:
        """Return the ids of the sources that hold samples with times."""
        return [end.source for end in self._timed]

    def needs_alignment(self) -> bool:
        """Return whether its sources are on clocks of which only the clock graph knows how they relate."""
        return len(self._timed) > 1 and (len({end.clock for end in self._timed}) > 1 or not self.capture.host)

    def tables(self) -> Tables:
        """Return the capture's samples and tracepoints in the order of their source."""
        return again_if_moved(self._tables)

    def _tables(self) -> Tables:
        timed = self._timed
        if not timed:
            raise InputError(
                "this capture holds no samples with times",
                "flameslice flamegraph draws it",
                path=self.capture.id,
            )
        if self.needs_alignment():
            clocks = {end.clock for end in timed}
            raise InputError(
                f"its {len(timed)} sources are on clocks that nothing relates ({', '.join(sorted(clocks))})",
                "choose one: --source FILE",
                path=self.capture.id,
            )
        events = self.collect(
            self.scan("perf_events").sort("source", "row").select("source", *schema.PERF_EVENTS.names())
        )
        orders = [
            time_order.judge(part["raw_time"], part["cpu"], part["tid"])
            for part in events.partition_by("source", maintain_order=True)
        ]
        events = events.drop("source")
        frames = self.collect(self.scan("frames").drop("capture", "source", "row").unique("frame_id"))
        stacks = self.collect(self.scan("stacks").drop("capture", "source", "row").unique("stack_id"))
        meta = dict(timed[0].meta)
        if timed[0].arch:
            meta["arch"] = timed[0].arch
        return Tables(
            perf_events=events,
            frames=frames,
            stacks=stacks,
            losses=self.losses(),
            rows=sum(end.rows for end in timed),
            clock=timed[0].clock,
            meta=meta,
            notes=self.notes(),
            order=max(
                orders, key=lambda order: time_order.KINDS.index(order.kind), default=time_order.UNTIMED
            ),
        )


def _add(fold: Fold, event: str, comm: str | None, node: int, samples: int, period: int) -> None:
    weight = fold.weights.setdefault((event, comm, node), [0, 0])
    weight[0] += samples
    weight[1] += period


def _named(comm: str | None, names: Mapping[int, str]) -> str | None:
    """Return a process name as text in memory; `:TID` is the thread's later name where there is one."""
    if comm is not None and comm.startswith(":") and comm[1:].isdigit():
        comm = names.get(int(comm[1:]), comm)
    return None if comm is None else unescape(comm)


def _counted(events: pl.LazyFrame, keep: SampleFilter) -> pl.LazyFrame:
    """Return one row per event, process and stack, in order of first appearance."""
    events = events.filter(~pl.col("event").str.starts_with("PERF_RECORD_"))
    events = of_origin(events, keep)
    if keep.from_ns is not None:
        events = events.filter(pl.col("raw_time") >= keep.from_ns)
    if keep.to_ns is not None:
        events = events.filter(pl.col("raw_time") < keep.to_ns)
    period = pl.col("period")
    return (
        events.group_by("event", "comm", "stack_id")
        .agg(
            pl.len().alias("samples"),
            period.fill_null(1).cast(pl.Int128).sum().alias("sum"),
            period.is_not_null().any().alias("has_period"),
            pl.min("raw_time").alias("first_ns"),
            pl.max("raw_time").alias("last_ns"),
            pl.min("source"),
            pl.min("row"),
        )
        .sort("source", "row")
        .drop("source", "row")
    )
