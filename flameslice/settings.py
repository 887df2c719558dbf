"""Settings: a flag wins over the environment, the environment over `flameslice.toml`.

A file has one table per command; what stands above the tables holds for every command that has the option:

    width = "50us"
    [flamegraph]
    weight = "samples"

It is read from the current directory and from the XDG config home (`~/.config/flameslice/flameslice.toml`); a
key of the first wins. The environment says the same as FLAMESLICE_WIDTH or FLAMESLICE_FLAMEGRAPH_WEIGHT. An
option is spelled as its flag, with `-` or `_`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.errors import InputError, from_os_error

if TYPE_CHECKING:
    import click

FILE_NAME = "flameslice.toml"
ENV_PREFIX = "FLAMESLICE_"


class Option(NamedTuple):
    """What click calls the option's parameter, and whether it may be given several times."""

    parameter: str
    multiple: bool


# command -> the option's flag without the dashes in front, `_` for `-` -> what it is for click
Options = Mapping[str, Mapping[str, Option]]


def default_map(
    env: Mapping[str, str], cwd: Path, options: Callable[[], Options]
) -> dict[str, dict[str, Any]]:
    """Return the defaults of every command, for click's `default_map`.

    `options` is called only where a file or the environment says something: it may import every command.
    """
    files = [(path, table) for path in _paths(env, cwd) if (table := _load(path)) is not None]
    given = {name: value for name, value in env.items() if name.startswith(ENV_PREFIX)}
    if not files and not given:
        return {}
    known = options()
    merged: dict[str, dict[str, Any]] = {command: {} for command in known}
    for path, table in reversed(files):  # what is written later wins
        for command, option, value in _settings_of_file(path, table, known):
            merged[command][option] = value
    for command, option, value in _settings_of_environment(given, known):
        merged[command][option] = value
    return {command: values for command, values in merged.items() if values}


def spread(defaults: dict[str, dict[str, Any]], group: click.Group) -> dict[str, dict[str, Any]]:
    """Return defaults with those of a command that has commands of its own given to each of these."""
    import click

    spread_out: dict[str, dict[str, Any]] = {}
    for name, values in defaults.items():
        command = group.get_command(click.Context(group), name)
        own = command.commands if isinstance(command, click.Group) else None
        spread_out[name] = values if own is None else dict.fromkeys(own, values)
    return spread_out


def options_of(group: click.Group, ctx: click.Context) -> dict[str, dict[str, Option]]:
    """Return the options that each command of group takes; this imports every command."""
    import click

    known: dict[str, dict[str, Option]] = {}
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        params = list(command.params) if command is not None else []
        if isinstance(command, click.Group):
            params += [param for own in command.commands.values() for param in own.params]
        known[name] = {
            _spelled(flag[2:]): Option(param.name, param.multiple)
            for param in params
            if isinstance(param, click.Option) and param.name and param.expose_value
            for flag in param.opts
            if flag.startswith("--")
        }
    return known


def _paths(env: Mapping[str, str], cwd: Path) -> list[Path]:
    """Return where a settings file may lie, the strongest first."""
    config_home = env.get("XDG_CONFIG_HOME", "")
    if not config_home.startswith("/"):  # the XDG specification: ignore a relative path
        home = env.get("HOME", "")
        if not home:
            return [cwd / FILE_NAME]
        config_home = f"{home}/.config"
    return [cwd / FILE_NAME, Path(config_home) / "flameslice" / FILE_NAME]


def _load(path: Path) -> dict[str, Any] | None:
    """Return what a settings file says, None where there is no such file."""
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise from_os_error(error, str(path)) from None
    import tomllib

    try:
        return tomllib.loads(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise InputError("not UTF-8 text", "save it as UTF-8", path=str(path)) from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"not TOML: {error}", "correct that place", path=str(path)) from None


def _settings_of_file(path: Path, table: dict[str, Any], known: Options) -> Iterator[tuple[str, str, Any]]:
    """Yield (command, option, value): first what holds for all commands, then what a command's table says."""
    everywhere = {key: value for key, value in table.items() if not isinstance(value, dict)}
    for key, value in everywhere.items():
        option = _spelled(key)
        takers = [command for command, names in known.items() if option in names]
        if not takers:
            raise _unknown(
                path, key, {name for names in known.values() for name in names}, "option of any command"
            )
        for command in takers:
            yield (
                command,
                known[command][option].parameter,
                _checked(path, key, value, known[command][option]),
            )
    for command, values in table.items():
        if command in everywhere:
            continue
        if command not in known:
            raise _unknown(path, f"[{command}]", {f"[{name}]" for name in known}, "command")
        for key, value in values.items():
            option = _spelled(key)
            if option not in known[command]:
                raise _unknown(path, f"{command}.{key}", set(known[command]), f"option of {command}")
            taken = known[command][option]
            yield command, taken.parameter, _checked(path, f"{command}.{key}", value, taken)


def _settings_of_environment(given: Mapping[str, str], known: Options) -> Iterator[tuple[str, str, Any]]:
    """Yield (command, option, value): FLAMESLICE_OPTION first, then FLAMESLICE_COMMAND_OPTION, which wins."""
    for with_command in (False, True):
        for command, names in known.items():
            for spelled, option in names.items():
                words = (command, spelled) if with_command else (spelled,)
                value = given.get(ENV_PREFIX + "_".join(words).upper().replace("-", "_"))
                if value:  # set to nothing means not set
                    yield command, option.parameter, value.split() if option.multiple else value


def _spelled(key: str) -> str:
    """Return a key as click names the parameter."""
    return key.replace("-", "_")


def _checked(path: Path, key: str, value: Any, option: Option) -> Any:
    """Return a file's value for an option, or say that it has the wrong shape."""
    values = value if isinstance(value, list) else [value]
    if any(not isinstance(one, str | int | float) for one in values):
        raise InputError(
            f"{key} is neither text nor a number nor true or false", "put text in quotes", path=str(path)
        )
    if isinstance(value, list) and not option.multiple:
        raise InputError(f"{key} takes one value, not a list", "give one value", path=str(path))
    return values if option.multiple else value


def _unknown(path: Path, key: str, known: set[str], kind: str) -> InputError:
    """Return the error for a key that no command knows, with the nearest ones."""
    import difflib

    near = difflib.get_close_matches(_spelled(key.rpartition(".")[2]), sorted(known), n=1)
    remedy = f"did you mean {near[0]}?" if near else "see flameslice --help, and --help of the command"
    return InputError(f"{key} is no {kind}", remedy, path=str(path))
