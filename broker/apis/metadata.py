"""Metadata: brokers, topics, who leads what. Also how most topics come into being.

v1: null is all topics, empty is none (v0: empty is all). v4: the client may forbid creation. v5: offline replicas. v7:
leader epochs. v8: authorized operations (of the cluster until v10). v10: topic ids in the answer, v12 in the request.
v13: a top-level error code (KIP-1102; never set here).
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from broker.api import api
from broker.metadata import NewTopic, Topic
from broker.metadata.views import (
    CLUSTER_NAME,
    NO_NODE,
    Live,
    authorized_operations,
    leader_and_offline,
    live_brokers,
)
from broker.topics import invalid_topic_name, is_internal
from protocol.errors import ErrorCode
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from broker.context import RequestContext
    from broker.metadata import PartitionState


@api(key=3, versions=range(14))
def metadata(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    refusal = _malformed(request, context)
    if refusal is not None:
        return _refusal(request, refusal)
    cluster = context.node.metadata
    live = live_brokers(context)
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=one.node_id, host=one.host, port=one.port, rack=one.rack)
            for one in live.values()
        ],
        cluster_id=cluster.cluster_id,
        controller_id=min(live, default=NO_NODE),
        topics=_topics(request, context, live),
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = (
            authorized_operations(context, "CLUSTER", CLUSTER_NAME)
            if context.authorize("DESCRIBE", "CLUSTER", CLUSTER_NAME)
            else 0
        )
    if request.include_topic_authorized_operations:
        for topic in response.topics:
            if topic.error_code not in (ErrorCode.unknown_topic_id, ErrorCode.topic_authorization_failed):
                topic.topic_authorized_operations = authorized_operations(context, "TOPIC", topic.name or "")
    return response


def _topics(request: MetadataRequest, context: RequestContext, live: Live) -> list[MetadataResponseTopic]:
    cluster = context.node.metadata
    wanted = request.topics
    if wanted is None or (context.api_version == 0 and not wanted):
        names = [name for name in cluster.topics if context.authorize("DESCRIBE", "TOPIC", name)]
        return [_existing(context, live, cluster.topics[name]) for name in names]
    # One id among the entries, and the names are not looked at.
    topic_ids = dict.fromkeys(one.topic_id for one in wanted if one.topic_id is not None)
    if topic_ids:
        return [_by_id(context, live, topic_id) for topic_id in topic_ids]
    named = list(dict.fromkeys(one.name or "" for one in wanted))
    answers = [_by_name(context, live, name) for name in named]
    missing = [
        answer.name or "" for answer in answers if answer.error_code == ErrorCode.unknown_topic_or_partition
    ]
    if missing and request.allow_auto_topic_creation and context.node.config.auto_create_topics_enable:
        _create(context, missing)
    return answers


def _malformed(request: MetadataRequest, context: RequestContext) -> ErrorCode | None:
    """Before v12 only names are asked for, although v10 and v11 have a place for ids."""
    entries = request.topics or ()
    if context.api_version < 12:
        good = all(one.name is not None and one.topic_id is None for one in entries)
        return None if good else ErrorCode.invalid_request
    # Without any id all names are looked up, and Kafka falls over one that is null.
    good = any(one.topic_id is not None for one in entries) or all(one.name is not None for one in entries)
    return None if good else ErrorCode.unknown_server_error


def _refusal(request: MetadataRequest, error: ErrorCode) -> MetadataResponse:
    """What Kafka answers when it cannot make sense of the request: nothing but the error, for each topic."""
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


def _by_name(context: RequestContext, live: Live, name: str) -> MetadataResponseTopic:
    if not context.authorize("DESCRIBE", "TOPIC", name):
        return MetadataResponseTopic(error_code=ErrorCode.topic_authorization_failed, name=name)
    topic = context.node.metadata.topic(name)
    if topic is not None:
        return _existing(context, live, topic)
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
    return MetadataResponsePartition(
        error_code=ErrorCode.leader_not_available if leader == NO_NODE else ErrorCode.none,
        partition_index=partition.index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=offline,
    )


def _create(context: RequestContext, names: list[str]) -> None:
    """Begin to create what is missing. As on Kafka this answer still says 3, and the client asks again."""
    cluster = context.node.metadata
    allowed = context.authorize("CREATE", "CLUSTER", CLUSTER_NAME)
    wanted = [NewTopic(name) for name in names if allowed or context.authorize("CREATE", "TOPIC", name)]
    if wanted:
        cluster.create_in_background(wanted)
