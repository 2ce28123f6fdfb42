"""DeleteRecords: advance the log start offset of partitions. The response is sent when all live replicas have
advanced it (KIP-107).

v1 differs only in how quotas apply to it; v2 is flexible.
"""

from __future__ import annotations

from typing import Final

from broker.metadata.topics import is_internal
from broker.node.context import RequestContext
from broker.replicas.partition import Partition
from broker.requests.api import api
from broker.requests.parking import Parking
from protocol.errors import NONE, ErrorCode
from protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from protocol.slotted import slotted

HIGH_WATERMARK: Final = -1
NO_LOW_WATERMARK: Final = -1


@slotted
class _Deletion:
    """One partition of a DeleteRecords request, with its result."""

    topic: str
    index: int
    error: ErrorCode
    low_watermark: int = NO_LOW_WATERMARK
    before_offset: int = 0
    partition: Partition | None = None

    @property
    def pending(self) -> bool:
        """Whether the log of at least one live replica still starts before the requested offset."""
        return self.error is NONE and self.low_watermark < self.before_offset


@api(key=21, versions=range(3))
async def delete_records(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    # If a request names a partition twice, the last offset counts, as in Kafka.
    wanted = {
        (topic.name, partition.partition_index): partition.offset
        for topic in request.topics
        for partition in topic.partitions
    }
    deletions = [_delete(context, name, index, offset) for (name, index), offset in wanted.items()]
    pending = [deletion for deletion in deletions if deletion.pending]
    if pending:
        watched = [deletion.partition for deletion in pending if deletion.partition]
        with Parking(context.node.clock, request.timeout_ms, watched) as parking:
            in_time = True
            while pending and in_time:
                in_time = await parking.moved()
                for deletion in pending:
                    _look_again(context, deletion)
                pending = [deletion for deletion in pending if deletion.pending]
        for deletion in pending:
            deletion.error = ErrorCode.request_timed_out
    return _response(deletions)


def _delete(context: RequestContext, name: str, index: int, offset: int) -> _Deletion:
    if not context.authorize("DELETE", "TOPIC", name):
        return _Deletion(name, index, ErrorCode.topic_authorization_failed)
    topic = context.node.metadata.topic(name)
    if topic is None or topic.partition(index) is None:
        return _Deletion(name, index, ErrorCode.unknown_topic_or_partition)
    if is_internal(name):
        return _Deletion(name, index, ErrorCode.invalid_topic_exception)
    partition = context.node.replicas.leader(name, index)
    if isinstance(partition, ErrorCode):
        return _Deletion(name, index, partition)
    config = partition.log.config
    if config.compact and not config.delete:
        return _Deletion(name, index, ErrorCode.policy_violation)
    before_offset = partition.high_watermark if offset == HIGH_WATERMARK else offset
    error, low_watermark = partition.delete_records(before_offset)
    return _Deletion(name, index, error, low_watermark, before_offset, partition)


def _look_again(context: RequestContext, deletion: _Deletion) -> None:
    """Update the error and low watermark of a deletion by repeating it on the leader. This deletes nothing more."""
    partition = context.node.replicas.leader(deletion.topic, deletion.index)
    if isinstance(partition, ErrorCode):
        deletion.error, deletion.low_watermark = partition, NO_LOW_WATERMARK
    else:
        deletion.error, deletion.low_watermark = partition.delete_records(deletion.before_offset)


def _response(deletions: list[_Deletion]) -> DeleteRecordsResponse:
    topics: dict[str, list[DeleteRecordsPartitionResult]] = {}
    for deletion in deletions:
        topics.setdefault(deletion.topic, []).append(
            DeleteRecordsPartitionResult(
                partition_index=deletion.index,
                low_watermark=deletion.low_watermark,
                error_code=deletion.error,
            )
        )
    return DeleteRecordsResponse(
        topics=[DeleteRecordsTopicResult(name=name, partitions=results) for name, results in topics.items()]
    )
