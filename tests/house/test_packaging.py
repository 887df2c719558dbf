"""The wheel holds the five packages and nothing else at its top; every dependency is pinned."""

from __future__ import annotations

import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"analyzers", "collectors", "dashboards", "flameslice", "pipeline"}


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names of the files in the wheel, built without a network."""
    from hatchling.builders.wheel import WheelBuilder

    [path] = WheelBuilder(str(ROOT)).build(
        directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"]
    )
    with zipfile.ZipFile(path) as wheel:
        return wheel.namelist()


def test_top_level_names(wheel_names: list[str]) -> None:
    tops = {name.partition("/")[0] for name in wheel_names}
    [info] = [top for top in tops if top.endswith(".dist-info")]
    assert tops - {info} == PACKAGES


def test_every_module_is_in_the_wheel(wheel_names: list[str]) -> None:
    modules = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert modules <= set(wheel_names)
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(wheel_names)
    assert any(name.endswith("/licenses/LICENSE") for name in wheel_names)


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + [
        one for extra in project["optional-dependencies"].values() for one in extra
    ]
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pins = {name.lower().replace("_", "-"): version for name, version in (line.split("==") for line in lines)}
    missing = {one.split(">=")[0].partition("[")[0] for one in wanted} - pins.keys()
    assert not missing
    assert all(version and " " not in version for version in pins.values())
