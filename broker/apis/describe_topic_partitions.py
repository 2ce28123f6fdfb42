"""DescribeTopicPartitions (KIP-966): topics with their partitions, leaders and replicas, in pages.

Lists are empty, never null: the Java client throws NullPointerException for a null list of eligible leader replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata import PartitionState, Topic
from broker.metadata.topics import invalid_topic_name, is_internal
from broker.requests.api import api
from broker.requests.metadata_views import Live, authorized_operations, leader_and_offline, live_brokers
from protocol.errors import ErrorCode
from protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)

if TYPE_CHECKING:
    from broker.node.context import RequestContext


@api(key=75, versions=range(1))
def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    cursor = request.cursor
    after = cursor.topic_name if cursor is not None else ""
    asked = [topic.name for topic in request.topics]
    wanted = {name for name in asked or context.node.metadata.topics if name >= after}
    if cursor is not None and (cursor.partition_index < 0 or (asked and after not in wanted)):
        return _refusal(asked, ErrorCode.invalid_request)
    if cursor is None and "" in asked:
        # Kafka takes the empty name for the topic of the missing cursor, and throws.
        return _refusal(asked, ErrorCode.unknown_server_error)
    allowed = sorted(name for name in wanted if context.authorize("DESCRIBE", "TOPIC", name))
    room = max(min(context.node.config.max_request_partition_size_limit, request.response_partition_limit), 1)
    first = {after: cursor.partition_index} if cursor is not None else {}
    response = _page(context, allowed, first, room, asked=bool(asked))
    if asked:
        denied = wanted.difference(allowed)
        response.topics = [*response.topics, *map(_denied, sorted(denied))]
    return response


def _page(
    context: RequestContext, names: list[str], first: dict[str, int], room: int, *, asked: bool
) -> DescribeTopicPartitionsResponse:
    """A response with at most ``room`` partitions. Its cursor is the next partition, None if no partition is left.

    ``first``: topic -> index of the first partition to return (default 0). ``asked``: the client has named the topics,
    so topics that do not exist get an error; otherwise they are left out.
    """
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    live = live_brokers(context)
    for name in names:
        if room == 0:
            # The cursor may name a topic that does not exist; the next page checks it.
            return DescribeTopicPartitionsResponse(topics=topics, next_cursor=_cursor(name, 0))
        topic = context.node.metadata.topic(name)
        if topic is None:
            if asked:
                topics.append(_missing(context, name))
            continue
        start = first.get(name, 0)
        end = min(len(topic.partitions), start + room)
        topics.append(_existing(context, live, topic, topic.partitions[start:end]))
        if end < len(topic.partitions):
            return DescribeTopicPartitionsResponse(topics=topics, next_cursor=_cursor(name, end))
        room -= max(end - start, 0)
    return DescribeTopicPartitionsResponse(topics=topics)


def _cursor(name: str, partition: int) -> ResponseCursor:
    return ResponseCursor(topic_name=name, partition_index=partition)


def _existing(
    context: RequestContext, live: Live, topic: Topic, partitions: list[PartitionState]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[_partition(context, live, topic, partition) for partition in partitions],
        topic_authorized_operations=authorized_operations(context, "TOPIC", topic.name),
    )


def _partition(
    context: RequestContext, live: Live, topic: Topic, partition: PartitionState
) -> DescribeTopicPartitionsResponsePartition:
    leader, offline = leader_and_offline(context, live, topic, partition)
    return DescribeTopicPartitionsResponsePartition(
        partition_index=partition.index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        eligible_leader_replicas=partition.eligible_leader_replicas,
        last_known_elr=partition.last_known_eligible,
        offline_replicas=offline,
    )


def _missing(context: RequestContext, name: str) -> DescribeTopicPartitionsResponseTopic:
    invalid = invalid_topic_name(name) is not None
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.invalid_topic_exception if invalid else ErrorCode.unknown_topic_or_partition,
        name=name,
        is_internal=is_internal(name),
        topic_authorized_operations=authorized_operations(context, "TOPIC", name),
    )


def _denied(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.topic_authorization_failed, name=name)


def _refusal(asked: list[str], error: ErrorCode) -> DescribeTopicPartitionsResponse:
    """The response to an invalid request. Each topic has the error, since the response has no top-level error code."""
    return DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(error_code=error, name=name) for name in asked]
    )
