"""`odradek group` for classic and consumer groups, and for a group with an offset commit pending in an open transaction."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import odradek as package
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.support.clients import PATIENCE
from tests.tools.conftest import Run
from tools.client.cluster import GROUP, Cluster
from tools.client.groups import fetch_offsets
from tools.client.rebalancing import _take_in


@pytest.fixture(scope="module")
def of_consumers(cluster_of_two: package.Broker) -> str:
    """Id of a consumer group (KIP-848) with one member that owns both partitions of its topic and has committed nothing."""
    group = "kip848"
    with Cluster(cluster_of_two.bootstrap_servers) as cluster:
        fetch_offsets(cluster, group)  # waits for the coordinator
        cluster_of_two.create_topic(group, partitions=2)
        beat = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="one",
            member_epoch=0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=[group],
            topic_partitions=[],
        )
        while sum(len(each.partitions) for each in beat.topic_partitions or ()) < 2:
            _take_in(beat, cluster.ask_coordinator(GROUP, group, "consumer_group_heartbeat", beat))
    return group


def test_a_group_of_the_consumer_protocol_is_described(cluster: Cluster, run: Run, of_consumers: str) -> None:
    found = json.loads(run("group", "describe", of_consumers, "--json"))
    assert [(each["member_id"], each["partitions"]) for each in found["members"]] == [
        ("one", ["kip848-0", "kip848-1"])
    ]
    assert run("group", "describe", of_consumers).startswith("kip848: ")
    shown = run(
        "kafka-tool",
        "kafka-consumer-groups",
        "--bootstrap-server",
        cluster.bootstrap,
        "--describe",
        "--group",
        of_consumers,
    )
    assert [line.split()[:7] for line in shown.splitlines()[1:]] == [
        ["kip848", "kip848", f"{index}", "-", "0", "-", "one"] for index in (0, 1)
    ]


def test_a_group_that_does_not_exist_causes_no_refused_request(
    refused: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    ask = Cluster.ask_node
    monkeypatch.setattr(
        Cluster, "ask_node", lambda self, node, api, *rest: asked.append(api) or ask(self, node, api, *rest)
    )
    assert refused("group", "describe", "xyzzy-group") == (1, "Error: there is no group xyzzy-group\n")
    assert set(asked) == {"list_groups"}


def test_a_group_without_offsets_has_a_row_for_each_partition_of_its_members(
    run: Run, of_consumers: str
) -> None:
    assert [line.split()[:6] for line in run("group", "lag", of_consumers).splitlines()[1:]] == [
        [f"kip848-{index}", "-", "0", "0", "-", "0"] for index in (0, 1)
    ]


def test_an_offset_that_an_open_transaction_commits_is_pending(
    cluster_of_two: package.Broker,
    cluster: Cluster,
    run: Run,
    refused: Callable[..., tuple[int, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "unstable"
    run("topic", "create", f"{name}:2")
    run("produce", f"{name}", "-p", "0", *"abc")
    fetch_offsets(cluster, name)  # waits for the coordinator
    settings = {**PATIENCE, "bootstrap.servers": cluster_of_two.bootstrap_servers}
    producer, consumer = (
        Producer({**settings, "transactional.id": name}),
        Consumer({**settings, "group.id": name}),
    )
    producer.init_transactions()
    producer.begin_transaction()
    offsets = [TopicPartition(name, 0, 2), TopicPartition(name, 1, 0)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
    # Nothing is committed yet, so the group has no topic whose partitions the command could look up.
    rows = run("group", "lag", name).splitlines()[1:]
    assert [row.split()[:3] for row in rows] == [
        ["unstable-0", "(pending)", "3"],
        ["unstable-1", "(pending)", "0"],
    ]
    monkeypatch.setattr("tools.client.cluster.RETRY_S", -1)
    assert refused("consume", f"{name}/0", "-g", name) == (
        1,
        "Error: group unstable, whose offset in unstable-0 depends on an open transaction: UNSTABLE_OFFSET_COMMIT\n",
    )
    monkeypatch.undo()
    producer.commit_transaction()
    producer.begin_transaction()
    producer.send_offsets_to_transaction(offsets[:1], consumer.consumer_group_metadata())
    at, other = json.loads(run("group", "lag", name, "--json"))
    assert (at["committed_offset"], at["pending"], at["lag"]) == (2, True, 1)
    assert (other["committed_offset"], other["pending"]) == (0, False)
    assert "  2 (pending)  " in run("group", "lag", name)
    producer.abort_transaction()
    assert run("consume", f"{name}/0", "-g", name, "--format", "%v") == "c"
    consumer.close()
