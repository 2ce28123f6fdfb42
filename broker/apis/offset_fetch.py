"""OffsetFetch: the committed offsets of groups.

v2 allows null for all topics, and its response has an error for the group; KIP-320 (v5) adds leader epochs; KIP-447 (v7) a
flag to wait for pending transactional offsets; KIP-709 (v8) several groups; KIP-848 (v9) member ids and epochs, which
consumer groups check; v10 uses topic ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.groups.commits import fetched
from broker.groups.offsets import Found
from broker.loop.coroutines import fork
from broker.node.context import RequestContext
from broker.requests.api import api
from protocol.errors import NONE, ErrorCode
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

GROUP_ERROR_SINCE: Final = 2
MANY_GROUPS_SINCE: Final = 8
TOPIC_IDS_SINCE: Final = 10

_Group = OffsetFetchResponseGroup


@api(key=9, versions=range(1, 11))
async def offset_fetch(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    if context.api_version >= MANY_GROUPS_SINCE:
        life = context.node.life
        fetching = [fork(_fetch(group, request.require_stable, context), life) for group in request.groups]
        return OffsetFetchResponse(groups=[await group for group in fetching])
    group = _as_group(request)
    return _as_single(group, await _fetch(group, request.require_stable, context), context.api_version)


async def _fetch(group: OffsetFetchRequestGroup, require_stable: bool, context: RequestContext) -> _Group:
    if not context.authorize("DESCRIBE", "GROUP", group.group_id):
        return _Group(group_id=group.group_id, error_code=ErrorCode.group_authorization_failed)
    if group.topics is None:
        return _visible(await context.node.groups.fetch(group, require_stable=require_stable), context)
    known, refused = _resolve(group.topics, context)
    wanted = OffsetFetchRequestGroup(
        group_id=group.group_id, member_id=group.member_id, member_epoch=group.member_epoch, topics=known
    )
    return _with(await context.node.groups.fetch(wanted, require_stable=require_stable), refused)


def _resolve(
    topics: Sequence[OffsetFetchRequestTopics], context: RequestContext
) -> tuple[list[OffsetFetchRequestTopics], list[OffsetFetchResponseTopics]]:
    """(topics to look up, error results of the other topics). A topic that is requested by name need not exist, since
    committed offsets may outlive their topic.
    """
    known, refused = [], []
    for topic in topics:
        name = topic.name
        if context.api_version >= TOPIC_IDS_SINCE:
            existing = context.node.metadata.topic_by_id(topic.topic_id)
            name = existing.name if existing is not None else ""
            if existing is None:
                refused.append(_refusal(topic, name, ErrorCode.unknown_topic_id))
                continue
        if context.authorize("DESCRIBE", "TOPIC", name, logs_denial=False):
            known.append(
                OffsetFetchRequestTopics(
                    topic_id=topic.topic_id, name=name, partition_indexes=topic.partition_indexes
                )
            )
        else:
            refused.append(_refusal(topic, name, ErrorCode.topic_authorization_failed))
    return known, refused


def _refusal(topic: OffsetFetchRequestTopics, name: str, error: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=topic.topic_id,
        name=name,
        partitions=[fetched(index, Found(error, None)) for index in topic.partition_indexes],
    )


def _with(answer: _Group, refused: Sequence[OffsetFetchResponseTopics]) -> _Group:
    if answer.error_code == NONE:
        answer.topics = [*answer.topics, *refused]
    return answer


def _visible(answer: _Group, context: RequestContext) -> _Group:
    """Remove from the response the topics that the client may not describe.

    If the response has topic ids, deleted topics are removed, too.
    """
    visible = []
    for topic in answer.topics:
        if not context.authorize("DESCRIBE", "TOPIC", topic.name):
            continue
        if context.api_version >= TOPIC_IDS_SINCE:
            existing = context.node.metadata.topic(topic.name)
            if existing is None:
                continue
            topic.topic_id = existing.topic_id
        visible.append(topic)
    answer.topics = visible
    return answer


# -- before v8 ----------------------------------------------------------------------------------------------------


def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = request.topics
    return OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in topics
        ],
    )


def _as_single(asked: OffsetFetchRequestGroup, found: _Group, api_version: int) -> OffsetFetchResponse:
    topics = found.topics
    error = ErrorCode(found.error_code)
    if error is not NONE and api_version < GROUP_ERROR_SINCE:
        topics = [_refusal(topic, topic.name, error) for topic in asked.topics or ()]
    return OffsetFetchResponse(
        error_code=found.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in topics
        ],
    )
