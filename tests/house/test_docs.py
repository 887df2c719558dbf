"""The docs name what there is, their links lead somewhere, and they tell nothing of where they were made."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "demo").glob("*.md")])
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def without_code(text: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.S)


def heading_ids(text: str) -> set[str]:
    """The anchors that a page's headings get, as forges make them."""
    lines = [line.lstrip("#").strip().lower() for line in text.splitlines() if re.match(r"#{1,6} ", line)]
    return {re.sub(r"[^\w\- ]", "", line).replace(" ", "-") for line in lines}


def options_by_command() -> dict[str, list[str]]:
    from flameslice.cli import flameslice as group

    ctx = click.Context(group, info_name="flameslice")
    options: dict[str, list[str]] = {}
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        below = command.commands.values() if isinstance(command, click.Group) else ()
        params = [param for one in (command, *below) for param in one.params]
        options[name] = [flag for param in params for flag in param.opts if flag.startswith("--")]
    return options


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(without_code(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in heading_ids(there.read_text()), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_nothing_of_this_machine_or_a_registry(page: Path) -> None:
    places = r"(?<![\w.])/(?:work|root|tmp/w)\b|/\.pyenv|/home/\w+"
    registries = (
        r"pypi\.org|pythonhosted|registry\.npmjs|crates\.io|repo1?\.maven|proxy\.golang|deb\.debian|index-url"
    )
    assert re.findall(f"{places}|{registries}", page.read_text()) == []


def test_every_command_is_documented() -> None:
    readme = (ROOT / "README.md").read_text()
    contracts = (ROOT / "docs" / "contracts.md").read_text()
    for command in options_by_command():
        assert f"flameslice {command}" in readme, f"README.md does not mention flameslice {command}"
        assert f"flameslice {command}" in contracts, (
            f"docs/contracts.md does not mention flameslice {command}"
        )


def test_commands_shown_in_docs_exist() -> None:
    options = options_by_command()
    for page in PAGES:
        if page.name == "CHANGELOG.md":
            continue  # speaks of what was, too
        for command, rest in re.findall(
            r"(?:^|[|`] ?)flameslice ([a-z]+)([^\n|`]*)", page.read_text(), flags=re.M
        ):
            assert command in options, f"{page.name} shows flameslice {command}"
            flags = re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest.partition(" -- ")[0])
            unknown = set(flags) - set(options[command]) - {"--help"}
            assert not unknown, f"{page.name} shows flameslice {command} with {unknown}"


def test_tables_reasons_and_modules_are_documented_as_they_are() -> None:
    command = [sys.executable, str(ROOT / "tools" / "pages.py"), "--check"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_make_help_lists_every_task() -> None:
    tasks = re.findall(r"^\.PHONY: (\S+)$", (ROOT / "Makefile").read_text(), flags=re.M)
    listed = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, text=True, timeout=60)
    assert listed.returncode == 0
    assert re.findall(r"^  make (\S+) +\S", listed.stdout, flags=re.M) == tasks
