"""What the name of an event says: its modifiers, and whether it counts nanoseconds of CPU time."""

from __future__ import annotations

TIME_EVENTS = ("cpu-clock", "task-clock")
_MODIFIERS = frozenset("ukhGHpPSDIWeb")


def base_event(event: str) -> str:
    """Return an event without its modifiers: cpu-clock:u is cpu-clock, cpu_core/cycles/ppp is cycles."""
    if "/" in event:
        inner = event.split("/")[1].partition(":")[0]
        return event if "=" in inner or not inner else inner
    name, colon, last = event.rpartition(":")
    return name if colon and set(last) <= _MODIFIERS else event
