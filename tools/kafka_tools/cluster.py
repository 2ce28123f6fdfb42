"""The tool `kafka-cluster.sh`."""

from __future__ import annotations

import click

from tools.client.cluster import Cluster
from tools.kafka_tools.common import HELP, kafka_command


@click.group(context_settings=HELP)
def command() -> None:
    """Show the id of the cluster."""


@command.command("cluster-id")
@kafka_command
def cluster_id(cluster: Cluster) -> None:
    """Print the id of the cluster."""
    cluster.refresh()
    click.echo(f"Cluster ID: {cluster.cluster_id}")
