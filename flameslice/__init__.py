"""Why was this token slow? The front door: the command line and what programs may import.

`pipeline`, `collectors`, `analyzers` and `dashboards` are import packages with generic names, so this module
makes sure that Python would import ours and not another project's before anything else runs.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

__version__ = "0.1.0"

SIBLINGS = ("pipeline", "collectors", "analyzers", "dashboards")


def foreign_sibling(root: Path) -> str | None:
    """Return what to tell about the first of SIBLINGS that is not in root, None if all are ours."""
    for name in SIBLINGS:
        try:
            spec = importlib.util.find_spec(name)
        except ValueError:  # a module without a spec was put into sys.modules by hand
            spec = None
        places = [Path(place).resolve() for place in (spec and spec.submodule_search_locations) or ()]
        if root / name not in places:
            found = str(places[0]) if places else str((spec and spec.origin) or "nothing")
            return (
                f"flameslice: Python would import {found} as '{name}', which is not flameslice's own: "
                "use a virtual environment of its own, or take that place out of PYTHONPATH"
            )
    return None


def _started_as_command() -> bool:
    """Return whether this process is the `flameslice` command, for which a traceback would be noise."""
    return Path(sys.argv[0]).name == "flameslice" or sys.argv[0] == "-m"


_problem = foreign_sibling(Path(__file__).resolve().parent.parent)
if _problem is not None:
    if _started_as_command():
        raise SystemExit(_problem)
    raise ImportError(_problem)
