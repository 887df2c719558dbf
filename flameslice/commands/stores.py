"""Options of the commands that use the store and the log."""

from __future__ import annotations

from typing import Any

import click

from flameslice.commands.options import Command


def data_option(command: Command) -> Command:
    """Add --data."""
    return click.option(
        "--data",
        metavar="DIR",
        help="Where captures are kept: a directory or s3://bucket/prefix; default: FLAMESLICE_DATA, else flameslice in "
        "the XDG data home.",
    )(command)


def log_options(command: Command) -> Command:
    """Add --log and --log-config."""
    add: Any = command
    for option in (
        click.option(
            "--log-config", metavar="FILE", help="Settings of the Kafka clients and topics, as TOML."
        ),
        click.option(
            "--log",
            metavar="URL",
            help="sqlite:PATH or kafka://host:9092; default: the embedded log beside the store.",
        ),
    ):
        add = option(add)
    return add  # type: ignore[no-any-return]
