"""DeleteTopics, by name and by id."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.apis.delete_topics import delete_topics
from broker.metadata import NewTopic
from protocol.codec import client_codec, request_codec
from protocol.errors import ErrorCode
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker.metadata.world import context_of

UNKNOWN = UUID(int=99)
NO_TOPIC = "This server does not host this topic-partition."


async def ask(cluster, version, *entries, **options):
    """Send DeleteTopics and return (name, id, error code, error message) of each topic, sorted by name and error. Since
    version 6 an entry of the request is a (name, id) pair, before that a name."""
    request = DeleteTopicsRequest(topic_names=entries)
    if version >= 6:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=n, topic_id=i) for n, i in entries])
    response = await delete_topics(request, context_of(cluster, version, **options))
    encoded = b"".join(bytes(chunk) for chunk in request_codec(20, version).encode(response))
    answers = client_codec(20, version).decode(encoded, 0).responses
    return sorted(
        ((one.name, one.topic_id, one.error_code, one.error_message) for one in answers),
        key=lambda answer: (answer[0] or "", answer[2]),
    )


async def three(cluster) -> tuple[UUID, UUID, UUID]:
    await cluster.replication_control.create_topics([NewTopic("a"), NewTopic("b"), NewTopic("c")])
    return tuple(cluster.topic(name).topic_id for name in "abc")


@pytest.mark.parametrize("version", range(1, 6))
async def test_by_name(cluster, version):
    await three(cluster)
    talks = version >= 5
    assert await ask(cluster, version, "a", "nope", "b", "b") == [
        ("a", None, 0, None),
        ("b", None, ErrorCode.invalid_request, "Duplicate topic name." if talks else None),
        ("nope", None, ErrorCode.unknown_topic_or_partition, NO_TOPIC if talks else None),
    ]
    assert list(cluster.topics) == ["b", "c"]


async def test_by_id(cluster):
    a, b, c = await three(cluster)
    assert await ask(
        cluster,
        6,
        (None, a),
        ("b", None),
        (None, UNKNOWN),
        (None, c),
        (None, c),
        ("x", UNKNOWN),
        (None, None),
    ) == [
        (None, None, ErrorCode.invalid_request, "Neither topic name nor id were specified."),
        (None, c, ErrorCode.invalid_request, "Duplicate topic id."),
        (None, UNKNOWN, ErrorCode.unknown_topic_id, "This server does not host this topic ID."),
        ("a", a, 0, None),
        ("b", b, 0, None),
        ("x", UNKNOWN, ErrorCode.invalid_request, "You may not specify both topic name and topic id."),
    ]
    assert list(cluster.topics) == ["c"]


async def test_a_topic_that_is_given_by_name_and_by_id_is_not_deleted(cluster):
    a, b, _ = await three(cluster)
    message = "The provided topic name maps to an ID that was already supplied."
    assert await ask(cluster, 6, (None, a), ("a", None)) == [("a", a, ErrorCode.invalid_request, message)]
    answers = await ask(cluster, 6, (None, b), (None, b), ("b", None))
    assert ("b", b, ErrorCode.invalid_request, message) in answers
    assert list(cluster.topics) == ["a", "b", "c"]


async def test_a_request_without_topics_deletes_nothing(cluster):
    assert await ask(cluster, 6) == []


@pytest.mark.parametrize(
    ("version", "error"),
    [(1, 42), (2, 42), (3, 73), (5, 73)],
)
async def test_deletion_can_be_switched_off(cluster, version, error):
    await three(cluster)
    assert await ask(cluster, version, "a", "nope", delete_topic_enable="false") == [
        ("a", None, error, None),
        ("nope", None, error, None),
    ]
    assert len(cluster.topics) == 3


async def test_rights(cluster):
    a, b, c = await three(cluster)
    denied = {
        ("DELETE", "CLUSTER", "kafka-cluster"),
        ("DELETE", "TOPIC", "a"),
        ("DESCRIBE", "TOPIC", "a"),
        ("DELETE", "TOPIC", "b"),
        ("DESCRIBE", "TOPIC", "hidden"),
    }
    failed = (ErrorCode.topic_authorization_failed, "Topic authorization failed.")
    assert await ask(cluster, 6, (None, a), (None, b), (None, c), denied=denied) == [
        (None, a, *failed),  # without Describe the response has no topic name
        ("b", b, *failed),
        ("c", c, 0, None),
    ]
    assert await ask(cluster, 6, ("a", None), ("b", None), ("hidden", None), denied=denied) == [
        ("a", None, *failed),
        ("b", None, *failed),
        ("hidden", None, *failed),
    ]
    assert list(cluster.topics) == ["a", "b"]
