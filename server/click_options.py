"""The options of `odradek serve` for click: for --help, and for what `server.options` cannot parse without click."""

from __future__ import annotations

from pathlib import Path

import click

from broker.config import DEFAULT_HOST, DEFAULT_PORT
from broker.config.definitions import PREVIEWS
from broker.security.command_line import options as security_options
from lab.control_options import LOG_FORMATS, LOG_LEVELS, PORT_MAX


def options() -> list[click.Parameter]:
    return [
        click.Option(["--host"], help=f"Address to listen on.  [default: {DEFAULT_HOST}]"),
        click.Option(
            ["--port"],
            type=click.IntRange(0, PORT_MAX),
            help=f"Port to listen on; 0 picks a free one and prints it.  [default: {DEFAULT_PORT}]",
        ),
        click.Option(
            ["--data-dir"],
            type=click.Path(file_okay=False, path_type=Path),
            help="Directory for the logs.  [default: a temporary directory, removed at the end]",
        ),
        click.Option(
            ["--config"],
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="A server.properties file.",
        ),
        click.Option(
            ["--set", "assignments"],
            multiple=True,
            metavar="KEY=VALUE",
            help="Set one of Kafka's broker settings, or one of ours (odradek.*).",
        ),
        click.Option(
            ["--default", "defaults"],
            multiple=True,
            metavar="KEY=VALUE",
            help="A setting that any file, variable or option overrides. The host in listeners=... becomes the default of "
            "--host and --control-host.",
        ),
        *_topic_options(),
        click.Option(
            ["--seed"],
            metavar="FILE",
            help="Write the records of a file into a new data directory: lines of JSON, in the format of `odradek seed`. "
            "ODRADEK_SEED does the same.",
        ),
        click.Option(
            ["--nodes"],
            type=click.IntRange(1),
            default=1,
            show_default=True,
            help="Number of nodes in the cluster.",
        ),
        click.Option(
            ["--control-port"],
            type=click.IntRange(0, PORT_MAX),
            help="Open a control port for faults, clock and trace; 0 picks a free one and prints it. "
            "The variable ODRADEK_CONTROL_PORT sets it too.",
        ),
        click.Option(
            ["--control-host"],
            help="Address of the control port; any address but loopback requires ODRADEK_CONTROL_TOKEN.  "
            f"[default: {DEFAULT_HOST}]",
        ),
        *security_options(),
        click.Option(
            ["--ends-with-stdin"],
            is_flag=True,
            help="Stop when standard input ends: the broker never outlives the program that started it.",
        ),
        *_log_options(),
    ]


def _topic_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--topic", "topics"],
            multiple=True,
            metavar="NAME[:PARTITIONS[:key=value,...]]",
            help="Create a topic at start, unless it exists; by default with num.partitions. ODRADEK_TOPICS does the same.",
        ),
        click.Option(
            ["--feature", "features"],
            multiple=True,
            metavar="NAME=LEVEL",
            help="Finalize a feature at a level, as kafka-storage format does: transaction.version=1, group.version=0, "
            "eligible.leader.replicas.version=0.",
        ),
        click.Option(
            ["--preview", "previews"],
            type=click.Choice(tuple(PREVIEWS)),
            multiple=True,
            help="Apply a change of a later release of Kafka (odradek.preview in docs/configuration.md).",
        ),
    ]


def _log_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--log-format"],
            type=click.Choice(LOG_FORMATS),
            help="Format of the broker's own log.  [default: auto]",
        ),
        click.Option(
            ["--log-level"],
            type=click.Choice(LOG_LEVELS),
            help="Lowest level that the broker logs.  [default: info]",
        ),
    ]
