"""DeleteShareGroupOffsets: delete the offsets that a share group without members has for some topics (KIP-932)."""

from __future__ import annotations

from broker.apis.share_group_heartbeat import serves_share_groups
from broker.groups.consumer.context import Refused
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.share.messages import message_of
from protocol.errors import ErrorCode
from protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)


@api(key=92, versions=range(1))
async def delete_share_group_offsets(
    request: DeleteShareGroupOffsetsRequest, context: RequestContext
) -> DeleteShareGroupOffsetsResponse:
    if not serves_share_groups(context):
        return _refused(ErrorCode.unsupported_version)
    if not context.authorize("DELETE", "GROUP", request.group_id):
        return _refused(ErrorCode.group_authorization_failed)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = []
    allowed: list[str] = []
    for topic in request.topics:
        if context.authorize("READ", "TOPIC", topic.topic_name):
            allowed.append(topic.topic_name)
        else:
            error = ErrorCode.topic_authorization_failed
            responses.append(
                DeleteShareGroupOffsetsResponseTopic(
                    topic_name=topic.topic_name, error_code=error, error_message=message_of(error)
                )
            )
    try:
        responses += await context.node.groups.share_groups.delete_offsets(request.group_id, allowed)
    except Refused as refusal:
        return _refused(refusal.error, refusal.message)
    return DeleteShareGroupOffsetsResponse(responses=responses)


def _refused(error: ErrorCode, message: str | None = None) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=error, error_message=message or message_of(error))
