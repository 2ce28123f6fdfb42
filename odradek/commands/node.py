"""`odradek node`: the nodes of the cluster."""

from __future__ import annotations

import click

from odradek.commands.common import HELP_NAMES, Remote, as_json, places, say_json, say_table, speaking
from odradek.commands.groups import CommandGroup


@click.group(cls=CommandGroup, context_settings=HELP_NAMES)
def node() -> None:
    """List the nodes of the cluster; kill, stop and start them."""


@node.command("list")
@as_json
@speaking
def list_(remote: Remote, as_json: bool) -> None:
    """List the nodes with their states and the partitions that they lead."""
    found = remote.nodes.show()
    if as_json:
        say_json(found)
        return
    rows = [
        (
            each["node_id"],
            each["state"],
            " ".join(listener["advertised"] for listener in each["listeners"]),
            each["connections"],
            places({topic: at for topic, at in each["leads"].items() if not topic.startswith("__")}),
        )
        for each in found
    ]
    say_table(("NODE", "STATE", "ADVERTISED", "CONNECTIONS", "LEADS"), rows)


@node.command()
@click.argument("node_id", type=int, metavar="ID")
@speaking
def kill(remote: Remote, node_id: int) -> None:
    """Kill a node as kill -9 does: it resets its connections and writes nothing more."""
    remote.nodes[node_id].kill()
    click.echo(f"node {node_id} is killed: odradek node start {node_id} starts it again")


@node.command()
@click.argument("node_id", type=int, metavar="ID")
@speaking
def stop(remote: Remote, node_id: int) -> None:
    """Stop a node by a controlled shutdown: other nodes take over its leaderships first."""
    remote.nodes[node_id].stop()
    click.echo(f"node {node_id} is stopped: odradek node start {node_id} starts it again")


@node.command()
@click.argument("node_id", type=int, metavar="ID")
@speaking
def start(remote: Remote, node_id: int) -> None:
    """Start a node that was stopped or killed: it recovers its logs."""
    remote.nodes[node_id].start()
    click.echo(f"node {node_id} is running")
