"""ListOffsets: the first and last offset of a partition, and the first offset at or after a timestamp.

KIP-98 (v2) adds the isolation level; KIP-320 (v4) leader epochs; KIP-207 (v5) the error OFFSET_NOT_AVAILABLE; KIP-734 (v7)
the offset of the largest timestamp; KIP-405 (v8), KIP-1005 (v9) and KIP-1023 (v11) query tiered storage, which this broker
does not have; v10 adds a timeout for searches in tiered storage.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from broker.loop.slices import ELEMENTS_PER_SLICE
from broker.node.context import RequestContext
from broker.replicas.partition import Partition, TimestampOffset
from broker.requests.api import api
from broker.requests.authorization import unauthorized
from protocol.errors import NONE, ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from storage.steps import Steps

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
CONSUMER: Final = -1
DEBUGGING: Final = -2
"""Replica id of a debugging tool, which may send the request to a follower."""

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
SINCE: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""Special value of the timestamp -> first version of ListOffsets that has this value."""
NEVER: Final = 1 << 15
OFFSET_NOT_AVAILABLE_SINCE: Final = 5


@api(key=2, versions=range(1, 12))
async def list_offsets(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    return await context.node.slices.run(_answer(request, context))


def _answer(request: ListOffsetsRequest, context: RequestContext) -> Steps[ListOffsetsResponse]:
    """Build the response. Yields to the event loop between partitions, and during the search through a large batch."""
    denied = unauthorized(context, "DESCRIBE", "TOPIC", [topic.name for topic in request.topics])
    asked = [
        (topic.name, partition)
        for topic in request.topics
        if topic.name not in denied
        for partition in topic.partitions
    ]
    times = Counter((name, partition.partition_index) for name, partition in asked)
    found: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
    for number, (name, partition) in enumerate(asked, 1):
        index = partition.partition_index
        if times[name, index] > 1:
            # A partition that is requested twice has one result, an error.
            result = TimestampOffset(ErrorCode.invalid_request)
        else:
            result = yield from _find(request, context, name, partition)
        found.setdefault(name, {})[index] = ListOffsetsPartitionResponse(
            partition_index=index,
            error_code=result.error,
            timestamp=result.timestamp_ms,
            offset=result.offset,
            leader_epoch=result.leader_epoch,
        )
        if number % ELEMENTS_PER_SLICE == 0:
            yield None
    topics = [
        ListOffsetsTopicResponse(name=name, partitions=list(partitions.values()))
        for name, partitions in found.items()
    ]
    topics += [_refused(topic) for topic in request.topics if topic.name in denied]
    return ListOffsetsResponse(topics=topics)


def _refused(topic: ListOffsetsTopic) -> ListOffsetsTopicResponse:
    error = ErrorCode.topic_authorization_failed
    return ListOffsetsTopicResponse(
        name=topic.name,
        partitions=[
            ListOffsetsPartitionResponse(
                partition_index=asked.partition_index, error_code=error, timestamp=-1, offset=-1
            )
            for asked in topic.partitions
        ],
    )


def _find(
    request: ListOffsetsRequest, context: RequestContext, name: str, asked: ListOffsetsPartition
) -> Steps[TimestampOffset]:
    if asked.timestamp < 0 and context.api_version < SINCE.get(asked.timestamp, NEVER):
        return TimestampOffset(ErrorCode.unsupported_version)
    replicas, index = context.node.replicas, asked.partition_index
    find = replicas.hosted if request.replica_id == DEBUGGING else replicas.leader
    partition = find(name, index, asked.current_leader_epoch)
    if isinstance(partition, ErrorCode):
        return TimestampOffset(partition)
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return TimestampOffset(ErrorCode.unknown_server_error)
    if asked.timestamp == LATEST and request.replica_id != CONSUMER:
        # A debugging consumer sees the whole log, up to the log end offset.
        return TimestampOffset(NONE, partition.log_end_offset, -1, partition.leader_epoch)
    epoch = partition.leader_epoch
    result = yield from _look_up(
        partition, asked.timestamp, read_committed=request.isolation_level == READ_COMMITTED
    )
    if find(name, index) is not partition or partition.leader_epoch != epoch:
        return TimestampOffset(ErrorCode.not_leader_or_follower)  # the leader changed during the search
    if result.error is ErrorCode.offset_not_available and context.api_version < OFFSET_NOT_AVAILABLE_SINCE:
        return TimestampOffset(ErrorCode.leader_not_available)
    return result


def _look_up(partition: Partition, timestamp: int, *, read_committed: bool) -> Steps[TimestampOffset]:
    if timestamp == LATEST:
        return partition.latest(read_committed=read_committed)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return partition.earliest()
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return TimestampOffset(NONE)  # no offset: there is no tiered storage
    if timestamp == MAX_TIMESTAMP:
        return (yield from partition.max_timestamp(read_committed=read_committed))
    return (yield from partition.offset_for_timestamp(timestamp, read_committed=read_committed))
