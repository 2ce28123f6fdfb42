"""OffsetForLeaderEpoch: the end offset of a leader epoch, by which a follower or consumer detects that its records diverge
from the leader's log.

KIP-101; KIP-320 lets consumers send it. v3 adds the replica id, v4 is flexible.
"""

from __future__ import annotations

from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.authorization import may_on_cluster, unauthorized
from protocol.errors import ErrorCode
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)


@api(key=23, versions=range(2, 5))
def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    denied: frozenset[str] = frozenset()
    # Followers have CLUSTER_ACTION; consumers need DESCRIBE on the topic.
    if not may_on_cluster(context, "CLUSTER_ACTION", logs_denial=False):
        denied = unauthorized(context, "DESCRIBE", "TOPIC", [topic.topic for topic in request.topics])
    results = [
        OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[_end_offset(context, topic.topic, asked) for asked in topic.partitions],
        )
        for topic in request.topics
        if topic.topic not in denied
    ]
    refused = [_refused(topic) for topic in request.topics if topic.topic in denied]
    return OffsetForLeaderEpochResponse(topics=[*results, *refused])


def _refused(topic: OffsetForLeaderTopic) -> OffsetForLeaderTopicResult:
    error = ErrorCode.topic_authorization_failed
    partitions = [EpochEndOffset(partition=asked.partition, error_code=error) for asked in topic.partitions]
    return OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions)


def _end_offset(context: RequestContext, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = context.node.replicas.leader(topic, asked.partition, asked.current_leader_epoch)
    if isinstance(partition, ErrorCode):
        return EpochEndOffset(partition=asked.partition, error_code=partition)
    epoch, end_offset = partition.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
