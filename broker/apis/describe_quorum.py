"""DescribeQuorum: voters and observers of the metadata quorum (KIP-595).

The process has one controller, with the id of the first node: it is the only voter, and the leader. All other live nodes are
observers, whose copies of the metadata log are never behind. v1 has timestamps, v2 directory ids and the voters' listeners
(KIP-853). The voter's listener is the first listener of the first node's broker, because the controller has none of its own.
"""

from __future__ import annotations

from typing import Final

from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.authorization import CLUSTER_REFUSED, may_on_cluster
from protocol.errors import ErrorCode
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)

METADATA_TOPIC: Final = "__cluster_metadata"
UNKNOWN_PARTITION: Final = "This server does not host this topic-partition."


@api(key=55, versions=range(3))
def describe_quorum(request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
    if not may_on_cluster(context, "DESCRIBE"):
        return DescribeQuorumResponse(
            error_code=ErrorCode.cluster_authorization_failed, error_message=CLUSTER_REFUSED
        )
    asked = [
        (topic.topic_name, part.partition_index) for topic in request.topics for part in topic.partitions
    ]
    if asked != [(METADATA_TOPIC, 0)]:
        return _unknown(request)
    topic = ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[_quorum(context)])
    return DescribeQuorumResponse(error_message="", topics=[topic], nodes=[_voter(context)])


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """The response to a request for anything but partition 0 of __cluster_metadata: an error for each partition."""
    error = ErrorCode.unknown_topic_or_partition
    return DescribeQuorumResponse(
        error_message="",
        topics=[
            ResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    ResponsePartitionData(
                        partition_index=part.partition_index,
                        error_code=error,
                        error_message=UNKNOWN_PARTITION,
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _quorum(context: RequestContext) -> ResponsePartitionData:
    metadata, now_ms = context.node.metadata, context.node.clock.now_ms()
    leader_id, next_offset = metadata.identity.node_id, metadata.epoch + 1

    def state(node_id: int) -> ReplicaState:
        directories = metadata.brokers[node_id].log_dirs if node_id != leader_id else ()
        return ReplicaState(
            replica_id=node_id,
            replica_directory_id=directories[0] if directories else None,
            log_end_offset=next_offset,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )

    return ResponsePartitionData(
        error_message="",
        leader_id=leader_id,
        leader_epoch=metadata.leader_epoch,
        high_watermark=next_offset,
        current_voters=[state(leader_id)],
        observers=[
            state(node_id)
            for node_id, broker in sorted(metadata.brokers.items())
            if node_id != leader_id and not broker.fenced
        ],
    )


def _voter(context: RequestContext) -> Node:
    metadata = context.node.metadata
    broker = metadata.brokers.get(metadata.identity.node_id)
    return Node(
        node_id=metadata.identity.node_id,
        listeners=[
            Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)
            for endpoint in (() if broker is None else broker.endpoints[:1])
        ],
    )
