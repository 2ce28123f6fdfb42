"""Metadata: brokers, topics, and leaders of partitions. Most topics are auto-created by this request.

v0 leaves out replicas that are not live, and has REPLICA_NOT_AVAILABLE for their partitions. v1: null requests all
topics, and an empty list no topic (v0: an empty list requests all topics). v4: the client can forbid
auto-creation. v5: offline replicas. v7: leader epochs. v8: authorized operations (those of the cluster only until
v10). v10: topic ids in the response, v12: in the request. v13: a top-level error code (KIP-1102; never set here).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Final
from uuid import UUID

from broker.metadata import Topic
from broker.metadata.topics import invalid_topic_name, is_internal
from broker.requests.api import api
from broker.requests.authorization import authorized_cluster_operations, may_on_cluster
from broker.requests.metadata_views import (
    NO_NODE,
    Live,
    authorized_operations,
    leader_and_offline,
    live_brokers,
)
from protocol.errors import NONE, ErrorCode
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from broker.metadata import PartitionState
    from broker.node.context import RequestContext


ELEMENTS_PER_SLICE: Final = 500
"""Topics and partitions that one slice adds to the response, which takes about two milliseconds."""


@api(key=3, versions=range(14))
async def metadata(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    return await context.node.slices.run(_answer(request, context))


def _answer(request: MetadataRequest, context: RequestContext) -> Generator[None, None, MetadataResponse]:
    """Build the response. Yields after each slice of topics."""
    refusal = _malformed(request, context)
    if refusal is not None:
        return _refusal(request, refusal)
    cluster = context.node.metadata
    live = live_brokers(context)
    topics: list[MetadataResponseTopic] = []
    left = ELEMENTS_PER_SLICE
    for topic in _topics(request, context, live):
        topics.append(topic)
        left -= 1 + len(topic.partitions)
        if left <= 0:
            left = ELEMENTS_PER_SLICE
            yield
    if _creates(request, context):
        _create_missing(context, topics)
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=one.node_id, host=one.host, port=one.port, rack=one.rack)
            for one in live.values()
        ],
        cluster_id=cluster.cluster_id,
        controller_id=min(live, default=NO_NODE),
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = authorized_cluster_operations(context)
    return response


def _topics(request: MetadataRequest, context: RequestContext, live: Live) -> Iterator[MetadataResponseTopic]:
    for answer in _found(request, context, live):
        if request.include_topic_authorized_operations and answer.error_code not in _WITHOUT_OPERATIONS:
            answer.topic_authorized_operations = authorized_operations(context, "TOPIC", answer.name or "")
        yield answer


_WITHOUT_OPERATIONS: Final = (ErrorCode.unknown_topic_id, ErrorCode.topic_authorization_failed)


def _found(request: MetadataRequest, context: RequestContext, live: Live) -> Iterator[MetadataResponseTopic]:
    cluster = context.node.metadata
    wanted = request.topics
    if _wants_all(request, context):
        for name in list(cluster.topics):
            topic = cluster.topic(name)  # None if it was deleted since the first slice
            if topic is not None and context.authorize("DESCRIBE", "TOPIC", name, logs_denial=False):
                yield _existing(context, live, topic)
        return
    # If any entry has an id, the names are ignored.
    topic_ids = dict.fromkeys(one.topic_id for one in wanted or () if one.topic_id is not None)
    if topic_ids:
        # Unknown ids come first.
        ordered = sorted(topic_ids, key=lambda topic_id: cluster.topic_by_id(topic_id) is not None)
        yield from _refused_last(_by_id(context, live, topic_id) for topic_id in ordered)
    else:
        creates = _creates(request, context)
        names = dict.fromkeys([one.name or "" for one in wanted or ()])
        yield from _refused_last(_by_name(context, live, name, creates=creates) for name in names)


def _refused_last(answers: Iterable[MetadataResponseTopic]) -> Iterator[MetadataResponseTopic]:
    refused: list[MetadataResponseTopic] = []
    for answer in answers:
        if answer.error_code == ErrorCode.topic_authorization_failed:
            refused.append(answer)
        else:
            yield answer
    yield from refused


def _creates(request: MetadataRequest, context: RequestContext) -> bool:
    return request.allow_auto_topic_creation and context.node.config.auto_create_topics_enable


def _wants_all(request: MetadataRequest, context: RequestContext) -> bool:
    return request.topics is None or (context.api_version == 0 and not request.topics)


def _malformed(request: MetadataRequest, context: RequestContext) -> ErrorCode | None:
    """The error for an invalid request, or None. In v10 and v11 a topic has an id field, but only names may be requested."""
    entries = request.topics or ()
    null_name = None in [one.name for one in entries]
    has_id = [one.topic_id for one in entries].count(None) < len(entries)
    if context.api_version < 12:
        return ErrorCode.invalid_request if null_name or has_id else None
    # Without ids Kafka looks up all names, and throws for a null name.
    return ErrorCode.unknown_server_error if null_name and not has_id else None


def _refusal(request: MetadataRequest, error: ErrorCode) -> MetadataResponse:
    """Kafka's response to an invalid request: each topic has only the error."""
    return MetadataResponse(
        error_code=error,
        topics=[
            MetadataResponseTopic(error_code=error, name=one.name or "", topic_id=one.topic_id)
            for one in request.topics or ()
        ],
    )


