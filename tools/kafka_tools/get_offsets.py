"""The tool `kafka-get-offsets.sh`."""

from __future__ import annotations

import re
from typing import Final

import click

from tools.client.cluster import Cluster
from tools.client.errors import ToolError
from tools.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, list_offset
from tools.kafka_tools.common import HELP, kafka_command

TIMES: Final = {"latest": LATEST, "earliest": EARLIEST, "max-timestamp": MAX_TIMESTAMP}
_RANGE: Final = re.compile(r"(\d*)(-?)(\d*)")


@click.command(context_settings=HELP)
@click.option("--topic", metavar="REGEX", help="Topics whose whole name matches.  [default: all]")
@click.option("--partitions", metavar="ID,...", help="Partitions of each topic.  [default: all]")
@click.option("--topic-partitions", metavar="REGEX:FROM-TO,...", help="Topics, each with its partitions.")
@click.option(
    "--time", "time_text", default="latest", metavar="TIME", help="latest, earliest, max-timestamp or ms."
)
@click.option("--exclude-internal-topics", is_flag=True)
@kafka_command
def command(
    cluster: Cluster,
    topic: str | None,
    partitions: str | None,
    topic_partitions: str | None,
    time_text: str,
    exclude_internal_topics: bool,
) -> None:
    """Print the offsets of partitions as TOPIC:PARTITION:OFFSET."""
    if topic_partitions is not None and (topic or partitions):
        raise click.UsageError("--topic-partitions cannot be used with --topic or --partitions")
    wanted = topic_partitions or ",".join(f"{topic or '.*'}:{each}" for each in (partitions or "").split(","))
    rules = [_rule(each) for each in wanted.split(",")]
    when = _time(time_text)
    found = sorted(
        (str(each.name), partition.partition_index)
        for each in cluster.refresh(None)
        if not (each.is_internal and exclude_internal_topics)
        for partition in each.partitions
        if any(_fits(rule, str(each.name), partition.partition_index) for rule in rules)
    )
    if not found:
        raise ToolError("Could not match any topic-partitions with the specified filters")
    for name, partition in found:
        offset = list_offset(cluster, name, partition, when)
        if offset >= 0:  # -1: no record has this timestamp or a later one
            click.echo(f"{name}:{partition}:{offset}")


def _rule(text: str) -> tuple[re.Pattern[str], range | None]:
    """Parse `orders`, `orders:3`, `orders:1-` or `orders:1-4` (partitions 1 to 3: the upper bound is exclusive)."""
    name, _, partitions = text.partition(":")
    match = _RANGE.fullmatch(partitions)
    if match is None:
        raise click.UsageError(f"Invalid topic-partition: {text!r}")
    first, dash, end = match.groups()
    if not partitions:
        return re.compile(name or ".*"), None
    begin = int(first or 0)
    return re.compile(name or ".*"), range(begin, int(end) if end else 1 << 31 if dash else begin + 1)


def _fits(rule: tuple[re.Pattern[str], range | None], topic: str, partition: int) -> bool:
    name, partitions = rule
    return name.fullmatch(topic) is not None and (partitions is None or partition in partitions)


def _time(text: str) -> int:
    try:
        return TIMES[text] if text in TIMES else int(text)
    except ValueError:
        raise click.UsageError(f"Malformed time argument {text}") from None
