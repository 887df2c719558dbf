"""`flameslice worker`: moves what is in the log into the store, until it is told to stop."""

from __future__ import annotations

import click

from flameslice.commands.options import verbosity
from flameslice.commands.stores import data_option, log_options


@click.command(short_help="Store what the log holds, as a service.")
@click.option(
    "--group", metavar="NAME", help="Consumer group; default: one per store, so workers share the load."
)
@click.option("--until-empty", is_flag=True, help="End when the log holds nothing more.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Serve Prometheus metrics on this port of 127.0.0.1; 0: do not.",
)
@click.option(
    "--log-format", type=click.Choice(("text", "json")), help="Of what it says; default: text on a terminal."
)
@data_option
@log_options
@verbosity
def worker(
    group: str | None,
    until_empty: bool,
    metrics_port: int,
    log_format: str | None,
    data: str | None,
    log: str | None,
    log_config: str | None,
) -> int:
    """Store what the log holds: reads messages, writes Parquet, each message once however often it is stopped.

    Several workers of one group share the partitions. SIGTERM ends it after what it holds is stored. Spans of its own
    go to OTEL_EXPORTER_OTLP_ENDPOINT where that is set.
    """
    from flameslice import worker_service

    return worker_service.run(
        data=data,
        log_url=log,
        log_config=log_config,
        group=group,
        until_empty=until_empty,
        metrics_port=metrics_port,
        log_format=log_format,
    )
