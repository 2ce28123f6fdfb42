"""CreateTopics: each topic has a result of its own, with the fields that Kafka sets."""

from __future__ import annotations

import pytest

from broker.apis.create_topics import create_topics
from broker.metadata import NewTopic
from protocol.codec import client_codec, request_codec
from protocol.errors import ErrorCode
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.broker.metadata.world import context_of, open_cluster

VERSIONS = range(2, 8)


def topic(name: str, partitions: int = 1, replicas: int = 1, assignments=(), **configs) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[CreatableReplicaAssignment(partition_index=i, broker_ids=b) for i, b in assignments],
        configs=[CreatableTopicConfig(name=n.replace("_", "."), value=v) for n, v in configs.items()],
    )


async def ask(cluster, version, *topics, validate_only=False, **options):
    request = CreateTopicsRequest(topics=topics, validate_only=validate_only)
    return (await create_topics(request, context_of(cluster, version, **options))).topics


def errors(answers) -> list[tuple[str, int]]:
    return [(one.name, one.error_code) for one in answers]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_topic_is_created_and_described_in_the_response(cluster, version):
    request = CreateTopicsRequest(topics=[topic("a", 2, retention_ms=" 77 ")])
    response = await create_topics(request, context_of(cluster, version))
    encoded = b"".join(bytes(chunk) for chunk in request_codec(19, version).encode(response))
    [answer] = client_codec(19, version).decode(encoded, 0).topics
    created = cluster.topic("a")
    assert len(created.partitions) == 2
    assert (answer.name, answer.error_code, answer.error_message) == ("a", 0, None)
    assert answer.topic_id == (created.topic_id if version >= 7 else None)
    sizes = (answer.num_partitions, answer.replication_factor)
    assert sizes == ((2, 1) if version >= 5 else (-1, -1))
    assert len(answer.configs) == (37 if version >= 5 else 0)
    values = {one.name: (one.value, one.config_source) for one in answer.configs}
    if version >= 5:
        # CreateTopics returns the value as it was written, DescribeConfigs returns the parsed value.
        assert values["retention.ms"] == (" 77 ", 1)
        assert values["segment.bytes"] == ("1073741824", 5)
        assert [one.name for one in answer.configs] == sorted(values)


async def test_partitions_and_replicas_default_to_the_broker_s_settings(cluster):
    [answer] = await ask(cluster, 5, topic("a", -1, -1))
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 1, 1)


async def test_validate_only_returns_an_id_and_creates_nothing(cluster):
    [answer] = await ask(cluster, 7, topic("a"), validate_only=True)
    assert answer.error_code == 0
    assert answer.topic_id is not None
    assert dict(cluster.topics) == {}


async def test_valid_topics_are_created_beside_invalid_ones(cluster):
    await cluster.replication_control.create_topics([NewTopic("old")])
    answers = await ask(
        cluster,
        7,
        topic("twice"),
        topic("a/b"),
        topic("old"),
        topic("good"),
        topic("__cluster_metadata"),
        topic("twice"),
        topic("none", 0),
        topic("many", 1, 2),
        topic("config", flush_ms="x"),
        topic("manual", -1, -1, [(0, [1])]),
        topic("stray", -1, -1, [(0, [9])]),
    )
    assert errors(answers) == [
        ("a/b", ErrorCode.invalid_topic_exception),
        ("old", ErrorCode.topic_already_exists),
        ("good", 0),
        ("none", ErrorCode.invalid_partitions),
        ("many", ErrorCode.invalid_replication_factor),
        ("config", ErrorCode.invalid_config),
        ("manual", 0),
        ("stray", ErrorCode.invalid_replica_assignment),
        ("twice", ErrorCode.invalid_request),
        ("__cluster_metadata", ErrorCode.invalid_request),
    ]
    messages = {one.name: one.error_message for one in answers}
    assert messages["twice"] == "Duplicate topic name."
    assert messages["__cluster_metadata"] == "Creation of internal topic __cluster_metadata is prohibited."
    assert messages["old"] == "Topic 'old' already exists."
    failed = next(one for one in answers if one.name == "none")
    assert (failed.num_partitions, failed.replication_factor, list(failed.configs)) == (-1, -1, [])
    assert failed.topic_id is None
    assert sorted(cluster.topics) == ["good", "manual", "old"]


async def test_a_request_that_is_too_large_fails_as_a_whole(cluster):
    answers = await ask(cluster, 7, topic("a", 6000), topic("b", 6000))
    assert errors(answers) == [("a", ErrorCode.policy_violation), ("b", ErrorCode.policy_violation)]
    answers = await ask(cluster, 7, topic("a", 10_000))
    assert answers[0].error_message == "Unable to perform excessively large batch operation."
    assert dict(cluster.topics) == {}


async def test_a_request_without_topics_has_no_results(cluster):
    assert await ask(cluster, 7) == []


async def test_rights(cluster):
    denied = {
        ("CREATE", "CLUSTER", "kafka-cluster"),
        ("CREATE", "TOPIC", "a"),
        ("DESCRIBE_CONFIGS", "TOPIC", "b"),
    }
    made, refused = await ask(cluster, 7, topic("a"), topic("b"), denied=denied)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.topic_authorization_failed,
        "Authorization failed.",
    )
    assert (made.name, made.topic_config_error_code) == ("b", ErrorCode.topic_authorization_failed)
    assert (made.num_partitions, made.replication_factor, list(made.configs)) == (-1, -1, [])


async def test_the_last_of_two_values_counts(cluster):
    wanted = topic("a")
    wanted.configs = [
        CreatableTopicConfig(name="segment.ms", value="1"),
        CreatableTopicConfig(name="segment.ms", value="2"),
    ]
    await ask(cluster, 7, wanted)
    assert cluster.topic("a").configs == {"segment.ms": "2"}


async def test_a_broker_setting_is_a_config_source(tmp_path):
    cluster = open_cluster(tmp_path, log_retention_hours="1", log_segment_bytes="2000000")
    [answer] = await ask(cluster, 5, topic("a"))
    values = {one.name: (one.value, one.config_source) for one in answer.configs}
    assert values["retention.ms"] == ("3600000", 4)
    assert values["segment.bytes"] == ("2000000", 4)
    await cluster.close()
