"""Readers: one module per source format, chosen by what a file holds (`detection`)."""

from __future__ import annotations

from collectors.detection import PERF_DATA, READERS, SAMPLED, detect

__all__ = ["PERF_DATA", "READERS", "SAMPLED", "detect"]
