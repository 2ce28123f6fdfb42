"""AlterPartitionReassignments and ListPartitionReassignments: how reassignments start, complete and are cancelled."""

from __future__ import annotations

import pytest

from broker.apis.alter_partition_reassignments import alter_partition_reassignments
from broker.apis.list_partition_reassignments import list_partition_reassignments
from broker.metadata import ClusterMetadata, NewTopic
from protocol.codec import client_codec, request_codec
from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.broker.metadata.world import away, context_of

OK = ErrorCode.none


@pytest.fixture
async def three(cluster: ClusterMetadata) -> ClusterMetadata:
    for node_id in (2, 3):
        away(cluster, node_id, fenced=False)
    await cluster.replication_control.create_topics([NewTopic("t", assignments=((0, (1, 2)), (1, (2, 1))))])
    return cluster


async def move(cluster, moves, *, topic="t", version=1, denied=(), **options):
    """Send AlterPartitionReassignments and return the error of the request and of each partition."""
    partitions = [ReassignablePartition(partition_index=i, replicas=to) for i, to in moves.items()]
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=partitions)], **options
    )
    response = await alter_partition_reassignments(request, context_of(cluster, version, denied=denied))
    encoded = b"".join(bytes(chunk) for chunk in request_codec(45, version).encode(response))
    answer = client_codec(45, version).decode(encoded, 0)
    return answer.error_code, [each.error_code for topic in answer.responses for each in topic.partitions]


def moving(cluster, topics=None, denied=()):
    """(replicas, adding replicas, removing replicas) of each partition that is being reassigned."""
    rows = topics and [
        ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
        for name, indexes in topics.items()
    ]
    request = ListPartitionReassignmentsRequest(topics=rows)
    response = list_partition_reassignments(request, context_of(cluster, 0, denied=denied))
    encoded = b"".join(bytes(chunk) for chunk in request_codec(46, 0).encode(response))
    answer = client_codec(46, 0).decode(encoded, 0)
    assert all(topic.partitions for topic in answer.topics), "topics without a reassignment are not listed"
    assert answer.error_code == (ErrorCode.cluster_authorization_failed if denied else OK)
    return {
        (topic.name, one.partition_index): (
            list(one.replicas),
            list(one.adding_replicas),
            list(one.removing_replicas),
        )
        for topic in answer.topics
        for one in topic.partitions
    }


def state_of(cluster, index=0):
    return cluster.topics["t"].partitions[index]


@pytest.mark.parametrize("version", range(2))
async def test_a_reassignment_ends_when_the_last_new_replica_is_in_sync(three, version):
    assert await move(three, {0: [3, 1], 1: [2, 1]}, version=version) == (OK, [OK, OK])
    assert moving(three) == {("t", 0): ([3, 1, 2], [3], [2])}
    assert moving(three, {"t": [0, 1, 7], "missing": [0]}) == moving(three)
    assert moving(three, {"t": [1]}) == {}

    await three.replication_control.alter_partition("t", 0, state_of(three).leader_epoch, (1, 2, 3))
    assert moving(three) == {}
    assert (state_of(three).replicas, set(state_of(three).isr)) == ((3, 1), {1, 3})
    assert state_of(three).leader == 1


async def test_a_reassignment_is_cancelled(three):
    await move(three, {0: [3]})
    assert moving(three) == {("t", 0): ([3, 1, 2], [3], [1, 2])}
    assert await move(three, {0: None, 1: None}) == (OK, [OK, ErrorCode.no_reassignment_in_progress])
    assert (moving(three), set(state_of(three).replicas)) == ({}, {1, 2})


async def test_a_changed_order_of_replicas_is_applied_at_once(three):
    assert await move(three, {0: [2, 1]}) == (OK, [OK])
    assert (moving(three), state_of(three).replicas) == ({}, (2, 1))


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ([], ErrorCode.invalid_replica_assignment),
        ([1, 1], ErrorCode.invalid_replica_assignment),
        ([1, 9], ErrorCode.invalid_replica_assignment),
        (None, ErrorCode.no_reassignment_in_progress),
    ],
)
async def test_invalid_reassignments(three, target, error):
    assert await move(three, {0: target}) == (OK, [error])
    assert await move(three, {7: target}) == (OK, [ErrorCode.unknown_topic_or_partition])
    assert await move(three, {0: target}, topic="missing") == (OK, [ErrorCode.unknown_topic_or_partition])
    assert moving(three) == {}


async def test_the_number_of_replicas_can_be_kept(three):
    keeps = {"allow_replication_factor_change": False}
    changes = ErrorCode.invalid_replication_factor
    assert await move(three, {0: [3], 1: [1, 2, 3]}, **keeps) == (OK, [changes, changes])
    assert await move(three, {0: [3, 2]}, **keeps) == (OK, [OK])
    # The replication factor of a partition in reassignment is that of its target.
    assert await move(three, {0: [3, 2, 1]}, **keeps) == (OK, [changes])
    assert await move(three, {0: [3, 1]}, **keeps) == (OK, [OK])


async def test_an_unauthorized_client(three):
    refused = ErrorCode.cluster_authorization_failed
    assert await move(three, {0: [3, 1]}, denied={("ALTER", "CLUSTER", "kafka-cluster")}) == (
        refused,
        [refused],
    )
    denied = {("DESCRIBE", "CLUSTER", "kafka-cluster")}
    # A topic that the client may not describe is listed without replicas.
    assert moving(three, {"t": [0]}, denied=denied) == {("t", 0): ([], [], [])}
