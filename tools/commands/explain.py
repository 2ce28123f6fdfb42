"""`odradek explain`: explain problems: why readers stop, a group lags, or a transaction was rejected."""

from __future__ import annotations

from collections.abc import Sequence

import click

from lab.explain.cluster import folded
from lab.explain.explanation import Explanation
from tools.client.cluster import Cluster
from tools.client.errors import ToolError
from tools.commands.common import HELP_NAMES, as_json, on_a_cluster, partition_name, say, say_json
from tools.explain.explaining import Explaining


@click.command(context_settings=HELP_NAMES)
@click.argument("where", metavar="[TOPIC[/PARTITION]]", required=False)
@click.option("-g", "--group", help="Explain why this group lags.")
@click.option(
    "-i",
    "--id",
    "transactional_id",
    metavar="ID",
    help="Explain the state of this transactional id.",
)
@click.option(
    "-o", "--offset", type=click.IntRange(0), help="Explain this record of the partition in the share group."
)
@as_json
@on_a_cluster
def explain(
    cluster: Cluster,
    where: str | None,
    group: str | None,
    transactional_id: str | None,
    offset: int | None,
    as_json: bool,
) -> None:
    """Explain where readers of a partition stop, why a group lags, what a transactional id waits for.

    Without a name: all current problems, the worst first. The first line states the cause, the next what to do. The command
    asks the control port of ODRADEK_CONTROL, which knows rules and rejected requests, otherwise the cluster itself.

    \b
    odradek explain
    odradek explain orders
    odradek explain orders/0
    odradek explain --group readers
    odradek explain --id etl-1
    odradek explain orders/0 --group workers --offset 17
    """
    if offset is not None:
        if where is None or group is None or transactional_id is not None:
            raise click.UsageError("--offset needs a TOPIC/PARTITION and a --group")
        _say_all(Explaining(cluster).record(group, *partition_name(where), offset), None, as_json)
        return
    if sum(each is not None for each in (where, group, transactional_id)) > 1:
        raise click.UsageError("give a TOPIC or TOPIC/PARTITION, a --group or an --id, or none of them")
    explaining = Explaining(cluster)
    if where is not None:
        found = _explain_topic(explaining, where)
    elif group is not None:
        found = explaining.group(group)
    elif transactional_id is not None:
        found = explaining.transactional_id(transactional_id)
    else:
        found = explaining.everything()
    _say_all(found, where, as_json)


def _say_all(found: Sequence[Explanation], where: str | None, as_json: bool) -> None:
    if as_json:
        say_json(
            [{"subject": each.subject, "cause": each.cause.value, "lines": each.lines} for each in found]
        )
    else:
        _say(found, where)


def _explain_topic(explaining: Explaining, where: str) -> list[Explanation]:
    """Explain one partition for ``orders/2`` or ``orders-2``, all partitions for ``orders``."""
    topic, slash, _ = where.rpartition("/")
    if slash:
        return explaining.topic(topic, partition_name(where)[1])
    try:
        return explaining.topic(where, None)
    except ToolError:
        # No topic has this name, so it must be a partition.
        if not where.rpartition("-")[2].isdecimal():
            raise
        return explaining.topic(*partition_name(where))


def _say(found: Sequence[Explanation], topic: str | None) -> None:
    """Print each explanation, all lines but the first indented. Healthy partitions share one line."""
    shown = folded(topic, found) if topic is not None else list(found)
    for number, each in enumerate(shown):
        if number:
            say("")
        first, *more = each.lines
        say(first)
        for line in more:
            say(f"  {line}")
