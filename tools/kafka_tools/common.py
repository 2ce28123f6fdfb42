"""Options that Kafka's tools share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from tools.client.cluster import Cluster
from tools.commands.common import reporting, security_of, settings

HELP: Final = {"help_option_names": ["--help", "-h"]}
_F = TypeVar("_F", bound=Callable[..., Any])
_OF_CLIENTS: Final = ("producer_properties", "consumer_properties")


def kafka_command(function: _F) -> _F:
    """Decorator: adds --bootstrap-server and --command-config, and passes a ``Cluster`` first."""

    @click.option(
        "--bootstrap-server", "--broker-list", "bootstrap", required=True, metavar="HOST:PORT[,...]"
    )
    @click.option(
        "--command-config",
        "--consumer.config",
        "--producer.config",
        "config_file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A properties file for the client: security.protocol, ssl.*, sasl.*.",
    )
    @wraps(function)
    @reporting
    def call(bootstrap: str, config_file: Path | None, **options: Any) -> Any:
        with Cluster(bootstrap, security_of(config_file, _properties(options))) as cluster:
            return function(cluster, **options)

    return call  # type: ignore[return-value]


def _properties(options: Mapping[str, Any]) -> dict[str, str]:
    """Client properties from options of the console tools."""
    return settings([each for name in _OF_CLIENTS for each in options.get(name, ())])


def one_of(**actions: bool) -> str:
    """Return the name of the only action that is true. Raises ``click.UsageError`` if none or several are true."""
    given = [name for name, is_given in actions.items() if is_given]
    if len(given) != 1:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in actions)
        raise click.UsageError(f"Command must include exactly one action: {names}")
    return given[0]
