"""`odradek user`: manage SCRAM users."""

from __future__ import annotations

import sys

import click

from tools.client.cluster import Cluster
from tools.client.errors import ToolError
from tools.client.users import MECHANISMS, add_user, list_users, remove_user
from tools.commands.common import (
    HELP_NAMES,
    CommandGroup,
    as_json,
    on_a_cluster,
    say_done,
    say_json,
    say_table,
)

_mechanisms = click.option(
    "-m",
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(list(MECHANISMS)),
    help="Only this mechanism.  [default: both]",
)


@click.group(cls=CommandGroup, context_settings=HELP_NAMES)
def user() -> None:
    """List, add and remove users who log in by SCRAM."""


@user.command("list")
@as_json
@on_a_cluster
def list_(cluster: Cluster, as_json: bool) -> None:
    """List the users with their mechanisms. Users of PLAIN are in the broker's settings, and are not listed."""
    found = list_users(cluster)
    if as_json:
        say_json([{"user": name, "mechanisms": mechanisms} for name, mechanisms in found.items()])
        return
    rows = [
        (name, mechanism, iterations)
        for name, mechanisms in found.items()
        for mechanism, iterations in mechanisms.items()
    ]
    say_table(("USER", "MECHANISM", "ITERATIONS"), rows)


@user.command()
@click.argument("name", metavar="USER")
@click.option("--password", help="Password.  [default: the first line of standard input]")
@_mechanisms
@click.option("--iterations", default=4096, show_default=True, help="Iterations of the hash.")
@as_json
@on_a_cluster
def add(
    cluster: Cluster,
    name: str,
    password: str | None,
    mechanisms: tuple[str, ...],
    iterations: int,
    as_json: bool,
) -> None:
    """Add a user, or change the password (AlterUserScramCredentials).

    \b
    odradek user add alice --password secret
    echo secret | odradek user add alice --mechanism SCRAM-SHA-512
    """
    if password is None:
        password = (
            click.prompt("Password", hide_input=True, err=True)
            if sys.stdin.isatty()
            else sys.stdin.readline().rstrip("\r\n")
        )
    if not password:
        raise click.UsageError("the password is empty")
    chosen = list(mechanisms or MECHANISMS)
    for mechanism in chosen:
        add_user(cluster, name, password, mechanism, iterations)
    say_done(
        as_json,
        {"user": name, "mechanisms": chosen},
        f"user {name} has a password for {' and '.join(chosen)}",
    )


@user.command()
@click.argument("name", metavar="USER")
@_mechanisms
@as_json
@on_a_cluster
def remove(cluster: Cluster, name: str, mechanisms: tuple[str, ...], as_json: bool) -> None:
    """Remove a user, or the password of one mechanism.

    \b
    odradek user remove alice
    """
    known = list_users(cluster, name).get(name)
    if not known:
        raise ToolError(f"there is no user {name}")
    chosen = list(mechanisms or known)
    for mechanism in chosen:
        remove_user(cluster, name, mechanism)
    say_done(
        as_json,
        {"user": name, "mechanisms": chosen},
        f"user {name} no longer has a password for {' and '.join(chosen)}",
    )
