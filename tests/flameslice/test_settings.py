"""A flag wins over the environment, the environment over the file, and a typing error is told by name."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from flameslice.settings import Option, default_map, options_of
from pipeline.errors import FlamesliceError

KNOWN = {
    "flamegraph": {
        "weight": Option("weight", False),
        "pid": Option("pid", True),
        "max_loss": Option("max_loss", False),
    },
    "slices": {
        "width": Option("width", False),
        "pid": Option("pid", True),
        "max_loss": Option("max_loss", False),
        "from": Option("time_from", False),
    },
}


def settings(cwd: Path, text: str = "", **env: str) -> dict[str, dict[str, object]]:
    if text:
        (cwd / "flameslice.toml").write_text(text)
    return default_map(env, cwd, lambda: KNOWN)


def test_nothing_said_asks_for_no_options(tmp_path: Path) -> None:
    def options() -> dict[str, dict[str, Option]]:
        raise AssertionError("would import every command")

    assert default_map({"HOME": str(tmp_path)}, tmp_path, options) == {}


def test_file_sets_one_command_or_all_that_have_the_option(tmp_path: Path) -> None:
    text = 'max-loss = 2.5\nwidth = "50us"\n[flamegraph]\nweight = "samples"\nmax_loss = 1\n'
    assert settings(tmp_path, text) == {
        "flamegraph": {"max_loss": 1, "weight": "samples"},
        "slices": {"max_loss": 2.5, "width": "50us"},
    }


def test_environment_wins_over_file_and_the_command_over_the_rest(tmp_path: Path) -> None:
    got = settings(
        tmp_path,
        "max_loss = 1\n[slices]\nmax_loss = 2\n",
        FLAMESLICE_MAX_LOSS="3",
        FLAMESLICE_FLAMEGRAPH_MAX_LOSS="4",
    )
    assert got == {"flamegraph": {"max_loss": "4"}, "slices": {"max_loss": "3"}}


def test_current_directory_wins_over_config_home_key_by_key(tmp_path: Path) -> None:
    config = tmp_path / "config" / "flameslice"
    config.mkdir(parents=True)
    (config / "flameslice.toml").write_text('[slices]\nwidth = "1us"\nmax_loss = 7\n')
    here = tmp_path / "here"
    here.mkdir()
    got = settings(here, '[slices]\nwidth = "2us"\n', XDG_CONFIG_HOME=str(tmp_path / "config"))
    assert got == {"slices": {"width": "2us", "max_loss": 7}}


def test_config_home_is_dot_config_where_unset_or_relative(tmp_path: Path) -> None:
    config = tmp_path / ".config" / "flameslice"
    config.mkdir(parents=True)
    (config / "flameslice.toml").write_text('width = "1us"\n')
    here = tmp_path / "here"
    here.mkdir()
    for env in ({}, {"XDG_CONFIG_HOME": "relative"}):
        assert settings(here, HOME=str(tmp_path), **env) == {"slices": {"width": "1us"}}


def test_values_given_several_times_are_lists(tmp_path: Path) -> None:
    assert settings(tmp_path, "[slices]\npid = [1, 2]\n[flamegraph]\npid = 3\n") == {
        "slices": {"pid": [1, 2]},
        "flamegraph": {"pid": [3]},
    }
    assert settings(tmp_path, FLAMESLICE_SLICES_PID="4 5")["slices"] == {"pid": ["4", "5"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("widht = 1\n", "widht is no option of any command: did you mean width?"),
        ("[slices]\nwidht = 1\n", "slices.widht is no option of slices: did you mean width?"),
        ("[slices]\ntime_from = 1\n", "slices.time_from is no option of slices: did you mean from?"),
        ("[slice]\nwidth = 1\n", "[slice] is no command: did you mean [slices]?"),
        ("[slices]\nwidth = [1, 2]\n", "slices.width takes one value, not a list: give one value"),
        ("width = 2020-01-01\n", "width is neither text nor a number nor true or false: put text in quotes"),
        (
            "[slices]\nwidth = {a = 1}\n",
            "slices.width is neither text nor a number nor true or false: put text in quotes",
        ),
        ("width = \n", "not TOML: Invalid value (at line 1, column 9): correct that place"),
    ],
)
def test_mistakes_are_one_line_with_file_and_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(FlamesliceError) as caught:
        settings(tmp_path, text)
    assert str(caught.value) == f"{tmp_path}/flameslice.toml: {said}"


def test_unreadable_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "flameslice.toml").write_bytes(b'width = "\xff"\n')
    with pytest.raises(FlamesliceError, match=r"flameslice\.toml: not UTF-8 text"):
        settings(tmp_path)
    (tmp_path / "flameslice.toml").unlink()
    (tmp_path / "flameslice.toml").mkdir()
    with pytest.raises(FlamesliceError, match=r"flameslice\.toml: is a directory"):
        settings(tmp_path)


@pytest.mark.parametrize(
    ("args", "env", "said"),
    [
        ((), {}, "100us 2.5 (7, 8)"),  # width is click's own default
        ((), {"FLAMESLICE_WIDTH": "3us"}, "3us 2.5 (7, 8)"),
        (("--width", "4us", "--pid", "9"), {"FLAMESLICE_WIDTH": "3us"}, "4us 2.5 (9,)"),
        ((), {"FLAMESLICE_SLICES_PID": "5"}, "100us 2.5 (5,)"),
        ((), {"FLAMESLICE_FROM": "1s"}, "100us 2.5 (7, 8) 1s"),
    ],
)
def test_click_takes_flag_then_environment_then_file(
    tmp_path: Path, args: tuple[str, ...], env: dict[str, str], said: str
) -> None:
    (tmp_path / "flameslice.toml").write_text("max_loss = 2.5\n[slices]\npid = [7, 8]\n")

    @click.group()
    @click.pass_context
    def group(ctx: click.Context) -> None:
        ctx.default_map = default_map(env, tmp_path, lambda: options_of(group, ctx))

    @group.command()
    @click.option("--width", default="100us")
    @click.option("--max-loss", type=float)
    @click.option("--pid", type=int, multiple=True)
    @click.option("--from", "time_from", default="")
    @click.argument("file")
    def slices(width: str, max_loss: float, pid: tuple[int, ...], time_from: str, file: str) -> None:
        click.echo(f"{width} {max_loss} {pid} {time_from}".strip())

    ran = CliRunner().invoke(group, ["slices", *args, "x"])
    assert (ran.exit_code, ran.output) == (0, f"{said}\n")
