"""`python -m flameslice`: the same as the console script."""

from __future__ import annotations

from flameslice.cli import main

if __name__ == "__main__":
    main()
