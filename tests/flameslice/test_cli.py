"""The command line as a whole: help without heavy imports, one line per error, statuses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flameslice.cli import COMMANDS

if TYPE_CHECKING:
    from conftest import RunCli  # type: ignore[import-not-found]


def test_help_lists_every_command(run_cli: RunCli) -> None:
    ran = run_cli("--help")
    assert ran.status == 0
    for name in COMMANDS:
        assert f"\n  {name} ".encode() in ran.stdout


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help(run_cli: RunCli, name: str) -> None:
    ran = run_cli(name, "--help")
    assert ran.status == 0
    assert ran.stdout.startswith(f"Usage: flameslice {name}".encode())


def test_folding_a_file_imports_no_data_frames(run_cli: RunCli, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("a 1 1.000001: 5 cpu-clock: \n\t 401010 f (/bin/a)\n\n")
    ran = run_cli("flamegraph", "x.txt", "--format", "folded", python_options=["-X", "importtime"])
    assert ran.stdout == b"a;f 5\n"
    imported = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    assert "collectors.perf_tokens" in imported
    assert imported.isdisjoint({"polars", "pandas", "numpy", "pyarrow", "plotly"})


@pytest.mark.parametrize("arguments", [["nope"], ["--nope"], ["flamegraph"], ["flamegraph", "a", "b"]])
def test_wrong_usage_is_status_2_and_one_line(run_cli: RunCli, arguments: list[str]) -> None:
    ran = run_cli(*arguments)
    assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (2, b"", 1), ran.stderr


def test_v_shows_the_offending_text_and_debug_the_traceback(run_cli: RunCli, tmp_path: Path) -> None:
    ran = run_cli("flamegraph", tmp_path / "missing", "--debug")
    assert "Traceback" in ran.stderr
    assert "Traceback" not in run_cli("flamegraph", tmp_path / "missing").stderr


def test_settings_reach_the_commands(run_cli: RunCli, tmp_path: Path) -> None:
    text = "a 1 1.000001: 5 cpu-clock: \n\t 401010 f (/bin/a)\n\n" * 2
    (tmp_path / "x.txt").write_text(text)
    (tmp_path / "flameslice.toml").write_text('[flamegraph]\nweight = "samples"\n')
    assert run_cli("flamegraph", "x.txt", "--format", "folded").stdout == b"a;f 2\n"
    env = {"FLAMESLICE_FLAMEGRAPH_WEIGHT": "period"}
    assert run_cli("flamegraph", "x.txt", "--format", "folded", env=env).stdout == b"a;f 10\n"
    by_flag = run_cli("flamegraph", "x.txt", "--format", "folded", "--weight", "samples", env=env)
    assert by_flag.stdout == b"a;f 2\n"


@pytest.mark.parametrize("group", [[], ["captures"], ["deadletter"]])
def test_a_group_alone_shows_its_help_with_its_lines(run_cli: RunCli, group: list[str]) -> None:
    ran = run_cli(*group)
    assert ran.status == 2
    assert "\\n" not in ran.stderr
    assert "\nCommands:\n" in ran.stderr
    assert ran.stderr.startswith(f"Usage: {' '.join(['flameslice', *group])} ")


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["captures", "show"], "flameslice captures show"),
        (["captures", "delete", "--what"], "flameslice captures delete"),
        (["deadletter", "list", "x"], "flameslice deadletter list"),
        (["slices"], "flameslice slices"),
        (["ingest", "--label"], "flameslice ingest"),
        (["clocks", "f", "--anchor"], "flameslice clocks"),
        (["nosuch"], "flameslice"),
    ],
)
def test_a_wrong_call_names_the_help_of_the_command(run_cli: RunCli, words: list[str], command: str) -> None:
    ran = run_cli(*words)
    assert ran.status == 2
    assert ran.stderr.endswith(f"(see {command} --help)\n")
    assert run_cli(*command.split()[1:], "--help").status == 0
