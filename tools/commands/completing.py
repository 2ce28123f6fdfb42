"""Completion by Tab with names from any Kafka cluster."""

from __future__ import annotations

import os
from contextlib import suppress

import click

from odradek.commands.completing import LOOK_S, from_control_port, places
from odradek.errors import OdradekError
from odradek.health import local_bootstrap
from odradek.remote import CONTROL_VARIABLE, connect
from tools.client.cluster import Cluster
from tools.client.errors import ToolError
from tools.client.names import names_of
from tools.commands.common import BOOTSTRAP_VARIABLE, security_of


def from_cluster(ctx: click.Context, kind: str) -> list[str]:
    """The names of a kind in the cluster that the command would use; empty if it does not respond within a short time."""
    if "bootstrap" not in ctx.params:
        return from_control_port(ctx, kind)  # `txn timeline`
    with suppress(ToolError, OdradekError, OSError):
        security = security_of(ctx.params.get("command_config"))
        with Cluster(_bootstrap(ctx.params["bootstrap"]), security, LOOK_S) as cluster:
            return _names(cluster, kind)
    return []


def _names(cluster: Cluster, kind: str) -> list[str]:
    if kind == "group":
        return names_of(cluster, "group")
    if kind == "id":
        return names_of(cluster, "transactional id")
    found = [each for each in cluster.refresh(None) if each.name and not each.is_internal]
    if kind == "topic":
        return [each.name or "" for each in found]
    if kind == "place":
        return places((each.name or "", len(each.partitions)) for each in found)
    return [str(each) for each in cluster.nodes] if kind == "node" else []


def _bootstrap(given: str | None) -> str:
    """Find the address as the command does, but with a shorter timeout."""
    given = given or os.environ.get(BOOTSTRAP_VARIABLE)
    if given:
        return given
    if os.environ.get(CONTROL_VARIABLE):
        return str(connect().client.get("/v1/cluster", timeout_s=LOOK_S)["bootstrap_servers"])
    return local_bootstrap(os.environ)
