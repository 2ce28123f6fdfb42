"""Fetch: return batches from an offset on, at once or when at least ``min_bytes`` bytes are available.

KIP-74 (v3) limits the bytes of the response; KIP-98 (v4) adds read_committed, where the broker also sends aborted batches
and lists the aborted transactions; KIP-227 (v7) sessions; KIP-320 (v9, v12) leader epochs; KIP-392 (v11) the consumer's
rack; KIP-516 (v13) topic ids in place of names; KIP-903 (v15) moves the follower's broker id into a tagged field; KIP-951
(v16) names the current leader.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from broker.clock import Domain
from broker.node.context import RequestContext
from broker.node.fetch_sessions import Answers, CachedPartition, Key, Opened
from broker.requests.api import api
from broker.requests.fetch_quota import FetchQuota
from broker.requests.fetch_reading import TOPIC_IDS_SINCE, FetchReading, replica_id
from broker.requests.metadata_views import endpoints_of, topic_name
from broker.requests.parking import Parking
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)

ISOLATION_LEVELS = (0, 1)


@api(key=1, versions=range(4, 19))
async def fetch(request: FetchRequest, context: RequestContext) -> FetchResponse:
    if request.isolation_level not in ISOLATION_LEVELS:
        return _impossible(request)
    follower = replica_id(request)
    opened = _open(request, context, is_follower=follower >= 0)
    if isinstance(opened, ErrorCode):
        return FetchResponse(error_code=opened)
    quota = FetchQuota(context, is_follower=follower >= 0)
    reading = FetchReading(request, context, opened.wanted, follower, quota.bytes_max)
    outcome = reading.read()
    enough = request.max_wait_ms <= 0 or outcome.must_answer or outcome.bytes_read >= reading.min_bytes
    # As Kafka, do not wait if the offset is beyond what may be read, or in an older segment (`FetchReading.ready`).
    if not enough and not reading.ready():
        watched = [partition for _, partition in reading.readable]
        gives_way = context.node.config.fetch_gives_way
        with Parking(context.node.clock, request.max_wait_ms, watched, gives_way=gives_way) as parking:
            while await parking.moved() and not reading.ready():
                pass
        outcome = reading.read()
    answers = outcome.answers + reading.refused
    if quota.is_set:
        throttle_ms = quota.charge(FetchResponse(responses=_by_topic(answers)), context.api_version)
        if throttle_ms:
            return _throttled(opened, throttle_ms)
    error, session_id, answers = opened.answer(answers, context.node.clock.now_ms(Domain.CONNECTIONS))
    return FetchResponse(
        error_code=error,
        session_id=session_id,
        responses=_by_topic(answers),
        node_endpoints=() if follower >= 0 else _leaders(context, answers),
    )


def _impossible(request: FetchRequest) -> FetchResponse:
    """The response to an unknown isolation level. As in Kafka, the error is at the top level and in every partition."""
    error = ErrorCode.unknown_server_error
    return FetchResponse(
        error_code=error,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(
                        partition_index=asked.partition, error_code=error, high_watermark=-1, records=b""
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _open(request: FetchRequest, context: RequestContext, *, is_follower: bool) -> Opened | ErrorCode:
    uses_topic_ids = context.api_version >= TOPIC_IDS_SINCE
    asked: dict[Key, CachedPartition] = {}
    for topic in request.topics:
        name = topic_name(context.node, topic.topic_id) if uses_topic_ids else topic.topic
        for partition in topic.partitions:
            wanted = CachedPartition(
                name,
                topic.topic_id,
                partition.partition,
                partition.fetch_offset,
                partition.partition_max_bytes,
                partition.current_leader_epoch,
                partition.last_fetched_epoch,
            )
            asked[wanted.key] = wanted
    forgotten: list[Key] = []
    for gone in request.forgotten_topics_data:
        forgotten += [(gone.topic_id or gone.topic, index) for index in gone.partitions]
    return context.node.fetch_sessions.open(
        request.session_id,
        request.session_epoch,
        asked,
        forgotten,
        uses_topic_ids=uses_topic_ids,
        follower=is_follower,
        now_ms=context.node.clock.now_ms(Domain.CONNECTIONS),
    )


def _throttled(opened: Opened, throttle_ms: int) -> FetchResponse:
    """An empty response with the throttle time. The session is unchanged, so the client can repeat the same Fetch later."""
    error, session_id = opened.answer_nothing()
    return FetchResponse(error_code=error, session_id=session_id, throttle_time_ms=throttle_ms)


def _by_topic(answers: Answers) -> list[FetchableTopicResponse]:
    """Group adjacent partitions of one topic into one entry. Keeps the order, so a topic may occur several times."""
    responses: list[FetchableTopicResponse] = []
    if len(answers) == 1:
        wanted, answer = answers[0]
        return [
            FetchableTopicResponse(topic=wanted.topic or "", topic_id=wanted.topic_id, partitions=[answer])
        ]
    for _, group in groupby(answers, key=lambda pair: pair[0].key[0]):
        pairs = list(group)
        wanted = pairs[0][0]
        responses.append(
            FetchableTopicResponse(
                topic=wanted.topic or "",
                topic_id=wanted.topic_id,
                partitions=[answer for _, answer in pairs],
            )
        )
    return responses


def _leaders(context: RequestContext, answers: Answers) -> Sequence[NodeEndpoint]:
    """Endpoints of the leaders that the errors in this response name (KIP-951)."""
    leaders: set[int] = set()
    for _, answer in answers:
        if answer.error_code:  # only errors have a current leader
            leaders.add(answer.current_leader.leader_id)
    return endpoints_of(context, NodeEndpoint, leaders) if leaders else ()
