"""`odradek node`: the nodes of the cluster."""

from __future__ import annotations

import click

from odradek.commands.common import HELP_NAMES, Remote, as_json, places, say_json, say_table, speaking


@click.group(context_settings=HELP_NAMES)
def node() -> None:
    """Show the nodes of the cluster; kill, stop and start them."""


@node.command("list")
@as_json
@speaking
def list_(remote: Remote, as_json: bool) -> None:
    """List the nodes, with the partitions that each of them leads."""
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
    """Kill a node: its connections are reset, its memory is gone, nothing is written."""
    remote.nodes[node_id].kill()
    click.echo(f"node {node_id} is killed: odradek node start {node_id} brings it back")


@node.command()
@click.argument("node_id", type=int, metavar="ID")
@speaking
def stop(remote: Remote, node_id: int) -> None:
    """Stop a node of its own will: it hands over what it leads, and goes."""
    remote.nodes[node_id].stop()
    click.echo(f"node {node_id} is stopped: odradek node start {node_id} brings it back")


@node.command()
@click.argument("node_id", type=int, metavar="ID")
@speaking
def start(remote: Remote, node_id: int) -> None:
    """Start a node that was stopped or killed: it recovers from its files."""
    remote.nodes[node_id].start()
    click.echo(f"node {node_id} is running")
