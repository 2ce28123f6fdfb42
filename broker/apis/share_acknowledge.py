"""ShareAcknowledge: accept, release or reject the records that a member of a share group has acquired.

KIP-932; KIP-1222 (v2) adds renewals of locks, and the duration of locks in the response.
"""

from __future__ import annotations

from uuid import UUID

from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.metadata_views import endpoints_of, topic_name
from broker.requests.share_requests import (
    acknowledge,
    acknowledgements,
    current_leader,
    refusal,
    unreadable,
)
from broker.share.sessions import FINAL_EPOCH, SessionKey
from protocol.errors import NONE, ErrorCode
from protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)


@api(key=79, versions=range(1, 3))
async def share_acknowledge(
    request: ShareAcknowledgeRequest, context: RequestContext
) -> ShareAcknowledgeResponse:
    share = context.node.share
    error = refusal(context, request.group_id, request.member_id)
    if error is not NONE:
        return ShareAcknowledgeResponse(error_code=error)
    group_id, member_id = request.group_id or "", request.member_id or ""
    session = SessionKey(group_id, member_id)
    error = share.sessions.acknowledge(session, request.share_session_epoch)
    if error is not NONE:
        return ShareAcknowledgeResponse(error_code=error)
    denied = unreadable(
        context, [topic_name(context.node, topic.topic_id) for topic in request.topics if topic.partitions]
    )
    if denied is None:
        return ShareAcknowledgeResponse(error_code=ErrorCode.unknown_server_error)
    asked = acknowledgements(request.topics)
    results = await acknowledge(
        context, group_id, member_id, asked, denied, is_renew_ack=request.is_renew_ack
    )
    if request.share_session_epoch == FINAL_EPOCH:
        share.release_session(session)
    topics: dict[UUID | None, list[PartitionData]] = {}
    leaders: list[int] = []
    for key, outcome in results.items():
        answer = PartitionData(
            partition_index=key[1], error_code=outcome.error, error_message=outcome.message
        )
        leader = current_leader(context, outcome.error, key)
        if leader is not None:
            answer.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
            leaders.append(leader[0])
        topics.setdefault(key[0], []).append(answer)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=share.settings(group_id).record_lock_duration_ms,
        responses=[
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
        node_endpoints=endpoints_of(context, NodeEndpoint, leaders),
    )
