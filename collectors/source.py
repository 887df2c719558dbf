"""Opens an input: a path or standard input, through gzip, zstd and xz, as plain bytes."""

from __future__ import annotations
