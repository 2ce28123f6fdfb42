"""AlterShareGroupOffsets: set the start offsets of a share group without members (KIP-932)."""

from __future__ import annotations

from broker.apis.share_group_heartbeat import serves_share_groups
from broker.groups.consumer.context import Refused
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.share.messages import message_of
from protocol.errors import NONE, ErrorCode
from protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)


@api(key=91, versions=range(1))
async def alter_share_group_offsets(
    request: AlterShareGroupOffsetsRequest, context: RequestContext
) -> AlterShareGroupOffsetsResponse:
    if not serves_share_groups(context):
        return _refused(ErrorCode.unsupported_version)
    if not context.authorize("READ", "GROUP", request.group_id):
        return _refused(ErrorCode.group_authorization_failed)
    responses: list[AlterShareGroupOffsetsResponseTopic] = []
    allowed: list[AlterShareGroupOffsetsRequestTopic] = []
    for topic in request.topics:
        error = _check(topic.topic_name, context)
        if error is NONE:
            allowed.append(topic)
        else:
            responses.append(_refused_topic(topic, error, context))
    try:
        responses += await context.node.groups.share_groups.alter_offsets(request.group_id, allowed)
    except Refused as refusal:
        return _refused(refusal.error, refusal.message)
    return AlterShareGroupOffsetsResponse(responses=responses)


def _refused(error: ErrorCode, message: str | None = None) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=error, error_message=message or message_of(error))


def _check(name: str, context: RequestContext) -> ErrorCode:
    if not context.authorize("READ", "TOPIC", name):
        return ErrorCode.topic_authorization_failed
    known = context.node.metadata.topic(name) is not None
    return NONE if known else ErrorCode.unknown_topic_or_partition


def _refused_topic(
    topic: AlterShareGroupOffsetsRequestTopic, error: ErrorCode, context: RequestContext
) -> AlterShareGroupOffsetsResponseTopic:
    known = context.node.metadata.topic(topic.topic_name)
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=None if known is None else known.topic_id,
        partitions=[
            AlterShareGroupOffsetsResponsePartition(
                partition_index=each.partition_index, error_code=error, error_message=message_of(error)
            )
            for each in topic.partitions
        ],
    )
