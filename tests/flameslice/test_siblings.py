"""The folders at the root have generic names: another project's must not be taken for them in silence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import flameslice

ROOT = Path(__file__).resolve().parents[2]


def python(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    env = {"PYTHONPATH": f"{folder}:{ROOT}", "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [sys.executable, *args], capture_output=True, text=True, env=env, cwd=folder, timeout=60
    )


@pytest.mark.parametrize("name", flameslice.SIBLINGS)
def test_foreign_package_is_told_in_one_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("raise SystemExit('imported')")
    ran = python(tmp_path, "-m", "flameslice", "--help")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == (
        f"flameslice: Python would import {tmp_path / name} as '{name}', which is not flameslice's own: "
        "use a virtual environment of its own, or take that place out of PYTHONPATH\n"
    )


def test_program_that_imports_us_gets_an_import_error(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text("")
    code = "try:\n  import flameslice\nexcept ImportError as error:\n  print(error)"
    ran = python(tmp_path, "-c", code)
    assert ran.stdout.startswith(f"flameslice: Python would import {tmp_path}/pipeline.py as 'pipeline'")
    assert ran.stderr == ""


def test_our_own_are_accepted() -> None:
    assert flameslice.foreign_sibling(ROOT) is None
    assert flameslice.foreign_sibling(ROOT / "elsewhere") is not None
