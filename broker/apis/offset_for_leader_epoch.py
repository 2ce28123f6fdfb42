"""OffsetForLeaderEpoch: where a leader epoch ends, so that a reader notices when its log has left ours.

KIP-101; KIP-320 lets consumers ask. v3 adds the replica id, v4 is flexible.
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
    OffsetForLeaderTopicResult,
)


@api(key=23, versions=range(2, 5))
def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    denied: frozenset[str] = frozenset()
    if not may_on_cluster(
        context, "CLUSTER_ACTION", logs_denial=False
    ):  # a follower may; consumers need the topic
        denied = unauthorized(context, "DESCRIBE", "TOPIC", [topic.topic for topic in request.topics])
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _refused(asked) if topic.topic in denied else _end_offset(context, topic.topic, asked)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _refused(asked: OffsetForLeaderPartition) -> EpochEndOffset:
    return EpochEndOffset(partition=asked.partition, error_code=ErrorCode.topic_authorization_failed)


def _end_offset(context: RequestContext, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = context.node.replicas.leader(topic, asked.partition, asked.current_leader_epoch)
    if isinstance(partition, ErrorCode):
        return EpochEndOffset(partition=asked.partition, error_code=partition)
    epoch, end_offset = partition.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
