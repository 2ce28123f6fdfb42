"""Helpers shared by the commands: finding the cluster, exit codes, colours, values as text."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from odradek.commands.common import (
    HELP_NAMES,
    UNREACHABLE,
    as_json,
    leave_quietly,
    say,
    say_done,
    say_json,
    say_table,
)
from odradek.commands.groups import CommandGroup
from odradek.commands.waiting import telling_waits
from odradek.errors import BadClientSettings, OdradekError
from odradek.health import local_bootstrap
from odradek.printable import printable
from odradek.remote import CONTROL_VARIABLE, connect
from tools.client.cluster import Cluster
from tools.client.errors import BadAddress, ToolError, Unreachable
from tools.client.names import near_name

if TYPE_CHECKING:
    from odradek.client_security import ClientSecurity

__all__ = [
    "HELP_NAMES",
    "CommandGroup",
    "as_json",
    "end_without",
    "find_bootstrap",
    "on_a_cluster",
    "pairs",
    "partition_name",
    "reporting",
    "say",
    "say_done",
    "say_json",
    "say_table",
    "security_of",
    "settings",
]

BOOTSTRAP_VARIABLE: Final = "KAFKA_BOOTSTRAP_SERVERS"
_F = TypeVar("_F", bound=Callable[..., Any])


class _NoBroker(click.ClickException):
    exit_code = UNREACHABLE


def find_bootstrap(given: str | None) -> str:
    """Bootstrap servers: ``given``, or the environment variable, or the control port's broker, or the default."""
    given = given or os.environ.get(BOOTSTRAP_VARIABLE)
    if given:
        return given
    if os.environ.get(CONTROL_VARIABLE):
        try:
            return connect().bootstrap_servers
        except OdradekError as error:
            raise _NoBroker(str(error)) from None
    return local_bootstrap(os.environ)


def reporting(function: _F) -> _F:
    """Decorator: turn client errors into messages with exit code 1, 2 (invalid address) or 3 (no broker responds)."""

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            with telling_waits():
                return function(*arguments, **options)
        except (BadAddress, BadClientSettings) as error:
            raise click.UsageError(str(error)) from None
        except Unreachable as error:
            raise _NoBroker(f"{error}{_advice(options)}") from None
        except ToolError as error:
            raise click.ClickException(str(error)) from None
        except BrokenPipeError:
            leave_quietly()

    return call  # type: ignore[return-value]


def _advice(options: Mapping[str, object]) -> str:
    """A hint for a user who gave no broker address."""
    if (
        "bootstrap" not in options
        or options["bootstrap"]
        or any(map(os.environ.get, (BOOTSTRAP_VARIABLE, CONTROL_VARIABLE)))
    ):
        return ""
    return f" (`odradek serve` starts a broker; set another address with --bootstrap or {BOOTSTRAP_VARIABLE})"


def on_a_cluster(function: _F) -> _F:
    """Decorator for a command that works with any Kafka: adds --bootstrap, and passes a ``Cluster`` first."""

    @click.option(
        "-b",
        "--bootstrap",
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        help=f"Bootstrap servers of any Kafka.  [default: the environment variable {BOOTSTRAP_VARIABLE}, else those of the "
        f"broker of {CONTROL_VARIABLE}, else localhost:9092]",
    )
    @click.option(
        "--command-config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A properties file for the client, as for Kafka's tools: security.protocol, ssl.*, sasl.*.",
    )
    @wraps(function)
    @reporting
    def call(bootstrap: str | None, command_config: Path | None, **options: Any) -> Any:
        with Cluster(find_bootstrap(bootstrap), security_of(command_config)) as cluster:
            try:
                return function(cluster, **options)
            except ToolError as error:
                if hint := near_name(cluster, error):
                    error.args = (str(error).rstrip(".") + hint,)
                raise

    return call  # type: ignore[return-value]


def end_without(missing: Sequence[str]) -> None:
    """Print the sentences ``missing`` on stderr, and exit with code 1. Do nothing if there are none."""
    for sentence in missing:
        click.echo(printable(sentence), err=True)
    if missing:
        raise SystemExit(1)


def security_of(properties_file: Path | None, more: Mapping[str, str] | None = None) -> ClientSecurity | None:
    """The security of a client with these properties; ``more`` are properties from the command line."""
    if properties_file is None and not more:
        return None
    from odradek.client_security import client_security, properties_of

    of_file = properties_of(properties_file) if properties_file is not None else {}
    return client_security({**of_file, **(more or {})})


def settings(texts: Iterable[str]) -> dict[str, str]:
    """Parse ``["cleanup.policy=compact"]`` into a mapping. Raises ``click.UsageError`` for a text without ``=``."""
    return dict(pairs(texts))


def pairs(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Parse ``["name=value"]`` into pairs. Several pairs may have the same name."""
    found = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{text}: expected NAME=VALUE")
        found.append((name, value))
    return found


def partition_name(text: str) -> tuple[str, int]:
    """Parse ``orders/2`` or ``orders-2`` into topic and partition."""
    match = re.fullmatch(r"(.+)[/-]([0-9]+)", text)
    if match is None:
        raise click.UsageError(f"{text}: expected TOPIC/PARTITION")
    return match[1], int(match[2])
