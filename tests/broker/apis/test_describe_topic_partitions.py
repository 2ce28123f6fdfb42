"""DescribeTopicPartitions: the content of its responses, and the cursor that leads from page to page."""

from __future__ import annotations

from typing import Any

from broker.apis.describe_topic_partitions import describe_topic_partitions
from broker.metadata import NewTopic
from protocol.codec import client_codec, request_codec
from protocol.errors import ErrorCode
from protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tests.broker.metadata.world import context_of


def ask(cluster, *names, limit=2000, cursor=None, **options):
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    response = describe_topic_partitions(request, context_of(cluster, 0, **options))
    encoded = b"".join(bytes(chunk) for chunk in request_codec(75, 0).encode(response))
    return client_codec(75, 0).decode(encoded, 0)


def page(answer):
    topics = [
        (one.name, one.error_code, [partition.partition_index for partition in one.partitions])
        for one in answer.topics
    ]
    cursor = answer.next_cursor
    return topics, None if cursor is None else (cursor.topic_name, cursor.partition_index)


async def test_a_topic_and_its_empty_lists(cluster):
    await cluster.replication_control.create_topics([NewTopic("a")])
    [topic] = ask(cluster, "a").topics
    assert (topic.name, topic.topic_id, topic.is_internal) == ("a", cluster.topic("a").topic_id, False)
    assert topic.topic_authorized_operations == 3576
    [partition] = topic.partitions
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 1, 0)
    assert (list(partition.replica_nodes), list(partition.isr_nodes)) == ([1], [1])
    # Clients crash if these lists are null.
    assert partition.eligible_leader_replicas is not None
    assert partition.last_known_elr is not None
    assert not partition.eligible_leader_replicas
    assert not partition.last_known_elr
    assert not partition.offline_replicas


async def test_topics_come_sorted_and_once(cluster):
    await cluster.replication_control.create_topics([NewTopic("b"), NewTopic("a"), NewTopic("c")])
    assert page(ask(cluster, "c", "nope", "a", "c", "a/b", "__consumer_offsets")) == (
        [
            ("__consumer_offsets", ErrorCode.unknown_topic_or_partition, []),
            ("a", 0, [0]),
            ("a/b", ErrorCode.invalid_topic_exception, []),
            ("c", 0, [0]),
            ("nope", ErrorCode.unknown_topic_or_partition, []),
        ],
        None,
    )
    assert page(ask(cluster)) == ([("a", 0, [0]), ("b", 0, [0]), ("c", 0, [0])], None)


async def test_pages(cluster):
    await cluster.replication_control.create_topics([NewTopic("a", 3), NewTopic("b", 2)])
    assert page(ask(cluster, limit=2)) == ([("a", 0, [0, 1])], ("a", 2))
    assert page(ask(cluster, limit=2, cursor=("a", 2))) == ([("a", 0, [2]), ("b", 0, [0])], ("b", 1))
    assert page(ask(cluster, limit=2, cursor=("b", 1))) == ([("b", 0, [1])], None)
    # A page that ends with the last partition of a topic still returns a cursor.
    assert page(ask(cluster, limit=3)) == ([("a", 0, [0, 1, 2])], ("b", 0))
    assert page(ask(cluster, "a", "zz", limit=3)) == ([("a", 0, [0, 1, 2])], ("zz", 0))


async def test_a_page_has_at_least_one_partition_and_at_most_the_limit(cluster):
    await cluster.replication_control.create_topics([NewTopic("a", 3)])
    for limit in (0, -5, 1):
        assert page(ask(cluster, limit=limit)) == ([("a", 0, [0])], ("a", 1))
    assert page(ask(cluster, max_request_partition_size_limit="2")) == ([("a", 0, [0, 1])], ("a", 2))


async def test_cursors(cluster):
    await cluster.replication_control.create_topics([NewTopic("a", 3), NewTopic("c")])
    refused: tuple[Any, ...] = ([("a", ErrorCode.invalid_request, [])], None)
    assert page(ask(cluster, "a", cursor=("zz", 1))) == refused
    assert page(ask(cluster, "a", cursor=("a", -1))) == refused
    assert page(ask(cluster, "a", cursor=("a", 9))) == ([("a", 0, [])], None)
    # When all topics are asked for, the topic of the cursor may have been deleted.
    assert page(ask(cluster, cursor=("b", 1))) == ([("c", 0, [0])], None)


async def test_an_empty_topic_name_is_an_unknown_server_error_as_in_kafka(cluster):
    await cluster.replication_control.create_topics([NewTopic("a")])
    failed = ErrorCode.unknown_server_error
    assert page(ask(cluster, "a", "")) == ([("a", failed, []), ("", failed, [])], None)


async def test_rights(cluster):
    await cluster.replication_control.create_topics([NewTopic("a"), NewTopic("b")])
    denied = {("DESCRIBE", "TOPIC", "a")}
    answer = ask(cluster, "a", "b", denied=denied)
    assert page(answer)[0] == [("b", 0, [0]), ("a", ErrorCode.topic_authorization_failed, [])]
    assert answer.topics[1].topic_id is None
    assert page(ask(cluster, denied=denied))[0] == [("b", 0, [0])]
