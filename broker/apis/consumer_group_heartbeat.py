"""ConsumerGroupHeartbeat: a member of a consumer group joins, stays alive, leaves, and receives its assignment.

KIP-848. v1 adds subscriptions by regular expression, and clients generate their member ids (KIP-1082).
"""

from __future__ import annotations

from broker.groups.consumer_settings import is_enabled
from broker.metadata.features import GROUP_VERSION
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.authorization import describable_topics, unauthorized
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


@api(key=68, versions=range(2))
async def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    if not serves_consumer_groups(context):
        return _refused(ErrorCode.unsupported_version)
    if not context.authorize("READ", "GROUP", request.group_id):
        return _refused(ErrorCode.group_authorization_failed)
    if unauthorized(context, "DESCRIBE", "TOPIC", request.subscribed_topic_names or ()):
        return _refused(ErrorCode.topic_authorization_failed)
    return await context.node.groups.consumer_group_heartbeat(
        request, context.client_id, context.peer, context.api_version, describable_topics(context)
    )


def serves_consumer_groups(context: RequestContext) -> bool:
    """Whether the feature level of ``group.version`` and ``group.coordinator.rebalance.protocols`` allow consumer groups."""
    node = context.node
    return bool(node.metadata.features.get(GROUP_VERSION)) and is_enabled(node.config)


def _refused(error: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error)
