"""`odradek topic`: manage topics and their settings."""

from __future__ import annotations

from typing import Any, Final

import click

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.metadata import MetadataResponseTopic
from tools.client.cluster import Cluster
from tools.client.configs import TOPIC, describe_configs
from tools.client.errors import check
from tools.client.offsets import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    delete_records,
    list_offset,
)
from tools.commands.common import (
    HELP_NAMES,
    CommandGroup,
    as_json,
    on_a_cluster,
    say,
    say_done,
    say_json,
    say_table,
    settings,
)
from tools.commands.configs import config_command
from tools.commands.consume import checked_offset, wanted_partitions

TIMEOUT_MS: Final = 30_000


@click.group(cls=CommandGroup, context_settings=HELP_NAMES)
def topic() -> None:
    """List, create, describe, trim and delete topics; show and set their settings."""


@topic.command("list")
@click.option("--internal", is_flag=True, help="Include internal topics, such as __consumer_offsets.")
@as_json
@on_a_cluster
def list_(cluster: Cluster, internal: bool, as_json: bool) -> None:
    """List the topics with their partitions and replicas."""
    found = sorted(cluster.refresh(None), key=lambda each: each.name or "")
    shown = [each for each in found if internal or not each.is_internal]
    if as_json:
        say_json([_listed(each) for each in shown])
        return
    rows = [(each.name, len(each.partitions), _replication_factor(each)) for each in shown]
    say_table(("TOPIC", "PARTITIONS", "REPLICAS"), rows)


def _listed(topic: MetadataResponseTopic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": str(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replication_factor": _replication_factor(topic),
    }


def _replication_factor(topic: MetadataResponseTopic) -> int:
    return max((len(each.replica_nodes) for each in topic.partitions), default=0)


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME[:PARTITIONS[:REPLICAS]]...")
@click.option(
    "-p", "--partitions", type=int, default=-1, help="Number of partitions.  [default: num.partitions]"
)
@click.option(
    "-r",
    "--replicas",
    type=int,
    default=-1,
    help="Replication factor.  [default: default.replication.factor]",
)
@click.option(
    "-c", "--config", "configs", multiple=True, metavar="NAME=VALUE", help="A setting of the topic."
)
@click.option("--if-not-exists", is_flag=True, help="Ignore topics that already exist.")
@as_json
@on_a_cluster
def create(
    cluster: Cluster,
    names: tuple[str, ...],
    partitions: int,
    replicas: int,
    configs: tuple[str, ...],
    if_not_exists: bool,
    as_json: bool,
) -> None:
    """Create topics.

    \b
    odradek topic create orders:4 payments
    odradek topic create audit:1:3 -c cleanup.policy=compact
    """
    topics = [_creatable(name, partitions, replicas, settings(configs)) for name in names]
    created = create_topics(cluster, topics, if_not_exists=if_not_exists)
    say_done(as_json, {"created": created}, "\n".join(f"topic {name} is created" for name in created))


def create_topics(cluster: Cluster, topics: list[CreatableTopic], *, if_not_exists: bool) -> list[str]:
    """Create topics. Returns the names of those that did not exist. Raises ``KafkaError`` for the first that fails."""
    request = CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS)
    response = cluster.ask_controller("create_topics", request)
    created, failures = [], []
    for each in response.topics:
        if each.error_code == 0:
            created.append(each.name)
        elif not (if_not_exists and each.error_code == ErrorCode.topic_already_exists):
            failures.append(each)
    for each in failures:
        check(each.error_code, f"topic {each.name}", each.error_message)
    return created


def _creatable(text: str, partitions: int, replicas: int, configs: dict[str, str]) -> CreatableTopic:
    name, *numbers = text.split(":")
    if len(numbers) > 2 or not all(number.isdecimal() for number in numbers):
        raise click.UsageError(f"{text}: expected NAME[:PARTITIONS[:REPLICAS]]")
    return CreatableTopic(
        name=name,
        num_partitions=int(numbers[0]) if numbers else partitions,
        replication_factor=int(numbers[1]) if len(numbers) > 1 else replicas,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@as_json
@on_a_cluster
def describe(cluster: Cluster, names: tuple[str, ...], as_json: bool) -> None:
    """Show the partitions of topics: leader, replicas, ISR, and the log start, last stable and end offsets.

    Consumers with read_committed read up to the last stable offset; `odradek explain` explains what holds it back.
    """
    found = [_described(cluster, name) for name in names]
    if as_json:
        say_json(found)
        return
    for each in found:
        configs = " ".join(f"{name}={value}" for name, value in each["configs"].items())
        say(f"{each['topic']}  id {each['topic_id']}  {configs}".rstrip())
        say_table(
            ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "START", "STABLE", "END"),
            [
                (
                    at["partition"],
                    at["leader"] if at["leader"] >= 0 else "none",
                    at["leader_epoch"],
                    _list(at["replicas"]),
                    _list(at["isr"]),
                    at["log_start_offset"],
                    at["last_stable_offset"],
                    at["end_offset"],
                )
                for at in each["partitions"]
            ],
        )


def _list(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def _described(cluster: Cluster, name: str) -> dict[str, Any]:
    found = cluster.topic(name)
    partitions = []
    for each in sorted(found.partitions, key=lambda each: each.partition_index):
        index, leads = each.partition_index, each.leader_id >= 0
        partitions.append(
            {
                "partition": index,
                "leader": each.leader_id,
                "leader_epoch": each.leader_epoch,
                "replicas": list(each.replica_nodes),
                "isr": list(each.isr_nodes),
                "log_start_offset": list_offset(cluster, name, index, EARLIEST) if leads else None,
                "last_stable_offset": list_offset(cluster, name, index, LATEST, READ_COMMITTED)
                if leads
                else None,
                "end_offset": list_offset(cluster, name, index, LATEST) if leads else None,
            }
        )
    configs = {each.name: each.value for each in describe_configs(cluster, TOPIC, name) if each.is_dynamic}
    return {**_listed(found), "partitions": partitions, "configs": configs}


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--if-exists", is_flag=True, help="Ignore topics that do not exist.")
@as_json
@on_a_cluster
def delete(cluster: Cluster, names: tuple[str, ...], if_exists: bool, as_json: bool) -> None:
    """Delete topics with all their records."""
    deleted = delete_topics(cluster, names, if_exists=if_exists)
    say_done(as_json, {"deleted": deleted}, "\n".join(f"topic {name} is deleted" for name in deleted))


def delete_topics(cluster: Cluster, names: tuple[str, ...], *, if_exists: bool) -> list[str]:
    """Delete topics. Returns the names of those that existed."""
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in names], topic_names=names, timeout_ms=TIMEOUT_MS
    )
    response = cluster.ask_controller("delete_topics", request)
    deleted = []
    for each in response.responses:
        if if_exists and each.error_code == ErrorCode.unknown_topic_or_partition:
            continue
        message = getattr(each, "error_message", None)
        check(each.error_code, f"topic {each.name}", message, named=("topic", each.name))
        deleted.append(each.name)
    return deleted


topic.add_command(config_command("topic", TOPIC))


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC[/PARTITION]...")
@click.option(
    "--before",
    required=True,
    metavar="WHERE",
    help="The first offset to keep: end, an offset, -5 for the last five, @TIME (ISO 8601, or ms since 1970).",
)
@click.option("--dry-run", is_flag=True, help="Show the offsets without deleting records.")
@as_json
@on_a_cluster
def trim(cluster: Cluster, names: tuple[str, ...], before: str, dry_run: bool, as_json: bool) -> None:
    """Delete the records at the beginning of partitions, permanently (DeleteRecords).

    \b
    odradek topic trim orders --before @2026-11-23T12:00:00Z --dry-run
    odradek topic trim orders/0 --before 1200
    """
    # All offsets are checked before the first partition is trimmed.
    trimmed = [_trimmed(cluster, topic, index, before) for topic, index in wanted_partitions(cluster, names)]
    if not dry_run:
        for each in trimmed:
            if each["deleted_offsets"]:
                delete_records(cluster, each["topic"], each["partition"], each["log_start_offset_after"])
    if as_json:
        say_json(trimmed)
        return
    rows = [
        (
            f"{each['topic']}-{each['partition']}",
            each["log_start_offset"],
            each["log_start_offset_after"],
            each["end_offset"],
            each["deleted_offsets"],
        )
        for each in trimmed
    ]
    say_table(("PARTITION", "START", "NEW START", "END", "OFFSETS DELETED"), rows)


def _trimmed(cluster: Cluster, topic: str, partition: int, before: str) -> dict[str, Any]:
    start = list_offset(cluster, topic, partition, EARLIEST)
    after = checked_offset(cluster, topic, partition, before, READ_UNCOMMITTED, "--before")
    return {
        "topic": topic,
        "partition": partition,
        "log_start_offset": start,
        "log_start_offset_after": after,
        "end_offset": list_offset(cluster, topic, partition, LATEST),
        "deleted_offsets": after - start,
    }
