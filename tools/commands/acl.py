"""`odradek acl`: manage ACLs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from itertools import product
from typing import Any, Final, TypeVar

import click

from tools.client.acls import ANY, CLUSTER_NAME, OPERATIONS, Acl, add_acls, list_acls, remove_acls
from tools.client.cluster import Cluster
from tools.commands.common import (
    HELP_NAMES,
    CommandGroup,
    as_json,
    on_a_cluster,
    say,
    say_json,
    say_table,
)

_F = TypeVar("_F", bound=Callable[..., Any])
_RESOURCES: Final = {"topics": "TOPIC", "groups": "GROUP", "transactional_ids": "TRANSACTIONAL_ID"}


@click.group(cls=CommandGroup, context_settings=HELP_NAMES)
def acl() -> None:
    """List, add and remove ACLs, of a cluster with an authorizer."""


def _resources(function: _F) -> _F:
    for option in (
        click.option("--cluster", "on_cluster", is_flag=True, help="The cluster resource."),
        click.option("--transactional-id", "transactional_ids", multiple=True, metavar="ID"),
        click.option("--group", "groups", multiple=True, metavar="GROUP"),
        click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="A topic; * is every topic."),
        click.option("--prefixed", is_flag=True, help="Names of resources are prefixes."),
        click.option("--host", metavar="ADDRESS", help="Only connections from this address."),
        click.option(
            "-o",
            "--operation",
            "operations",
            multiple=True,
            type=click.Choice(OPERATIONS[2:], case_sensitive=False),
            metavar="NAME",
            help="READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, ALL, ...",
        ),
    ):
        function = option(function)
    return function


def _filters(
    principals: tuple[str, ...],
    permission: str,
    operations: tuple[str, ...],
    host: str | None,
    prefixed: bool,
    on_cluster: bool,
    **names: tuple[str, ...],
) -> list[Acl]:
    """One filter per principal, operation and resource. An option that is not set matches everything."""
    resources: list[tuple[str, str | None]] = [
        (resource, name) for option, resource in _RESOURCES.items() for name in names[option]
    ]
    if on_cluster:
        resources.append(("CLUSTER", CLUSTER_NAME))
    pattern = "PREFIXED" if prefixed else "LITERAL" if resources else ANY
    return [
        Acl(
            resource,
            name,
            "LITERAL" if resource == "CLUSTER" else pattern,
            principal,
            permission,
            operation,
            host,
        )
        for principal, operation, (resource, name) in product(
            map(_principal, principals) if principals else [None],
            operations or [ANY],
            resources or [(ANY, None)],
        )
    ]


def _principal(text: str) -> str:
    """Expand ``alice`` to ``User:alice``."""
    return text if ":" in text else f"User:{text}"


@acl.command("list")
@click.argument("principals", nargs=-1, metavar="[PRINCIPAL]...")
@_resources
@as_json
@on_a_cluster
def list_(cluster: Cluster, principals: tuple[str, ...], as_json: bool, **wanted: Any) -> None:
    """List the ACLs, all of them or those of principals and resources.

    \b
    odradek acl list
    odradek acl list alice --topic orders
    """
    _say(list_acls(cluster, _filters(principals, ANY, **wanted)), as_json)


@acl.command()
@click.argument("principals", nargs=-1, required=True, metavar="PRINCIPAL...")
@_resources
@click.option("--deny", is_flag=True, help="Deny instead of allow; a denial has precedence.")
@as_json
@on_a_cluster
def add(cluster: Cluster, principals: tuple[str, ...], deny: bool, as_json: bool, **wanted: Any) -> None:
    """Allow or deny principals operations on resources. alice means User:alice, and * all users.

    \b
    odradek acl add alice --operation READ --topic orders --group readers
    odradek acl add alice -o WRITE --transactional-id etl- --prefixed
    """
    added = _filters(principals, "DENY" if deny else "ALLOW", **{**wanted, "host": wanted["host"] or "*"})
    if any(ANY in (each.operation, each.resource) for each in added):
        raise click.UsageError("give an --operation, and a --topic, --group, --transactional-id or --cluster")
    add_acls(cluster, added)
    _say(added, as_json)


@acl.command()
@click.argument("principals", nargs=-1, metavar="[PRINCIPAL]...")
@_resources
@click.option("--dry-run", is_flag=True, help="Show the ACLs without removing them.")
@as_json
@on_a_cluster
def remove(
    cluster: Cluster, principals: tuple[str, ...], dry_run: bool, as_json: bool, **wanted: Any
) -> None:
    """Remove the ACLs of principals and resources, and show them.

    \b
    odradek acl remove alice --dry-run
    odradek acl remove alice --topic orders --operation READ
    """
    if not principals and not any(wanted.values()):
        raise click.UsageError("give a principal, an operation or a resource")
    filters = _filters(principals, ANY, **wanted)
    _say(list_acls(cluster, filters) if dry_run else remove_acls(cluster, filters), as_json)


def _say(acls: list[Acl], as_json: bool) -> None:
    if as_json:
        say_json([asdict(each) for each in acls])
    elif acls:
        rows = [
            (
                each.resource,
                each.name,
                each.pattern,
                each.principal,
                each.permission,
                each.operation,
                each.host,
            )
            for each in acls
        ]
        say_table(("RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "PERMISSION", "OPERATION", "HOST"), rows)
    else:
        say("no ACL matches")
