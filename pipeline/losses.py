"""What could not be read or placed: counted, located, and shown at the end of every report.

`REASONS` is the catalogue: every loss names one of its keys. A reason that `counts_rows` takes part in the share
that `--max-loss` bounds; what the kernel lost before we saw it is reported and takes no part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Severity = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Reason:
    """One kind of loss: how bad it is, whether it loses rows of the file, and its words for the user."""

    severity: Severity
    counts_rows: bool
    text: str


REASONS: dict[str, Reason] = {
    "unreadable_line": Reason("error", True, "lines that could not be read"),
    "unreadable_frame": Reason("error", True, "stack lines that could not be read"),
    "truncated_input": Reason("error", True, "input ends in the middle of a record"),
    "damaged_input": Reason("error", True, "places from which on the input is damaged"),
    "no_time": Reason("error", True, "events without a time, which cannot be placed"),
    "bad_number": Reason("error", True, "numbers too large to be a count, a thread or a CPU"),
    "bad_weight": Reason("error", True, "rows without a usable count"),
    "kernel_lost": Reason("warning", False, "events that the kernel lost while recording"),
    "kernel_throttled": Reason("warning", False, "times that the kernel throttled sampling"),
    "function_trace": Reason("warning", False, "lines of the function tracers, which are left out"),
    "stack_without_event": Reason("info", False, "stack lines whose event is not in the file"),
    "skipped_record": Reason("info", False, "PERF_RECORD lines that carry no sample"),
    "skipped_event": Reason("info", False, "events that are no part of a stack"),
    "unmatched_begin": Reason("info", False, "begins without an end in the capture"),
    "unmatched_end": Reason("info", False, "ends without a begin in the capture"),
    "repaired_idle_exit": Reason(
        "warning", False, "switches that the kernel did not report, inferred from later events"
    ),
    "time_went_back": Reason("warning", False, "events earlier than the one before them"),
    "cut_text": Reason("warning", False, "texts over 64 KiB, cut to fit into the store"),
    "rounded_weight": Reason("info", False, "fractional counts, rounded after adding up"),
    "dropped_event_rate": Reason("warning", False, "times that recording fell back to a lighter preset"),
}


@dataclass(frozen=True, slots=True)
class Loss:
    """One kind of loss in one source: how many, where first, and an example of the text."""

    reason: str
    count: int
    first_line: int | None = None
    example: str = ""

    @property
    def severity(self) -> Severity:
        """Return the catalogue's severity of this reason."""
        return REASONS[self.reason].severity

    def describe(self) -> str:
        """Return one line for people: `3 lines that could not be read (first at line 14: 'xyz')`."""
        where = ""
        if self.first_line is not None:
            where = f" (first at line {self.first_line}" + (f": {self.example!r})" if self.example else ")")
        return f"{self.count} {REASONS[self.reason].text}{where}"


class LossLedger:
    """Adds up losses by reason; keeps the first place and example of each."""

    def __init__(self) -> None:
        self._by_reason: dict[str, Loss] = {}

    def add(self, reason: str, count: int = 1, line: int | None = None, example: bytes | str = "") -> None:
        """Count a loss; reason is a key of REASONS, line is 1-based in the decoded text."""
        known = self._by_reason.get(reason)
        if known is None:
            assert reason in REASONS, reason
            if isinstance(example, bytes):
                example = example.decode("utf-8", "backslashreplace")
            self._by_reason[reason] = Loss(reason, count, line, example.strip()[:120])
        else:
            self._by_reason[reason] = replace(known, count=known.count + count)

    def merge(self, losses: tuple[Loss, ...], line_offset: int = 0) -> None:
        """Add the losses of a later part of the same source, whose lines start at line_offset."""
        for loss in losses:
            known = self._by_reason.get(loss.reason)
            line = None if loss.first_line is None else loss.first_line + line_offset
            if known is None:
                self._by_reason[loss.reason] = replace(loss, first_line=line)
            else:
                self._by_reason[loss.reason] = replace(known, count=known.count + loss.count)

    def as_tuple(self) -> tuple[Loss, ...]:
        """Return the losses, the worst severity first, then by reason."""
        rank = {"error": 0, "warning": 1, "info": 2}
        return tuple(sorted(self._by_reason.values(), key=lambda loss: (rank[loss.severity], loss.reason)))

    @property
    def lost_rows(self) -> int:
        """Return how many rows of the file were lost, for --max-loss."""
        return sum(loss.count for loss in self._by_reason.values() if REASONS[loss.reason].counts_rows)
