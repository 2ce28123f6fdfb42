"""The tool `kafka-broker-api-versions.sh`."""

from __future__ import annotations

import click

from protocol.messages.index import APIS
from tools.client.cluster import Cluster
from tools.kafka_tools.common import HELP, kafka_command


@click.command(context_settings=HELP)
@kafka_command
def command(cluster: Cluster) -> None:
    """Print the APIs and versions that each broker supports."""
    cluster.refresh()
    for node_id, (host, port) in sorted(cluster.nodes.items()):
        versions = sorted(cluster.node(node_id).versions.items())
        lines = [_line(key, low, high) for key, (low, high) in versions]
        click.echo(
            f"{host}:{port} (id: {node_id} rack: null isFenced: false) -> (\n" + ",\n".join(lines) + "\n)"
        )


def _line(key: int, low: int, high: int) -> str:
    if key not in APIS:
        return f"\tUNKNOWN({key}): {low} to {high} [unusable: node too new]"
    name, first, last, _ = APIS[key]
    title = "".join(word.capitalize() for word in name.split("_"))
    span = str(low) if low == high else f"{low} to {high}"
    usable = min(high, last)
    told = f"usable: {usable}" if usable >= max(low, first) else "unusable: node too old"
    return f"\t{title}({key}): {span} [{told}]"
