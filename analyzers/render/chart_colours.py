"""The colours of a flame chart: a hue for a slice's foremost state, paler where that took less of it.

The hues were searched for at a least distance of 22 in CIE Lab between any two, as seen by people with
normal sight and with each kind of colour blindness, and are light enough for black letters.
"""

from __future__ import annotations

from analyzers.chart_shares import STATES, Shares, State

HUES: dict[State, str] = {
    "dma_wait": "#CB4CF4",
    "blocked": "#9FB6E6",
    "runnable": "#22AB88",
    "syscall": "#F4D953",
    "cpu": "#EC7541",
}
NOT_CAPTURED = "#E4E4E4"
WORDS: dict[State, str] = {
    "dma_wait": "DMA wait",
    "blocked": "blocked",
    "runnable": "waiting for a CPU",
    "syscall": "system call",
    "cpu": "on a CPU",
}
_PALENESS = (0.0, 0.22, 0.44, 0.62)  # a share of at least 75 %, 50 %, 25 %, less
NOT_CAPTURED_CLASS = len(STATES) * len(_PALENESS)


def classes() -> list[str]:
    """Return the colour of each class, in order: four shades of each state, then 'not captured'."""
    return [_paler(HUES[state], paleness) for state in STATES for paleness in _PALENESS] + [NOT_CAPTURED]


def class_of(shares: Shares, at: int, width_ns: int) -> int:
    """Return the class of a slice of width_ns."""
    state = shares.foremost(at)
    if state is None:
        return NOT_CAPTURED_CLASS
    quarters = min(shares.of(state)[at] * 4 // width_ns, 3)
    return STATES.index(state) * len(_PALENESS) + 3 - quarters


def stepwise(colours: list[str]) -> list[tuple[float, str]]:
    """Return a colour scale for whole numbers, with zmin -0.5 and zmax len(colours) - 0.5."""
    count = len(colours)
    return [(edge / count, colour) for at, colour in enumerate(colours) for edge in (at, at + 1)]


def _paler(colour: str, paleness: float) -> str:
    channels = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(channel + (255 - channel) * paleness):02X}" for channel in channels)
