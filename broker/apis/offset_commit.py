"""OffsetCommit: commit the offsets of a group.

v2 to v4 can set a retention time, later versions use the broker's (KIP-211); KIP-320 (v6) adds leader epochs; KIP-345 (v7)
static members; KIP-848 (v9) member epochs and GROUP_ID_NOT_FOUND; v10 uses topic ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from broker.groups.commits import Committer, OffsetToCommit
from broker.node.context import RequestContext
from broker.requests.api import api
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

TOPIC_IDS_SINCE: Final = 10


@api(key=8, versions=range(2, 11))
async def offset_commit(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    answer = _Answer()
    if not context.authorize("READ", "GROUP", request.group_id):
        for topic in request.topics:
            answer.refuse(topic, topic.name, topic.topic_id, ErrorCode.group_authorization_failed)
        return answer.response()
    offsets = [offset for topic in request.topics for offset in _existing(topic, context, answer)]
    if not offsets:
        return answer.response()
    who = Committer(
        request.group_id, request.member_id, request.generation_id_or_member_epoch, request.group_instance_id
    )
    errors = await context.node.groups.commit(who, offsets, request.retention_time_ms, context.api_version)
    for offset, error in zip(offsets, errors, strict=True):
        answer.add(offset.topic, offset.topic_id, offset.partition, error)
    return answer.response()


def _existing(
    asked: OffsetCommitRequestTopic, context: RequestContext, answer: _Answer
) -> Iterable[OffsetToCommit]:
    """Yield the offsets of authorized, existing partitions. Adds an error to ``answer`` for each other partition."""
    metadata = context.node.metadata
    uses_id = context.api_version >= TOPIC_IDS_SINCE
    topic = metadata.topic_by_id(asked.topic_id) if uses_id else metadata.topic(asked.name)
    if topic is None and uses_id:
        answer.refuse(asked, "", asked.topic_id, ErrorCode.unknown_topic_id)
        return
    name = asked.name if topic is None else topic.name
    if not context.authorize("READ", "TOPIC", name):
        answer.refuse(asked, name, asked.topic_id, ErrorCode.topic_authorization_failed)
        return
    if topic is None:
        answer.refuse(asked, name, None, ErrorCode.unknown_topic_or_partition)
        return
    for partition in asked.partitions:
        index = partition.partition_index
        if not 0 <= index < len(topic.partitions):
            answer.add(name, topic.topic_id, index, ErrorCode.unknown_topic_or_partition)
            continue
        yield OffsetToCommit(
            name,
            index,
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata,
            topic.topic_id,
        )


class _Answer:
    """The response under construction. Refused partitions come before committed ones, grouped by topic."""

    def __init__(self) -> None:
        self._topics: dict[tuple[str, UUID | None], list[OffsetCommitResponsePartition]] = {}

    def add(self, name: str, topic_id: UUID | None, partition: int, error: ErrorCode) -> None:
        result = OffsetCommitResponsePartition(partition_index=partition, error_code=error)
        self._topics.setdefault((name, topic_id), []).append(result)

    def refuse(
        self, topic: OffsetCommitRequestTopic, name: str, topic_id: UUID | None, error: ErrorCode
    ) -> None:
        self._topics.setdefault((name, topic_id), [])
        for partition in topic.partitions:
            self.add(name, topic_id, partition.partition_index, error)

    def response(self) -> OffsetCommitResponse:
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=partitions)
                for (name, topic_id), partitions in self._topics.items()
            ]
        )
