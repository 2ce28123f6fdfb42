"""FindCoordinator creates the internal topic that it needs and returns the coordinator's node."""

from __future__ import annotations

import inspect

import pytest

from broker.apis.find_coordinator import find_coordinator as find_coordinator_handler
from protocol.errors import ErrorCode
from protocol.hashing import partition_for
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.records import cluster_metadata as schema
from tests.broker.metadata.world import context_of, open_cluster
from tests.support.coroutines import served

find_coordinator = served(find_coordinator_handler)

TOPICS = {0: "__consumer_offsets", 1: "__transaction_state"}
MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was "
    "sent to an incompatible broker. See the broker logs for more details."
)
HERE = (1, "broker.example", 19092)
NOWHERE = (-1, "", -1)
SHARE_KEY = "g:AAAAAAAAAAAAAAAAAAAAAQ:0"


async def ask(cluster, version, *keys, key_type=0, **options):
    fields = {"coordinator_keys": keys} if version >= 4 else {"key": keys[0]}
    request = FindCoordinatorRequest(key_type=key_type, **fields)
    response = find_coordinator(request, context_of(cluster, version, **options))
    response = await response if inspect.isawaitable(response) else response
    answers = response.coordinators if version >= 4 else [response]
    return [(one.error_code, one.error_message, (one.node_id, one.host, one.port)) for one in answers]


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("key_type", [0, 1])
async def test_the_first_request_creates_the_topic_and_is_answered(cluster, version, key_type):
    message = "" if version >= 4 else "NONE"
    assert await ask(cluster, version, "g", key_type=key_type) == [(0, message, HERE)]
    assert list(cluster.topics) == [TOPICS[key_type]]


async def test_once_the_topic_is_there_no_task_is_needed(cluster):
    await ask(cluster, 4, "g")
    request = FindCoordinatorRequest(coordinator_keys=["g", "h", "g"])
    response = find_coordinator(request, context_of(cluster, 4))
    assert [(one.key, one.error_code) for one in response.coordinators] == [("g", 0), ("h", 0), ("g", 0)]


async def test_a_request_without_keys_has_no_results(cluster):
    assert await ask(cluster, 6) == []


@pytest.mark.parametrize(
    ("version", "key_type", "message"),
    [(1, 9, MALFORMED), (3, 2, MALFORMED), (4, 9, MALFORMED), (4, 2, ""), (6, 2, ""), (6, -1, MALFORMED)],
)
async def test_unknown_key_types(cluster, version, key_type, message):
    assert await ask(cluster, version, "g", key_type=key_type) == [
        (ErrorCode.invalid_request, message, NOWHERE)
    ]
    assert dict(cluster.topics) == {}


@pytest.mark.parametrize(
    ("key_type", "resource", "error", "message"),
    [
        (0, "GROUP", ErrorCode.group_authorization_failed, "Group authorization failed."),
        (
            1,
            "TRANSACTIONAL_ID",
            ErrorCode.transactional_id_authorization_failed,
            "Transactional Id authorization failed.",
        ),
    ],
)
async def test_clients_without_describe_permission(cluster, key_type, resource, error, message):
    denied = {("DESCRIBE", resource, "g")}
    assert await ask(cluster, 3, "g", key_type=key_type, denied=denied) == [(error, message, NOWHERE)]
    assert not cluster.topics, "no internal topic is created for it"
    assert await ask(cluster, 4, "g", "h", key_type=key_type, denied=denied) == [
        (error, "", NOWHERE),
        (0, "", HERE),
    ]


async def test_share_partitions(cluster):
    """Kafka checks the format of the key, but not whether the topic has the partition."""
    refused = [(ErrorCode.invalid_request, "", NOWHERE)]
    malformed = ("g", "g:0", "", ":AAAAAAAAAAAAAAAAAAAAAQ:0", " :AAAAAAAAAAAAAAAAAAAAAQ:0")
    for key in (
        *malformed,
        SHARE_KEY[:-1] + "x",
        SHARE_KEY + "9" * 10,
        "g:AAAA:0",
        "g:!AAAAAAAAAAAAAAAAAAAAA:0",
    ):
        assert await ask(cluster, 6, key, key_type=2) == refused
    assert not cluster.topics
    found = await ask(cluster, 6, SHARE_KEY, "a:b:AAAAAAAAAAAAAAAAAAAAAQ:-1", "g", key_type=2)
    assert found == [(0, "", HERE), (0, "", HERE), *refused]
    assert list(cluster.topics) == ["__share_group_state"]
    assert await ask(cluster, 5, SHARE_KEY, key_type=2) == refused


async def test_only_brokers_find_share_coordinators(cluster):
    denied = {("CLUSTER_ACTION", "CLUSTER", "kafka-cluster")}
    message = "Cluster authorization failed."
    assert await ask(cluster, 6, SHARE_KEY, key_type=2, denied=denied) == [
        (ErrorCode.cluster_authorization_failed, message, NOWHERE)
    ]
    assert not cluster.topics


async def test_a_coordinator_is_the_leader_of_the_keys_partition(cluster):
    await ask(cluster, 4, "g")
    topic = cluster.topic("__consumer_offsets")
    lost = partition_for("g", 50)
    change = schema.PartitionChangeRecord(partition_id=lost, topic_id=topic.topic_id, leader=-1)
    await cluster._writer.commit([change])
    message = "The coordinator is not available."
    assert await ask(cluster, 3, "g") == [(ErrorCode.coordinator_not_available, message, NOWHERE)]
    assert await ask(cluster, 4, "g", "h") == [
        (ErrorCode.coordinator_not_available, "", NOWHERE),
        (0, "", HERE),
    ]


async def test_a_topic_that_cannot_be_made_leaves_no_coordinator(tmp_path):
    cluster = open_cluster(tmp_path, odradek_defaults="kafka")
    assert await ask(cluster, 4, "g") == [(ErrorCode.coordinator_not_available, "", NOWHERE)]
    await cluster.close()
