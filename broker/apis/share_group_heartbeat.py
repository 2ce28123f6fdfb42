"""ShareGroupHeartbeat: a member of a share group (KIP-932) joins, stays alive, leaves, and receives its assignment."""

from __future__ import annotations

from broker.groups.consumer.context import Client, Refused
from broker.metadata.features import SHARE_VERSION
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.authorization import unauthorized
from broker.share.state import MEMBER_ID_LENGTH_MAX
from protocol.errors import ErrorCode
from protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


@api(key=76, versions=range(1, 2))
async def share_group_heartbeat(
    request: ShareGroupHeartbeatRequest, context: RequestContext
) -> ShareGroupHeartbeatResponse:
    if not serves_share_groups(context):
        return _refused(ErrorCode.unsupported_version)
    if not context.authorize("READ", "GROUP", request.group_id):
        return _refused(ErrorCode.group_authorization_failed)
    if not 0 < len(request.member_id) <= MEMBER_ID_LENGTH_MAX:
        return _refused(ErrorCode.invalid_request)
    if unauthorized(context, "DESCRIBE", "TOPIC", request.subscribed_topic_names or ()):
        return _refused(ErrorCode.topic_authorization_failed)
    try:
        client = Client(context.client_id or "", context.peer)
        return await context.node.groups.share_groups.heartbeat(request, client)
    except Refused as refusal:
        return _refused(refusal.error, refusal.message)


def serves_share_groups(context: RequestContext) -> bool:
    """Whether the feature level of ``share.version`` allows share groups."""
    return bool(context.node.metadata.features.get(SHARE_VERSION))


def _refused(error: ErrorCode, message: str | None = None) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=error, error_message=message)
