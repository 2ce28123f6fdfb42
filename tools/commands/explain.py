"""`odradek explain`: why readers stop, why a group lags, why a transaction was refused."""

from __future__ import annotations

import click

from tools.client.cluster import Cluster
from tools.client.errors import ToolError
from tools.commands.common import HELP_NAMES, as_json, on_a_cluster, partition_name, say, say_json
from tools.commands.consume import wanted_partitions
from tools.explain.groups import explain_group
from tools.explain.ids import explain_id
from tools.explain.partitions import explain_partition


@click.command(context_settings=HELP_NAMES)
@click.argument("where", metavar="[TOPIC[/PARTITION]]", required=False)
@click.option("-g", "--group", help="Why this group lags.")
@click.option(
    "-i",
    "--id",
    "transactional_id",
    metavar="ID",
    help="What became of this transactional id's transactions.",
)
@as_json
@on_a_cluster
def explain(
    cluster: Cluster, where: str | None, group: str | None, transactional_id: str | None, as_json: bool
) -> None:
    """Explain where readers of a partition stop, why a group lags, what a transactional id waits for.

    It asks the cluster by Kafka's protocol, and reads its logs. Refused batches and requests are in the trace of an Odradek
    broker, if ODRADEK_CONTROL names it.

    \b
    odradek explain orders
    odradek explain orders/0
    odradek explain --group readers
    odradek explain --id etl-1
    """
    if sum(each is not None for each in (where, group, transactional_id)) != 1:
        raise click.UsageError("give a TOPIC or TOPIC/PARTITION, a --group or an --id")
    if where is not None:
        sentences = _explain_topic(cluster, where)
    elif group is not None:
        sentences = explain_group(cluster, group)
    else:
        assert transactional_id is not None
        sentences = explain_id(cluster, transactional_id)
    if as_json:
        say_json(sentences)
    else:
        for sentence in sentences:
            say(sentence)


def _explain_topic(cluster: Cluster, where: str) -> list[str]:
    """Of ``orders/2`` or ``orders-2`` one partition, of ``orders`` all of them."""
    try:
        partitions = wanted_partitions(cluster, [where])
    except ToolError:
        # There is no topic of this name; a partition has one that looks like it.
        if not where.rpartition("-")[2].isdecimal():
            raise
        partitions = [partition_name(where)]
    return [sentence for topic, index in partitions for sentence in explain_partition(cluster, topic, index)]
