"""CreatePartitions adds partitions to a topic and never removes any."""

from __future__ import annotations

import pytest

from broker.apis.create_partitions import create_partitions
from broker.metadata import NewTopic
from protocol.codec import client_codec, request_codec
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tests.broker.metadata.world import context_of


def more(name: str, count: int, assignments=None) -> CreatePartitionsTopic:
    if assignments is not None:
        assignments = [CreatePartitionsAssignment(broker_ids=one) for one in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=assignments)


async def ask(cluster, version, *topics, validate_only=False, **options):
    request = CreatePartitionsRequest(topics=topics, validate_only=validate_only)
    response = await create_partitions(request, context_of(cluster, version, **options))
    encoded = b"".join(bytes(chunk) for chunk in request_codec(37, version).encode(response))
    answers = client_codec(37, version).decode(encoded, 0).results
    return [(one.name, one.error_code, one.error_message) for one in answers]


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_added_and_invalid_counts_rejected(cluster, version):
    await cluster.replication_control.create_topics([NewTopic("a", 3), NewTopic("b", 3), NewTopic("c", 3)])
    assert await ask(
        cluster,
        version,
        more("a", 5),
        more("b", 3),
        more("c", 2),
        more("nope", 3),
        more("d", 1),
        more("d", 2),
    ) == [
        ("d", ErrorCode.invalid_request, "Duplicate topic name."),
        ("a", 0, None),
        ("b", ErrorCode.invalid_partitions, "Topic already has 3 partition(s)."),
        (
            "c",
            ErrorCode.invalid_partitions,
            "The topic c currently has 3 partition(s); 2 would not be an increase.",
        ),
        ("nope", ErrorCode.unknown_topic_or_partition, None),
    ]
    assert [len(topic.partitions) for topic in cluster.topics.values()] == [5, 3, 3]


async def test_assignments(cluster):
    await cluster.replication_control.create_topics([NewTopic("a")])
    [(_, error, message)] = await ask(cluster, 3, more("a", 2, [[1], [1]]))
    assert error == ErrorCode.invalid_replica_assignment
    assert message.startswith("Attempted to add 1 additional partition(s), but only 2 assignment(s)")
    assert await ask(cluster, 3, more("a", 3, [[1], [1]])) == [("a", 0, None)]
    assert len(cluster.topic("a").partitions) == 3


async def test_validation_alone(cluster):
    await cluster.replication_control.create_topics([NewTopic("a")])
    assert await ask(cluster, 3, more("a", 2), validate_only=True) == [("a", 0, None)]
    assert len(cluster.topic("a").partitions) == 1


async def test_rights(cluster):
    await cluster.replication_control.create_topics([NewTopic("a"), NewTopic("b")])
    denied = {("ALTER", "TOPIC", "a")}
    assert await ask(cluster, 3, more("a", 2), more("b", 2), denied=denied) == [
        ("a", ErrorCode.topic_authorization_failed, None),
        ("b", 0, None),
    ]


async def test_a_request_without_topics_has_no_results(cluster):
    assert await ask(cluster, 3) == []
