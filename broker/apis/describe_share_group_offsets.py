"""DescribeShareGroupOffsets: the start offsets of share groups (KIP-932); v1 has their lag, too (KIP-1226)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from broker.apis.share_group_heartbeat import serves_share_groups
from broker.groups.consumer.context import Refused
from broker.loop.coroutines import fork
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.latest_offsets import latest_offsets
from broker.share.messages import message_of
from broker.share.state import NO_START_OFFSET, UNKNOWN_COUNT, Outcome, StoredState
from protocol.errors import NONE, ErrorCode
from protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from protocol.named_tuple import NamedTuple

NO_LAG = -1


@api(key=90, versions=range(2))
async def describe_share_group_offsets(
    request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    describing = [fork(_describe(group, context), context.node.life) for group in request.groups]
    return DescribeShareGroupOffsetsResponse(groups=[await each for each in describing])


class _Topic(NamedTuple):
    topic_id: UUID
    name: str
    partitions: Sequence[int]


async def _describe(
    group: DescribeShareGroupOffsetsRequestGroup, context: RequestContext
) -> DescribeShareGroupOffsetsResponseGroup:
    described = DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id)
    if not serves_share_groups(context):
        described.error_code = ErrorCode.unsupported_version
    elif not context.authorize("DESCRIBE", "GROUP", group.group_id):
        described.error_code = ErrorCode.group_authorization_failed
    else:
        try:
            describe = _describe_all if group.topics is None else _describe_some
            described.topics = await describe(group, context)
        except Refused as refusal:
            described.error_code = refusal.error
            described.error_message = message_of(refusal.error)
    return described


async def _describe_all(
    group: DescribeShareGroupOffsetsRequestGroup, context: RequestContext
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    """Describe the initialized partitions of all topics that the client may describe."""
    metadata = context.node.metadata
    initialized = context.node.groups.share_groups.initialized_partitions(group.group_id)
    wanted = [
        _Topic(topic_id, topic.name, sorted(partitions))
        for topic_id, partitions in initialized.items()
        if (topic := metadata.topic_by_id(topic_id)) is not None
        and context.authorize("DESCRIBE", "TOPIC", topic.name)
    ]
    return await _offsets_of(group.group_id, wanted, context)


async def _describe_some(
    group: DescribeShareGroupOffsetsRequestGroup, context: RequestContext
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    wanted: list[_Topic] = []
    unknown: list[DescribeShareGroupOffsetsResponseTopic] = []
    denied: list[DescribeShareGroupOffsetsResponseTopic] = []
    for asked in group.topics or ():
        topic = context.node.metadata.topic(asked.topic_name)
        if not context.authorize("DESCRIBE", "TOPIC", asked.topic_name):
            denied.append(_without_offsets(asked, ErrorCode.topic_authorization_failed))
        elif topic is None:
            # As in OffsetFetch, no offset is not an error.
            unknown.append(_without_offsets(asked, NONE))
        else:
            wanted.append(_Topic(topic.topic_id, asked.topic_name, asked.partitions))
    return [*await _offsets_of(group.group_id, wanted, context), *unknown, *denied]


def _without_offsets(
    asked: DescribeShareGroupOffsetsRequestTopic, error: ErrorCode
) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=asked.topic_name,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=index,
                start_offset=NO_START_OFFSET,
                error_code=error,
                error_message=None if error is NONE else message_of(error),
            )
            for index in asked.partitions
        ],
    )


async def _offsets_of(
    group_id: str, topics: Iterable[_Topic], context: RequestContext
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    asked = [(topic.topic_id, index) for topic in topics for index in topic.partitions]
    if any(not topic.partitions or min(topic.partitions) < 0 or not group_id for topic in topics):
        # Kafka's persister refuses such parameters by an exception.
        raise Refused(ErrorCode.unknown_server_error)
    states = await context.node.groups.share_groups.summaries(group_id, asked)
    names = {topic.topic_id: topic.name for topic in topics}
    ends = await latest_offsets(
        context.node,
        [(names[topic_id], index) for (topic_id, index), found in states.items() if _has_lag(found)],
    )
    return [
        DescribeShareGroupOffsetsResponseTopic(
            topic_name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                _partition(index, states[topic.topic_id, index], ends.get((topic.name, index)))
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def _has_lag(found: tuple[Outcome, StoredState]) -> bool:
    outcome, state = found
    return (
        outcome.error is NONE
        and state.start_offset != NO_START_OFFSET
        and state.delivery_complete_count != UNKNOWN_COUNT
    )


def _partition(
    index: int, found: tuple[Outcome, StoredState], end: int | ErrorCode | None
) -> DescribeShareGroupOffsetsResponsePartition:
    outcome, state = found
    if isinstance(end, ErrorCode):
        return DescribeShareGroupOffsetsResponsePartition(
            partition_index=index, error_code=end, error_message=message_of(end)
        )
    if outcome.error is not NONE:
        # As in OffsetFetch, no offset is not an error.
        state = StoredState()
    lag = NO_LAG if end is None else end - state.start_offset - state.delivery_complete_count
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=state.start_offset, leader_epoch=state.leader_epoch, lag=lag
    )
