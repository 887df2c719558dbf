"""Parts: the Parquet files of one table of one capture, and which messages each holds.

    captures/capture=ID/perf_events/part-<source>-<first sequence>.parquet

A part holds rows of one source. Its name says the first message in it, its metadata all of them. Whoever knows of the
messages stored so far would publish the rest under the same first message, hence the same name: of two that publish
the same, one fails, looks again at what is stored, and goes on. Decision record 0004 has the argument.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from pipeline import schema
from pipeline.errors import InputError, WorkError
from pipeline.log.wire import Rows
from pipeline.store import causes
from pipeline.store.place import Folder, Place

PART = "part-"
_ROW_GROUP = 1 << 18
_META = "flameslice."
Ranges = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where in which log the messages of a part lay."""

    log: str
    topic: str
    partition: int
    first_offset: int
    last_offset: int


def folder_of(capture: str, table: str) -> str:
    """Return the folder of a table of a capture."""
    return f"captures/capture={capture}/{table}"


def source_tag(source: str) -> str:
    """Return what stands for a source in names of files: the beginning of a SHA-256, its own or of its id."""
    is_digest = len(source) == 64 and not set(source) - set("0123456789abcdef")
    return source[:32] if is_digest else hashlib.sha256(source.encode()).hexdigest()[:32]


class StoredTable:
    """What is stored of one table of one capture, as one worker knows it."""

    def __init__(self, place: Place, capture: str, table: str) -> None:
        self._place, self._capture, self._table = place, capture, table
        self._folder: Folder | None = None
        self._known: dict[str, Mapping[str, Ranges]] = {}
        self._sequences: dict[str, set[int]] = {}

    def refresh(self) -> None:
        """Look at the folder as it is now."""
        if self._folder is not None:
            self._folder.close()
        self._folder = self._place.folder(folder_of(self._capture, self._table))
        names = [name for name in self._folder.names() if name.startswith(PART)]
        gone = self._known.keys() - set(names)
        if gone:  # compacted or deleted: nothing known holds
            self._known, self._sequences = {}, {}
        for name in names:
            if name not in self._known:
                self._learn(name, identities_of(self._folder.target(name), self._place, name))

    def _learn(self, name: str, identities: Mapping[str, Ranges]) -> None:
        self._known[name] = identities
        for source, ranges in identities.items():
            known = self._sequences.setdefault(source, set())
            for first, last in ranges:
                known.update(range(first, last + 1))

    def sequences(self, source: str) -> set[int]:
        """Return which messages of a source are stored."""
        if self._folder is None:
            self.refresh()
        return self._sequences.setdefault(source, set())

    def publish(self, source: str, rows: Sequence[Rows], origin: Origin) -> int:
        """Store the messages that are not stored yet; return how many rows were added."""
        refused = ""
        while True:
            stored = self.sequences(source)
            new = {one.identity.sequence: one for one in rows if one.identity.sequence not in stored}
            if not new:
                return 0
            ordered = [new[sequence] for sequence in sorted(new)]
            name = f"{PART}{source_tag(source)}-{ordered[0].identity.sequence:08d}.parquet"
            identities = {source: ranges_of(new)}
            table = _with_keys(self._capture, source, ordered)
            data = to_parquet(table, self._capture, self._table, identities, origin)
            assert self._folder is not None
            match self._folder.create(name, data):
                case "created":
                    self._learn(name, identities)
                    return table.height
                case "exists" if name == refused:
                    raise InputError(
                        "this part does not hold what its name says",
                        "move it away: the worker then writes it anew",
                        path=self._place.target(f"{folder_of(self._capture, self._table)}/{name}"),
                    )
                case "exists":
                    refused = name
                    self.refresh()
                case "moved":
                    self.refresh()

    def close(self) -> None:
        """Let go of the folder."""
        if self._folder is not None:
            self._folder.close()
            self._folder = None


def _with_keys(capture: str, source: str, rows: Sequence[Rows]) -> pl.DataFrame:
    tables = [
        one.table.with_columns(
            pl.int_range(one.first_row, one.first_row + one.table.height, dtype=pl.Int64).alias("row")
        )
        for one in rows
    ]
    table = pl.concat(tables).with_columns(pl.lit(capture).alias("capture"), pl.lit(source).alias("source"))
    return table.select(*schema.KEYS.names(), pl.exclude(schema.KEYS.names()))


def in_order(table: pl.DataFrame) -> pl.DataFrame:
    """Return rows by raw time where the table has one, then by row."""
    if "raw_time" not in table.columns:
        return table
    if table["raw_time"].is_sorted(nulls_last=True) and table["row"].is_sorted():
        return table
    return table.sort("raw_time", "source", "row", nulls_last=True)


def to_parquet(
    table: pl.DataFrame,
    capture: str,
    name: str,
    identities: Mapping[str, Ranges],
    origin: Origin | None,
) -> bytes:
    """Return the bytes of a part."""
    metadata = {
        _META + "schema_version": schema.SCHEMA_VERSION,
        _META + "capture": capture,
        _META + "table": name,
        _META + "identities": json.dumps(identities),
    }
    if origin is not None:
        metadata[_META + "origin"] = json.dumps(
            {
                slot: getattr(origin, slot)
                for slot in ("log", "topic", "partition", "first_offset", "last_offset")
            }
        )
    buffer = io.BytesIO()
    in_order(table).write_parquet(
        buffer, compression="zstd", compression_level=1, row_group_size=_ROW_GROUP, metadata=metadata
    )
    return buffer.getvalue()


def identities_of(target: str, place: Place, name: str) -> Mapping[str, Ranges]:
    """Return which messages of which source a part holds; raises InputError where it cannot be told.

    Raises WorkError where it cannot be reached.
    """
    try:
        options = place.options()
        metadata = pl.read_parquet_metadata(target, storage_options=dict(options) if options else None)
        version = metadata[_META + "schema_version"]
        if version.partition(".")[0] != schema.SCHEMA_VERSION.partition(".")[0]:
            raise InputError(
                f"schema version {version} is not known", "install a newer flameslice", path=name
            )
        return {
            source: [(int(first), int(last)) for first, last in ranges]
            for source, ranges in json.loads(metadata[_META + "identities"]).items()
        }
    except OSError as error:  # it went away meanwhile, or the object store failed: not the part's fault
        words, remedy = causes.explain(error, "run it again")
        raise WorkError(f"reading failed: {words}", remedy, path=name) from error
    except (pl.exceptions.PolarsError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise InputError(
            f"not a part of a store: {error}", "move it away, or restore the store", path=name
        ) from None


def ranges_of(sequences: Iterable[int]) -> Ranges:
    """Return numbers as ranges, both ends included."""
    ranges: Ranges = []
    for number in sorted(sequences):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges
