"""The tool `kafka-topics.sh`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from protocol.messages.metadata import MetadataResponsePartition
from tools.client.cluster import Cluster
from tools.client.configs import TOPIC, describe_configs
from tools.client.errors import ToolError, check
from tools.commands.common import settings
from tools.commands.topic import TIMEOUT_MS, create_topics, delete_topics
from tools.kafka_tools.common import HELP, kafka_command, one_of
from tools.text import id_text


@click.command(context_settings=HELP)
@click.option("--list", "list_", is_flag=True, help="List all topics.")
@click.option("--create", is_flag=True, help="Create a topic.")
@click.option("--describe", is_flag=True, help="Describe topics.")
@click.option("--delete", is_flag=True, help="Delete a topic.")
@click.option("--alter", is_flag=True, help="Add partitions to a topic.")
@click.option("--topic", metavar="NAME")
@click.option("--partitions", type=int)
@click.option("--replication-factor", type=int)
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE")
@click.option("--if-not-exists", is_flag=True)
@click.option("--if-exists", is_flag=True)
@click.option("--exclude-internal", is_flag=True)
@kafka_command
def command(
    cluster: Cluster,
    list_: bool,
    create: bool,
    describe: bool,
    delete: bool,
    alter: bool,
    topic: str | None,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    if_exists: bool,
    exclude_internal: bool,
) -> None:
    """Create, delete, describe, or change a topic."""
    action = one_of(list=list_, create=create, describe=describe, delete=delete, alter=alter)
    if action == "list":
        _list(cluster, topic, exclude_internal)
        return
    if topic is None and action != "describe":
        raise click.UsageError(f'Missing required argument "[topic]" for --{action}')
    if action == "create":
        _create(cluster, str(topic), partitions, replication_factor, configs, if_not_exists)
    elif action == "describe":
        _describe(cluster, topic, if_exists, exclude_internal)
    elif action == "delete":
        delete_topics(cluster, (str(topic),), if_exists=if_exists)
    else:
        _add_partitions(cluster, str(topic), partitions, if_exists)


def _names(cluster: Cluster, topic: str | None, exclude_internal: bool) -> list[str]:
    wanted = None if topic is None else topic.split(",")
    found = [each for each in cluster.refresh(None) if not (exclude_internal and each.is_internal)]
    return sorted(each.name or "" for each in found if wanted is None or each.name in wanted)


def _list(cluster: Cluster, topic: str | None, exclude_internal: bool) -> None:
    for name in _names(cluster, topic, exclude_internal):
        click.echo(name)


def _create(
    cluster: Cluster,
    topic: str,
    partitions: int | None,
    replicas: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
) -> None:
    wanted = CreatableTopic(
        name=topic,
        num_partitions=-1 if partitions is None else partitions,
        replication_factor=-1 if replicas is None else replicas,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in settings(configs).items()],
    )
    if create_topics(cluster, [wanted], if_not_exists=if_not_exists):
        click.echo(f"Created topic {topic}.")


def _describe(cluster: Cluster, topic: str | None, if_exists: bool, exclude_internal: bool) -> None:
    names = _names(cluster, topic, exclude_internal)
    if topic is not None and not names and not if_exists:
        raise ToolError(f"Topic '{topic}' does not exist as expected")
    for name in names:
        found = cluster.topic(name)
        configs = ",".join(
            f"{each.name}={each.value}"
            for each in describe_configs(cluster, TOPIC, name)
            if not each.is_default
        )
        parts = sorted(found.partitions, key=lambda each: each.partition_index)
        replicas = len(parts[0].replica_nodes) if parts else 0
        click.echo(
            f"Topic: {name}\tTopicId: {id_text(found.topic_id)}\tPartitionCount: {len(parts)}\t"
            f"ReplicationFactor: {replicas}\tConfigs: {configs}"
        )
        eligible = _eligible(cluster, name)
        for each in parts:
            click.echo(_partition_line(name, each, eligible.get(each.partition_index, ("N/A", "N/A"))))


def _eligible(cluster: Cluster, name: str) -> dict[int, tuple[str, str]]:
    """Partition -> (eligible leader replicas, last known ones) as text; empty if the broker lacks the API."""
    found: dict[int, tuple[str, str]] = {}
    cursor: Cursor | None = None
    if not cluster.supports("describe_topic_partitions"):
        return found
    while True:
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)], cursor=cursor)
        response = cluster.ask("describe_topic_partitions", request)
        for topic in response.topics:
            for at in topic.partitions:
                found[at.partition_index] = _ids(at.eligible_leader_replicas), _ids(at.last_known_elr)
        if response.next_cursor is None or response.next_cursor.topic_name != name:
            return found
        cursor = Cursor(topic_name=name, partition_index=response.next_cursor.partition_index)


def _partition_line(name: str, at: MetadataResponsePartition, eligible: tuple[str, str]) -> str:
    leader = "none" if at.leader_id < 0 else str(at.leader_id)
    replicas, isr, (elr, last_known_elr) = _ids(at.replica_nodes), _ids(at.isr_nodes), eligible
    return (
        f"\tTopic: {name}\tPartition: {at.partition_index}\tLeader: {leader}\tReplicas: {replicas}\tIsr: {isr}"
        f"\tElr: {elr}\tLastKnownElr: {last_known_elr}"
    )


def _ids(nodes: Sequence[int] | None) -> str:
    return ",".join(map(str, nodes or ()))


def _add_partitions(cluster: Cluster, topic: str, partitions: int | None, if_exists: bool) -> None:
    if partitions is None:
        raise click.UsageError("--alter needs --partitions")
    if if_exists and not _names(cluster, topic, False):
        return
    wanted = CreatePartitionsTopic(name=topic, count=partitions, assignments=None)
    response = cluster.ask_controller(
        "create_partitions", CreatePartitionsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)
    )
    for each in response.results:
        check(each.error_code, f"topic {each.name}", each.error_message)
