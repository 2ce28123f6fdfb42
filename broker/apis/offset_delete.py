"""OffsetDelete: delete a group's offsets of topics that the group is not subscribed to (KIP-496). There is one version."""

from __future__ import annotations

from broker.groups.offsets import Spot
from broker.node.context import RequestContext
from broker.requests.api import api
from protocol.errors import NONE, ErrorCode
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


@api(key=47, versions=range(1))
async def offset_delete(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    if not context.authorize("DELETE", "GROUP", request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.group_authorization_failed)
    topics: dict[str, list[OffsetDeleteResponsePartition]] = {}
    spots: list[Spot] = []
    for topic in request.topics:
        for partition in topic.partitions:
            index = partition.partition_index
            error = _check(topic.name, index, context)
            if error is NONE:
                spots.append((topic.name, index))
            else:
                _add(topics, topic.name, index, error)
    error, errors = await context.node.groups.delete_offsets(request.group_id, spots)
    if error is not NONE:
        return OffsetDeleteResponse(error_code=error)
    for (name, index), each in zip(spots, errors, strict=True):
        _add(topics, name, index, each)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(name=name, partitions=partitions) for name, partitions in topics.items()
        ]
    )


def _check(name: str, index: int, context: RequestContext) -> ErrorCode:
    if not context.authorize("READ", "TOPIC", name):
        return ErrorCode.topic_authorization_failed
    topic = context.node.metadata.topic(name)
    if topic is None or topic.partition(index) is None:
        return ErrorCode.unknown_topic_or_partition
    return NONE


def _add(
    topics: dict[str, list[OffsetDeleteResponsePartition]], name: str, index: int, error: ErrorCode
) -> None:
    topics.setdefault(name, []).append(OffsetDeleteResponsePartition(partition_index=index, error_code=error))
