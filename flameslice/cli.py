"""The command line: finds the command, shows errors as one line, and maps them to exit statuses.

0 done; 1 the input or the work failed; 2 wrong usage; 3 done and written, but more was lost than --max-loss allows.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import click

from flameslice import __version__
from pipeline.errors import FlamesliceError, from_os_error, one_line

# command -> (module, its one line in --help): modules are imported when their command runs
COMMANDS: dict[str, tuple[str, str]] = {
    "captures": ("captures", "List, show and delete stored captures."),
    "chart": ("chart", "Draw what each thread did over time, slice by slice, as a flame chart."),
    "clocks": ("clocks", "Show what relates the clocks of captures, and convert times."),
    "compact": ("compact", "Join the small files of complete captures."),
    "deadletter": ("deadletter", "List and replay messages that could not be stored."),
    "doctor": ("doctor", "Say what this machine allows to record, and how to allow more."),
    "flamegraph": ("flamegraph", "Draw where the time went, as an interactive flame graph or folded stacks."),
    "ingest": ("ingest", "Keep captures in the store."),
    "record": ("record", "Record a command, processes or the whole machine with perf, gently."),
    "slices": ("slices", "Cut a capture into time slices, as a table."),
    "worker": ("worker", "Store what the log holds, as a service."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names for --help."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"flameslice.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in sorted(COMMANDS.items())])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: perf record -g -- COMMAND; perf script | flameslice flamegraph - -o out.svg",
)
@click.version_option(__version__, message="flameslice %(version)s")
@click.option("--debug", is_flag=True, help="Show a traceback when something goes wrong.")
@click.option("-v", "--verbose", is_flag=True, help="Say more, such as the text that could not be read.")
@click.pass_context
def flameslice(ctx: click.Context, debug: bool, verbose: bool) -> None:
    """Why was this token slow? Captures in, flame graphs and 100 microsecond slices out."""
    from flameslice import settings

    ctx.obj = {"debug": debug, "verbose": verbose}
    group = ctx.command
    assert isinstance(group, click.Group)
    defaults = settings.default_map(os.environ, Path.cwd(), lambda: settings.options_of(group, ctx))
    ctx.default_map = settings.spread(defaults, group)


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    arguments = sys.argv[1:] if argv is None else argv
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    wants_traceback = "--debug" in own
    is_verbose = "-v" in own or "--verbose" in own
    # what a name holds must never stop the output: odd bytes leave as they came
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)  # None where the stream is closed
        if reconfigure is not None:
            reconfigure(errors="surrogateescape" if stream is sys.stdout else "backslashreplace")
    status = 0
    try:
        result: Any = flameslice.main(args=arguments, prog_name="flameslice", standalone_mode=False)
        status = result if isinstance(result, int) else 0
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _leave_quietly()
    except KeyboardInterrupt:
        status = 130
    except click.exceptions.Abort:
        status = 130
    except click.ClickException as error:
        status = _show_usage(error, arguments)
    except FlamesliceError as error:
        if wants_traceback:
            raise
        _say(str(error))
        if is_verbose and error.text:
            _say(f"  {one_line(error.text, 2000)}")
        status = error.exit_status
    except OSError as error:
        if wants_traceback:
            raise
        _say(str(from_os_error(error, str(error.filename or ""))))
        status = 1
    except MemoryError:
        _say("out of memory: give a smaller range with --from and --to")
        status = 1
    except Exception as error:
        if wants_traceback:
            raise
        _say(f"flameslice failed: {type(error).__name__}: {error}: run again with --debug and report it")
        status = 1
    sys.exit(status)


def _show_usage(error: click.ClickException, arguments: list[str]) -> int:
    ctx: click.Context | None = getattr(error, "ctx", None)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        print(error.format_message(), file=sys.stderr)  # the help of a group, which has many lines
        return 2
    command = ctx.command_path if ctx is not None else "flameslice"
    if ctx is None or ctx.parent is None:  # the parser says no more than the option
        command += "".join(f" {word}" for word in arguments[:1] if word in COMMANDS)
    _say(f"{error.format_message()} (see {command} --help)")
    return 2


def _say(line: str) -> None:
    print(one_line(line, 2000), file=sys.stderr)


def _leave_quietly() -> None:
    """Keep the interpreter from complaining about the closed pipe when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