def _by_id(context: RequestContext, live: Live, topic_id: UUID) -> MetadataResponseTopic:
    topic = context.node.metadata.topic_by_id(topic_id)
    if topic is None:
        return MetadataResponseTopic(error_code=ErrorCode.unknown_topic_id, topic_id=topic_id)
    if not context.authorize("DESCRIBE", "TOPIC", topic.name):
        return MetadataResponseTopic(error_code=ErrorCode.topic_authorization_failed, topic_id=topic_id)
    return _existing(context, live, topic)


def _by_name(context: RequestContext, live: Live, name: str, *, creates: bool) -> MetadataResponseTopic:
    if not context.authorize("DESCRIBE", "TOPIC", name):
        return MetadataResponseTopic(error_code=ErrorCode.topic_authorization_failed, name=name)
    topic = context.node.metadata.topic(name)
    if topic is not None:
        return _existing(context, live, topic)
    if creates and not _may_create(context, name):
        error = ErrorCode.topic_authorization_failed
        return MetadataResponseTopic(error_code=error, name=name, is_internal=is_internal(name))
    invalid = invalid_topic_name(name) is not None
    return MetadataResponseTopic(
        error_code=ErrorCode.invalid_topic_exception if invalid else ErrorCode.unknown_topic_or_partition,
        name=name,
        is_internal=is_internal(name),
    )


def _existing(context: RequestContext, live: Live, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[_partition(context, live, topic, partition) for partition in topic.partitions],
    )


def _partition(
    context: RequestContext, live: Live, topic: Topic, partition: PartitionState
) -> MetadataResponsePartition:
    leader, offline = leader_and_offline(context, live, topic, partition)
    error, replicas, isr = NONE, partition.replicas, partition.isr
    if context.api_version == 0:
        replicas = tuple(each for each in replicas if each in live)
        isr = tuple(each for each in isr if each in live)
        if len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
            error = ErrorCode.replica_not_available
    return MetadataResponsePartition(
        error_code=ErrorCode.leader_not_available if leader == NO_NODE else error,
        partition_index=partition.index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline,
    )


def _create_missing(context: RequestContext, answers: Iterable[MetadataResponseTopic]) -> None:
    """Start creating missing topics. As on Kafka, this response still has UNKNOWN_TOPIC_OR_PARTITION for them, and the
    client retries.
    """
    missing = [one.name or "" for one in answers if one.error_code == ErrorCode.unknown_topic_or_partition]
    if missing:
        context.node.metadata.auto_topic_creation.create_in_background(missing)


def _may_create(context: RequestContext, name: str) -> bool:
    return may_on_cluster(context, "CREATE", logs_denial=False) or context.authorize("CREATE", "TOPIC", name)
