"""Stacks in process become the tables `frames` and `stacks`; a capture read into memory is a `Tables`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from pipeline import schema
from pipeline.losses import Loss
from pipeline.stacks import Frame, StackTrie, frame_id, stack_id
from pipeline.text import escape


@dataclass(frozen=True, slots=True)
class Batch:
    """A part of a source as tables; frames and stacks hold what no earlier batch of the source held."""

    perf_events: pl.DataFrame  # one row per sample or tracepoint
    frames: pl.DataFrame  # one row per frame
    stacks: pl.DataFrame  # one row per stack


@dataclass(frozen=True, slots=True)
class Tables:
    """A whole source in memory, and what was lost on the way."""

    perf_events: pl.DataFrame
    frames: pl.DataFrame
    stacks: pl.DataFrame
    losses: tuple[Loss, ...]
    rows: int  # rows that the source holds, read or not
    clock: str  # '' where the source has no times
    meta: dict[str, str]  # the source's own header fields
    notes: tuple[str, ...] = ()  # what a reader of the result must know of the source, in words


class TrieTables:
    """Hands out the rows of frames and stacks that are new since the last call, with ids that hold everywhere.

    One object is asked for either everything (`new_rows`) or what rows use (`rows_of`).
    """

    def __init__(self, trie: StackTrie) -> None:
        self._trie = trie
        self._frame_ids: list[int] = []
        self._depths = [0]  # of each node
        self._has_told_frame = bytearray()
        self._has_told_node = bytearray([1])  # nobody asks for the empty stack
        self.node_ids: list[int] = [0]  # content hash of each node

    def new_rows(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return frames and stacks interned since the last call."""
        first_frame, first_node = len(self._frame_ids), len(self.node_ids)
        self._identify()
        return self._rows(range(first_frame, len(self._frame_ids)), range(first_node, len(self.node_ids)))

    def rows_of(self, nodes: Iterable[int]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return what these stacks consist of and no call has returned yet: in their order, callers first."""
        self._identify()
        has_told, parents, frame_of = self._has_told_node, self._trie.parents, self._trie.frame_of
        new_nodes: list[int] = []
        for node in nodes:
            path = []
            while not has_told[node]:
                has_told[node] = 1
                path.append(node)
                node = parents[node]
            new_nodes += reversed(path)
        has_told = self._has_told_frame
        new_frames = [
            frame for frame in dict.fromkeys(frame_of[node] for node in new_nodes) if not has_told[frame]
        ]
        for frame in new_frames:
            has_told[frame] = 1
        return self._rows(new_frames, new_nodes)

    def _identify(self) -> None:
        """Give ids to everything that was interned since the last call."""
        trie, frame_ids, node_ids, depths = self._trie, self._frame_ids, self.node_ids, self._depths
        frame_ids.extend(frame_id(frame) for frame in trie.frames[len(frame_ids) :])
        for node in range(len(node_ids), len(trie)):
            parent = trie.parents[node]
            node_ids.append(stack_id(node_ids[parent], frame_ids[trie.frame_of[node]]))
            depths.append(depths[parent] + 1)
        self._has_told_frame.extend(bytes(len(frame_ids) - len(self._has_told_frame)))
        self._has_told_node.extend(bytes(len(node_ids) - len(self._has_told_node)))

    def _rows(self, frames: Sequence[int], nodes: Sequence[int]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the rows of these frames and nodes."""
        trie, frame_ids, node_ids = self._trie, self._frame_ids, self.node_ids
        stacks = pl.DataFrame(
            {
                "stack_id": [node_ids[node] for node in nodes],
                "parent_id": [node_ids[trie.parents[node]] for node in nodes],
                "frame_id": [frame_ids[trie.frame_of[node]] for node in nodes],
                "depth": [self._depths[node] for node in nodes],
            },
            schema=schema.STACKS,
        )
        return frames_table([trie.frames[at] for at in frames], [frame_ids[at] for at in frames]), stacks


def frames_table(frames: list[Frame], ids: list[int]) -> pl.DataFrame:
    """Return the `frames` table of these frames."""
    return pl.DataFrame(
        {
            "frame_id": ids,
            "symbol": [escape(frame.symbol) for frame in frames],
            "dso": [escape(frame.dso) for frame in frames],
            "file": [escape(frame.file) or None for frame in frames],
            "line": [frame.line or None for frame in frames],
            "kind": [frame.kind for frame in frames],
        },
        schema=schema.FRAMES,
    )
