"""Which samples a question is about: processes, threads, CPUs, events and a time range, all combined with 'and'."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.text import folded_name


@dataclass(frozen=True, slots=True)
class SampleFilter:
    """Empty sets and None keep everything; the range is half open, in ns of the source's own clock."""

    pids: frozenset[int] = frozenset()
    tids: frozenset[int] = frozenset()
    cpus: frozenset[int] = frozenset()
    comms: frozenset[str] = frozenset()
    from_ns: int | None = None
    to_ns: int | None = None

    @property
    def is_trivial(self) -> bool:
        """Return whether everything is kept."""
        return not (self.pids or self.tids or self.cpus or self.comms or self.has_range)

    @property
    def has_range(self) -> bool:
        """Return whether times matter."""
        return self.from_ns is not None or self.to_ns is not None

    def keeps_origin(self, pid: int | None, tid: int | None, cpu: int | None, comm: str | None) -> bool:
        """Return whether a sample of this process, thread and CPU is kept, whatever its time.

        A capture without a pid column names threads only: there a pid matches the thread of that number.
        """
        if self.pids and (tid if pid is None else pid) not in self.pids:
            return False
        if self.tids and tid not in self.tids:
            return False
        if self.cpus and cpu not in self.cpus:
            return False
        return not self.comms or (
            comm is not None and (comm in self.comms or spelled_comm(comm) in self.comms)
        )

    def keeps_time(self, time_ns: int) -> bool:
        """Return whether an instant lies in the range."""
        return (self.from_ns is None or time_ns >= self.from_ns) and (
            self.to_ns is None or time_ns < self.to_ns
        )


EVERYTHING = SampleFilter()


def spelled_comm(comm: str) -> str:
    """Return a process name as folded output spells it: spaces are underscores."""
    return folded_name(comm).replace(" ", "_")
