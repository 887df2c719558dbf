"""Stacks in process become the tables `frames` and `stacks`; a capture read into memory is a `Tables`."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from pipeline import schema
from pipeline.losses import Loss
from pipeline.stacks import Frame, StackTrie, frame_id, stack_id
from pipeline.text import escape
from pipeline.time_order import UNTIMED, TimeOrder


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
    order: TimeOrder = UNTIMED  # how its times follow each other in the source


class TrieTables:
    """Hands out the rows of frames and stacks that are new since the last call, with ids that hold everywhere."""

    def __init__(self, trie: StackTrie) -> None:
        self._trie = trie
        self._frame_ids: list[int] = []
        self._depths = [0]  # of each node
        self.node_ids: list[int] = [0]  # content hash of each node

    def new_rows(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return frames and stacks interned since the last call."""
        trie = self._trie
        new_frames = trie.frames[len(self._frame_ids) :]
        self._frame_ids.extend(frame_id(frame) for frame in new_frames)
        first_node = len(self.node_ids)
        for node in range(first_node, len(trie)):
            parent_id = self.node_ids[trie.parents[node]]
            self.node_ids.append(stack_id(parent_id, self._frame_ids[trie.frame_of[node]]))
            self._depths.append(self._depths[trie.parents[node]] + 1)
        frames = frames_table(new_frames, self._frame_ids[len(self._frame_ids) - len(new_frames) :])
        nodes = range(first_node, len(trie))
        stacks = pl.DataFrame(
            {
                "stack_id": self.node_ids[first_node:],
                "parent_id": [self.node_ids[trie.parents[node]] for node in nodes],
                "frame_id": [self._frame_ids[trie.frame_of[node]] for node in nodes],
                "depth": self._depths[first_node:],
            },
            schema=schema.STACKS,
        )
        return frames, stacks


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
