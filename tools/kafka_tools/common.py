"""What these tools share: the option that names the cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from tools.client.cluster import Cluster
from tools.commands.common import reporting

HELP: Final = {"help_option_names": ["--help", "-h"]}
_F = TypeVar("_F", bound=Callable[..., Any])
_SECURED: Final = ("security.protocol", "sasl.", "ssl.")


def kafka_command(function: _F) -> _F:
    """A tool with --bootstrap-server and --command-config; its first argument is a ``Cluster``."""

    @click.option(
        "--bootstrap-server", "--broker-list", "bootstrap", required=True, metavar="HOST:PORT[,...]"
    )
    @click.option(
        "--command-config",
        "--consumer.config",
        "--producer.config",
        "config_file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A properties file for the client. Settings that secure the connection are refused.",
    )
    @wraps(function)
    @reporting
    def call(bootstrap: str, config_file: Path | None, **options: Any) -> Any:
        if config_file is not None:
            _refuse_security(config_file)
        with Cluster(bootstrap) as cluster:
            return function(cluster, **options)

    return call  # type: ignore[return-value]


def _refuse_security(path: Path) -> None:
    for line in path.read_text(encoding="latin-1").splitlines():
        name, _, value = line.strip().partition("=")
        if name.startswith(_SECURED) and value.strip() != "PLAINTEXT":
            raise click.UsageError(f"{path}: {name} is not supported: this tool only connects by PLAINTEXT")


def one_of(**actions: bool) -> str:
    """The one action that is given; a usage error for none or several."""
    given = [name for name, is_given in actions.items() if is_given]
    if len(given) != 1:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in actions)
        raise click.UsageError(f"Command must include exactly one action: {names}")
    return given[0]
