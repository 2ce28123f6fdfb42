"""Metadata in every version, compared with recorded responses of Kafka."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import pytest

from broker.apis.metadata import ELEMENTS_PER_SLICE
from broker.apis.metadata import metadata as metadata_handler
from broker.metadata import NewTopic
from broker.metadata.creation import AUTO_CREATED_AT_ONCE, PARTITIONS_PER_REQUEST_MAX
from protocol.codec import client_codec, request_codec
from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.records import cluster_metadata as schema
from tests.broker.metadata.world import away, context_of
from tests.support.coroutines import served

metadata = served(metadata_handler)

VERSIONS = range(14)


def named(*names: str | None, **fields) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **fields)


def by_id(*topic_ids: UUID | None, **fields) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(topic_id=one) for one in topic_ids], **fields)


def quiet(*names: str | None, **fields) -> MetadataRequest:
    return named(*names, allow_auto_topic_creation=False, **fields)


def summary(response) -> list[tuple[str | None, int, int]]:
    return [(one.name, one.error_code, len(one.partitions)) for one in response.topics]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_topic_is_described(cluster, version):
    await cluster.replication_control.create_topics([NewTopic("a", 2)])
    response = metadata(quiet("a", "a"), context_of(cluster, version))
    encoded = b"".join(bytes(chunk) for chunk in request_codec(3, version).encode(response))
    answer = client_codec(3, version).decode(encoded, 0)
    [broker] = answer.brokers
    assert (broker.node_id, broker.host, broker.port, broker.rack) == (1, "broker.example", 19092, None)
    assert answer.controller_id == (1 if version >= 1 else -1)
    assert answer.cluster_id == (cluster.cluster_id if version >= 2 else None)
    [topic] = answer.topics
    assert (topic.name, topic.error_code, topic.is_internal) == ("a", 0, False)
    assert topic.topic_id == (cluster.topic("a").topic_id if version >= 10 else None)
    assert [
        (
            one.error_code,
            one.partition_index,
            one.leader_id,
            one.leader_epoch,
            *one.replica_nodes,
            *one.isr_nodes,
        )
        for one in topic.partitions
    ] == [(0, index, 1, 0 if version >= 7 else -1, 1, 1) for index in (0, 1)]
    assert [list(one.offline_replicas) for one in topic.partitions] == [[], []]


@pytest.mark.parametrize(
    ("version", "topics", "found"),
    [
        (0, [], ["__consumer_offsets", "a"]),
        (0, None, ["__consumer_offsets", "a"]),
        (1, None, ["__consumer_offsets", "a"]),
        (1, [], []),
        (13, None, ["__consumer_offsets", "a"]),
        (13, [], []),
    ],
)
async def test_all_topics_or_none(cluster, version, topics, found):
    await cluster.replication_control.create_topics([NewTopic("a")])
    await cluster.auto_topic_creation.ensure_internal_topic("__consumer_offsets")
    response = metadata(MetadataRequest(topics=topics), context_of(cluster, version))
    assert sorted(one.name for one in response.topics) == found
    internal = [one.name for one in response.topics if one.is_internal]
    assert internal == [name for name in found if name.startswith("__")]


@pytest.mark.parametrize("version", VERSIONS)
async def test_unknown_topic_names(cluster, version):
    response = metadata(quiet("nope", "a/b", "", "__transaction_state"), context_of(cluster, version))
    assert summary(response) == [
        ("nope", ErrorCode.unknown_topic_or_partition, 0),
        ("a/b", ErrorCode.invalid_topic_exception, 0),
        ("", ErrorCode.invalid_topic_exception, 0),
        ("__transaction_state", ErrorCode.unknown_topic_or_partition, 0),
    ]
    assert [one.is_internal for one in response.topics] == [False, False, False, True]
    await settled(cluster)
    assert dict(cluster.topics) == {}


async def settled(cluster) -> None:
    await cluster.auto_topic_creation.settled()


@pytest.mark.parametrize("version", [0, 4, 13])
async def test_a_missing_topic_is_made_for_the_next_request(cluster, version):
    context = context_of(cluster, version)
    assert summary(metadata(named("new", "a/b"), context)) == [
        ("new", ErrorCode.unknown_topic_or_partition, 0),
        ("a/b", ErrorCode.invalid_topic_exception, 0),
    ]
    await settled(cluster)
    assert summary(metadata(named("new"), context)) == [("new", 0, 1)]


async def test_internal_topics_are_made_with_their_own_partitions_and_settings(cluster):
    names = ("__consumer_offsets", "__transaction_state", "__share_group_state", "new")
    metadata(named(*names), context_of(cluster, 12))
    await settled(cluster)
    made = {name: cluster.topic(name) for name in names}
    assert [len(topic.partitions) for topic in made.values()] == [50, 50, 50, 1]
    settings = ("cleanup.policy", "segment.bytes", "retention.ms")
    assert [[topic.configs.get(name) for name in settings] for topic in made.values()] == [
        ["compact", "104857600", None],
        ["compact", "104857600", None],
        ["delete", "104857600", "-1"],
        [None, None, None],
    ]


async def test_topics_are_not_made_where_the_broker_does_not(cluster):
    context = context_of(cluster, 12, auto_create_topics_enable="false")
    assert summary(metadata(named("new"), context)) == [("new", ErrorCode.unknown_topic_or_partition, 0)]
    await settled(cluster)
    assert dict(cluster.topics) == {}


async def test_a_colliding_name_is_never_created(cluster):
    await cluster.replication_control.create_topics([NewTopic("a.b")])
    for _ in range(2):
        response = metadata(named("a_b"), context_of(cluster, 12))
        assert summary(response) == [("a_b", ErrorCode.unknown_topic_or_partition, 0)]
        await settled(cluster)
    assert list(cluster.topics) == ["a.b"]


async def test_topics_by_id(cluster):
    await cluster.replication_control.create_topics([NewTopic("a"), NewTopic("b")])
    unknown, known = uuid4(), cluster.topic("a").topic_id
    request = by_id(known, unknown, known)
    # If any topic is requested by id, topics requested by name are ignored.
    request.topics = [*(request.topics or ()), MetadataRequestTopic(name="b")]
    response = metadata(request, context_of(cluster, 12))
    assert summary(response) == [(None, ErrorCode.unknown_topic_id, 0), ("a", 0, 1)]
    assert [one.topic_id for one in response.topics] == [unknown, known]
    assert list(cluster.topics) == ["a", "b"]


@pytest.mark.parametrize(
    ("version", "request_", "error", "names"),
    [
        (10, by_id(UUID(int=5)), ErrorCode.invalid_request, [""]),
        (11, by_id(UUID(int=5)), ErrorCode.invalid_request, [""]),
        (11, named(None, "a"), ErrorCode.invalid_request, ["", "a"]),
        (12, named(None), ErrorCode.unknown_server_error, [""]),
        (13, named(None, "a"), ErrorCode.unknown_server_error, ["", "a"]),
    ],
)
async def test_invalid_requests(cluster, version, request_, error, names):
    response = metadata(request_, context_of(cluster, version))
    assert [(one.name, one.error_code) for one in response.topics] == [(name, error) for name in names]
    assert (list(response.brokers), response.cluster_id, response.controller_id) == ([], None, -1)
    assert response.error_code == error


@pytest.mark.parametrize("version", [8, 10])
async def test_authorized_operations(cluster, version):
    await cluster.replication_control.create_topics([NewTopic("a")])
    request = quiet(
        "a",
        "nope",
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    response = metadata(request, context_of(cluster, version))
    assert response.cluster_authorized_operations == 8096
    assert [one.topic_authorized_operations for one in response.topics] == [3576, 3576]
    silent = metadata(quiet("a"), context_of(cluster, version))
    assert silent.cluster_authorized_operations == -(2**31)
    assert silent.topics[0].topic_authorized_operations == -(2**31)


async def test_missing_permissions(cluster):
    await cluster.replication_control.create_topics([NewTopic("a"), NewTopic("b")])
    denied = {("DESCRIBE", "TOPIC", "a"), ("WRITE", "TOPIC", "b"), ("DESCRIBE", "CLUSTER", "kafka-cluster")}
    context = context_of(cluster, 8, denied=denied)
    request = quiet(
        "a",
        "b",
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    response = metadata(request, context)
    assert summary(response) == [("b", 0, 1), ("a", ErrorCode.topic_authorization_failed, 0)]
    assert response.cluster_authorized_operations == 0
    assert [one.topic_authorized_operations for one in response.topics] == [3576 - (1 << 4), -(2**31)]
    every = metadata(MetadataRequest(topics=None), context)
    assert summary(every) == [("b", 0, 1)]
    context = context_of(cluster, 12, denied=denied)
    hidden = cluster.topic("a").topic_id
    [answer] = metadata(by_id(hidden), context).topics
    assert (answer.name, answer.topic_id, answer.error_code) == (
        None,
        hidden,
        ErrorCode.topic_authorization_failed,
    )


async def test_without_create_permission_no_topic_is_created(cluster):
    denied = {("CREATE", "CLUSTER", "kafka-cluster"), ("CREATE", "TOPIC", "no")}
    metadata(named("yes", "no"), context_of(cluster, 12, denied=denied))
    await settled(cluster)
    assert list(cluster.topics) == ["yes"]


async def test_a_partition_without_a_leader(cluster):
    await cluster.replication_control.create_topics([NewTopic("a", 2)])
    topic_id = cluster.topic("a").topic_id
    await cluster._writer.commit([schema.PartitionChangeRecord(partition_id=1, topic_id=topic_id, leader=-1)])
    [topic] = metadata(quiet("a"), context_of(cluster, 12)).topics
    assert topic.error_code == 0
    assert [(one.error_code, one.leader_id, one.leader_epoch) for one in topic.partitions] == [
        (0, 1, 0),
        (ErrorCode.leader_not_available, -1, 1),
    ]


async def test_other_brokers_are_listed_with_their_endpoint_on_the_same_listener(cluster):
    away(cluster, 2, fenced=False)
    away(cluster, 3, fenced=True)
    await cluster.replication_control.create_topics([NewTopic("a", assignments=[(0, [2, 1])])])
    response = metadata(quiet("a"), context_of(cluster, 12))
    assert [(one.node_id, one.host, one.port) for one in response.brokers] == [
        (1, "broker.example", 19092),
        (2, "other", 1),
    ]
    assert [list(one.offline_replicas) for one in response.topics[0].partitions] == [[]]
    away(cluster, 2, fenced=True)
    [partition] = metadata(quiet("a"), context_of(cluster, 12)).topics[0].partitions
    assert (partition.leader_id, list(partition.offline_replicas)) == (-1, [2])


async def test_version_0_leaves_out_replicas_that_are_not_live(cluster):
    away(cluster, 2, fenced=False)
    await cluster.replication_control.create_topics([NewTopic("a", assignments=[(0, [1, 2])])])
    away(cluster, 2, fenced=True)
    for version, error, replicas in ((0, ErrorCode.replica_not_available, [1]), (1, 0, [1, 2])):
        [partition] = metadata(named("a"), context_of(cluster, version)).topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (error, 1)
        assert (list(partition.replica_nodes), list(partition.isr_nodes)) == (replicas, replicas)


async def test_many_names_are_looked_up_over_many_turns(cluster):
    await cluster.replication_control.create_topics([NewTopic("there", 3)])
    names = [f"t{number}" for number in range(10 * ELEMENTS_PER_SLICE)]
    answer = metadata(quiet(*names, "there", *names), context_of(cluster, 12))
    assert asyncio.isfuture(answer)
    turns = 0
    while not answer.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 8
    assert summary(answer.result()) == [(name, 3, 0) for name in names] + [("there", 0, 3)]


async def test_a_topic_is_deleted_while_many_are_listed(cluster):
    names = [f"t{number}" for number in range(2 * ELEMENTS_PER_SLICE)]
    await cluster.replication_control.create_topics([NewTopic(name) for name in names])
    answer = metadata(MetadataRequest(topics=None), context_of(cluster, 12))
    assert asyncio.isfuture(answer)
    await cluster.replication_control.delete_topics([cluster.topic(names[-1]).topic_id])
    assert [one.name for one in (await answer).topics][-1] in names[-2:]


async def test_many_missing_topics_are_created_a_few_at_a_time(cluster):
    names = [f"t{number}" for number in range(5 * AUTO_CREATED_AT_ONCE)]
    answer = metadata(named(*names), context_of(cluster, 12))
    sizes = set()
    while len(cluster.topics) < len(names):
        await asyncio.sleep(0)
        sizes.add(len(cluster.topics))
    assert AUTO_CREATED_AT_ONCE in sizes
    assert {one.error_code for one in answer.topics} == {3}


async def test_nothing_is_created_of_more_names_than_one_request_may_create(cluster):
    """A Metadata request with too many unknown topics creates none of them: Kafka's controller rejects the whole request."""
    names = [f"t{number}" for number in range(PARTITIONS_PER_REQUEST_MAX + 1)]
    await metadata(named(*names), context_of(cluster, 12))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not cluster.topics
