"""ShareFetch: acquire records of a share group, and acknowledge those of former fetches.

KIP-932; KIP-1206 and KIP-1222 (v2) add the limit of records and renewals of locks.
"""

from __future__ import annotations

from uuid import UUID

from broker.clock import Domain
from broker.clock.sleeping import sleep_ms
from broker.loop.coroutines import fork
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.fetch_quota import SHARE_FETCH, FetchQuota
from broker.requests.metadata_views import endpoints_of, topic_name
from broker.requests.share_fetching import (
    BATCH_OPTIMIZED,
    RECORD_LIMIT,
    ShareFetching,
    Wanted,
    failed,
    rotated,
)
from broker.requests.share_requests import (
    ALL_WELL,
    RENEW_SINCE,
    acknowledge,
    acknowledgements,
    current_leader,
    exists,
    refusal,
    unreadable,
)
from broker.share.sessions import (
    FINAL_EPOCH,
    Answers,
    CachedSharePartition,
    Opened,
    PartitionKey,
    SessionKey,
)
from broker.share.state import Outcome
from protocol.errors import NONE, ErrorCode
from protocol.messages.share_fetch import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)


@api(key=78, versions=range(1, 3))
async def share_fetch(request: ShareFetchRequest, context: RequestContext) -> ShareFetchResponse:
    share = context.node.share
    error = refusal(context, request.group_id, request.member_id)
    if error is not NONE:
        return ShareFetchResponse(error_code=error)
    is_renewal = context.api_version >= RENEW_SINCE and request.is_renew_ack
    if is_renewal and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
        return ShareFetchResponse(error_code=ErrorCode.invalid_request)
    group_id, member_id = request.group_id or "", request.member_id or ""
    session = SessionKey(group_id, member_id)
    asked = acknowledgements(request.topics)
    has_acknowledgements = any(asked.values())
    opened = _open(request, context, session, has_acknowledgements=has_acknowledgements)
    if isinstance(opened, ErrorCode):
        if opened is ErrorCode.share_session_limit_reached:
            await sleep_ms(context.node.clock, request.max_wait_ms, Domain.REQUESTS)
        return ShareFetchResponse(error_code=opened)
    names = [each.topic for each in opened.partitions]
    names += [topic_name(context.node, topic.topic_id) for topic in request.topics if topic.partitions]
    denied = unreadable(context, names)
    if denied is None:
        return ShareFetchResponse(error_code=ErrorCode.unknown_server_error)
    acknowledged = None
    if has_acknowledgements:
        acknowledged = fork(
            acknowledge(context, group_id, member_id, asked, denied, is_renew_ack=is_renewal),
            context.node.life,
        )
    quota = FetchQuota(context, SHARE_FETCH)
    answers: Answers | None = []
    if not is_renewal:
        answers = await _fetch(request, context, opened, denied, quota)
    if answers is None:
        return ShareFetchResponse(error_code=ErrorCode.unknown_server_error)
    results = {} if acknowledged is None else await acknowledged
    response = _response(context, group_id, opened, answers, results, quota)
    if request.share_session_epoch == FINAL_EPOCH:
        share.release_session(session)
    return response


def _open(
    request: ShareFetchRequest, context: RequestContext, session: SessionKey, *, has_acknowledgements: bool
) -> Opened | ErrorCode:
    asked: list[CachedSharePartition] = []
    for topic in request.topics:
        name = topic_name(context.node, topic.topic_id)
        asked += [
            CachedSharePartition(name, topic.topic_id, partition.partition_index)
            for partition in topic.partitions
        ]
    forgotten = [
        (topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
    ]
    return context.node.share.sessions.open(
        session,
        request.share_session_epoch,
        asked,
        forgotten,
        has_acknowledgements=has_acknowledgements,
        connection_id=context.connection_id,
    )


async def _fetch(
    request: ShareFetchRequest,
    context: RequestContext,
    opened: Opened,
    denied: frozenset[str],
    quota: FetchQuota,
) -> Answers | None:
    """Read the partitions. Returns None for an unknown ShareAcquireMode, which Kafka finds only now."""
    refused: Answers = []
    interesting: list[CachedSharePartition] = []
    for cached in opened.partitions:
        error = NONE
        if cached.topic is None:
            error = ErrorCode.unknown_topic_id
        elif cached.topic in denied:
            error = ErrorCode.topic_authorization_failed
        elif not exists(context, cached.topic, cached.index):
            error = ErrorCode.unknown_topic_or_partition
        if error is NONE:
            interesting.append(cached)
        else:
            refused.append((cached, failed(cached.index, error)))
    if not interesting:
        return refused
    if request.share_acquire_mode not in (BATCH_OPTIMIZED, RECORD_LIMIT):
        return None
    node = context.node
    max_bytes = int(min(request.max_bytes, node.config.fetch_max_bytes, quota.bytes_max))
    wanted = Wanted(
        request.group_id or "",
        request.member_id or "",
        request.share_acquire_mode == RECORD_LIMIT,
        request.max_records,
        request.batch_size,
        min(request.min_bytes, max_bytes),
        max_bytes,
    )
    fetching = ShareFetching(node, wanted, rotated(interesting, request.share_session_epoch))
    return await fetching.run(request.max_wait_ms) + refused


def _response(
    context: RequestContext,
    group_id: str,
    opened: Opened,
    answers: Answers,
    results: dict[PartitionKey, Outcome],
    quota: FetchQuota,
) -> ShareFetchResponse:
    leaders = _set_leaders(context, answers)
    error, throttle_ms = opened.error, 0
    if quota.is_set:
        preview = ShareFetchResponse(responses=_by_topic(opened.preview(answers), {}))
        throttle_ms = quota.charge(preview, context.api_version)
    # The records of a throttled response stay acquired, as in Kafka, although the client does not get them.
    sent = [] if throttle_ms else opened.answer(answers)
    return ShareFetchResponse(
        throttle_time_ms=throttle_ms,
        error_code=error,
        acquisition_lock_timeout_ms=context.node.share.settings(group_id).record_lock_duration_ms,
        responses=_by_topic(sent, results),
        node_endpoints=endpoints_of(context, NodeEndpoint, leaders),
    )


def _set_leaders(context: RequestContext, answers: Answers) -> list[int]:
    """Set the current leader where this node is not the leader. Returns the ids of these leaders."""
    leaders: list[int] = []
    for cached, answer in answers:
        leader = current_leader(context, answer.error_code, cached.key) if answer.error_code else None
        if leader is not None:
            answer.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
            leaders.append(leader[0])
    return leaders


def _by_topic(sent: Answers, results: dict[PartitionKey, Outcome]) -> list[ShareFetchableTopicResponse]:
    """Join the results of fetching and of acknowledging, by topic."""
    topics: dict[UUID | None, list[PartitionData]] = {}
    for cached, answer in sent:
        outcome = results.pop(cached.key, ALL_WELL)
        answer.acknowledge_error_code, answer.acknowledge_error_message = outcome
        topics.setdefault(cached.topic_id, []).append(answer)
    for (topic_id, index), outcome in results.items():
        answer = PartitionData(
            partition_index=index,
            acknowledge_error_code=outcome.error,
            acknowledge_error_message=outcome.message,
        )
        topics.setdefault(topic_id, []).append(answer)
    return [
        ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in topics.items()
    ]
