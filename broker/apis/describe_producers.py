"""DescribeProducers: the active producers of a partition, and their open transactions (KIP-664).

Any replica can respond, not only the leader: each replica has its own producer state, and an operator may compare these
states.
"""

from __future__ import annotations

from broker.metadata.topics import invalid_topic_name
from broker.node.context import RequestContext
from broker.requests.api import api
from protocol.errors import NONE, ErrorCode
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)

# Kafka sends a message if the whole topic is refused. For a single partition it sends only the code.
_MESSAGES = {
    ErrorCode.topic_authorization_failed: "Topic authorization failed.",
    ErrorCode.unknown_topic_or_partition: "This server does not host this topic-partition.",
}


@api(key=61, versions=range(1))
def describe_producers(
    request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    return DescribeProducersResponse(topics=[_topic(asked, context) for asked in request.topics])


def _topic(asked: TopicRequest, context: RequestContext) -> TopicResponse:
    error, message = _refusal(asked.name, context)
    if error is not NONE:
        partitions = [
            PartitionResponse(partition_index=index, error_code=error, error_message=message)
            for index in asked.partition_indexes
        ]
    else:
        partitions = [_partition(asked.name, index, context) for index in asked.partition_indexes]
    return TopicResponse(name=asked.name, partitions=partitions)


def _refusal(name: str, context: RequestContext) -> tuple[ErrorCode, str | None]:
    """(error, message) for all partitions of a topic; (NONE, None) if the topic exists and the client has READ on it."""
    invalid = invalid_topic_name(name)
    if invalid is not None:
        return ErrorCode.invalid_topic_exception, invalid
    if not context.authorize("READ", "TOPIC", name):
        error = ErrorCode.topic_authorization_failed
    elif context.node.metadata.topic(name) is None:
        error = ErrorCode.unknown_topic_or_partition
    else:
        return NONE, None
    return error, _MESSAGES[error]


def _partition(name: str, index: int, context: RequestContext) -> PartitionResponse:
    partition = context.node.replicas.get(name, index)
    if partition is None:
        topic = context.node.metadata.topic(name)
        elsewhere = topic is not None and topic.partition(index) is not None
        error = ErrorCode.not_leader_or_follower if elsewhere else ErrorCode.unknown_topic_or_partition
        return PartitionResponse(partition_index=index, error_code=error)
    if partition.offline is not None:
        return PartitionResponse(partition_index=index, error_code=ErrorCode.kafka_storage_error)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp_ms,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.current_txn_first_offset,
            )
            for entry in partition.log.producers.entries.values()
        ],
    )
