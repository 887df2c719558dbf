"""Call stacks as a trie: a frame once, a stack once, whatever the number of samples.

A stack is a node; its parent is the caller's stack. Node 0 is the empty stack. Within one process nodes and frames
are small integers; outside they are 64-bit content hashes: BLAKE2b (8 bytes, little endian)
over the length-prefixed fields of a frame, and for a stack over the two little-endian hashes of parent and frame.
The empty stack has id 0.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from pipeline.text import encode

FrameKind = Literal["user", "kernel", "jit", "inlined", "python", "gpu"]

EMPTY_STACK = 0


class Frame(NamedTuple):
    """A function as the capture names it: symbol and dso are raw (surrogate-escaped) text, '' where unknown."""

    symbol: str
    dso: str = ""
    kind: FrameKind = "user"
    file: str = ""
    line: int = 0


def frame_id(frame: Frame) -> int:
    """Return the content hash of a frame: the same on every machine and run."""
    digest = hashlib.blake2b(digest_size=8)
    for field in (frame.symbol, frame.dso, frame.kind, frame.file, str(frame.line)):
        raw = encode(field)
        digest.update(struct.pack("<I", len(raw)))
        digest.update(raw)
    return int.from_bytes(digest.digest(), "little")


def stack_id(parent_id: int, frame: int) -> int:
    """Return the content hash of a stack from those of its caller and its leaf frame."""
    digest = hashlib.blake2b(struct.pack("<QQ", parent_id, frame), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


class StackTrie:
    """Interns frames and stacks; `parents[n]` and `frame_of[n]` describe node n, parents before children."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.parents: list[int] = [-1]
        self.frame_of: list[int] = [-1]
        self._frame_numbers: dict[Frame, int] = {}
        self._children: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.parents)

    def frame(self, frame: Frame) -> int:
        """Return the number of a frame, interning it."""
        number = self._frame_numbers.get(frame)
        if number is None:
            number = self._frame_numbers[frame] = len(self.frames)
            self.frames.append(frame)
        return number

    def push(self, parent: int, frame: int) -> int:
        """Return the node of the stack that calls frame (a number) from node parent."""
        key = (parent, frame)
        node = self._children.get(key)
        if node is None:
            node = self._children[key] = len(self.parents)
            self.parents.append(parent)
            self.frame_of.append(frame)
        return node

    def add(self, outermost_first: Iterable[Frame]) -> int:
        """Return the node of a whole stack, interning it."""
        node = EMPTY_STACK
        for frame in outermost_first:
            node = self.push(node, self.frame(frame))
        return node

    def path(self, node: int) -> list[Frame]:
        """Return the frames of a stack, the outermost first."""
        frames = []
        while node > 0:
            frames.append(self.frames[self.frame_of[node]])
            node = self.parents[node]
        frames.reverse()
        return frames

    def absorb(self, frames: list[Frame], parents: list[int], frame_of: list[int]) -> list[int]:
        """Take in another trie (its three lists); return the node here of each node there."""
        numbers = [self.frame(frame) for frame in frames]
        nodes = [EMPTY_STACK]
        for node in range(1, len(parents)):
            nodes.append(self.push(nodes[parents[node]], numbers[frame_of[node]]))
        return nodes

    def ids(self) -> tuple[list[int], list[int]]:
        """Return the content hashes of all frames and of all nodes, by number."""
        frame_ids = [frame_id(frame) for frame in self.frames]
        node_ids = [0] * len(self.parents)
        for node in range(1, len(self.parents)):
            node_ids[node] = stack_id(node_ids[self.parents[node]], frame_ids[self.frame_of[node]])
        return frame_ids, node_ids

    def nodes(self) -> Iterator[int]:
        """Return every node but the empty stack, callers before callees."""
        return iter(range(1, len(self.parents)))
