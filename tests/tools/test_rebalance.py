"""`odradek group rebalance`, seen by a member that the test implements with single requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.sync_group import SyncGroupRequest
from protocol.records.consumer_protocol import Subscription
from tests.tools.conftest import Run
from tools.client.cluster import GROUP, Cluster
from tools.client.groups import describe_group, fetch_offsets
from tools.client.rebalancing import _take_in, rebalance_group


def join(cluster: Cluster, group: str, member_id: str = "") -> Any:
    protocol = JoinGroupRequestProtocol(name="range", metadata=Subscription(topics=("r",)).encode(0))
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )
    return cluster.ask_coordinator(GROUP, group, "join_group", request)


def test_a_classic_group_rebalances_once_and_without_the_command(cluster: Cluster, run: Run) -> None:
    group = "b1"
    fetch_offsets(cluster, group)  # waits for the coordinator
    joined = join(cluster, group, join(cluster, group).member_id)
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
    )
    assert cluster.ask_coordinator(GROUP, group, "sync_group", sync).error_code == 0
    assert describe_group(cluster, group).state == "Stable"
    assert json.loads(run("group", "rebalance", group, "--json")) == {"group": group, "members": 1}
    beat = HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
    error = cluster.ask_coordinator(GROUP, group, "heartbeat", beat).error_code
    assert error == ErrorCode.rebalance_in_progress
    again = join(cluster, group, joined.member_id)
    assert (again.error_code, again.generation_id) == (0, joined.generation_id + 1)
    assert [each.member_id for each in again.members] == [joined.member_id]


@pytest.mark.more
def test_a_group_of_the_consumer_protocol_gives_partitions_up_and_gets_them_back(
    cluster: Cluster, run: Run
) -> None:
    group = "b2"
    fetch_offsets(cluster, group)  # waits for the coordinator
    run("topic", "create", "b2:2")
    beat = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="one",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=["b2"],
        topic_partitions=[],
    )

    def owned() -> int:
        response = cluster.ask_coordinator(GROUP, group, "consumer_group_heartbeat", beat)
        assert response.error_code == 0, response
        _take_in(beat, response)
        return sum(len(each.partitions) for each in beat.topic_partitions or ())

    while owned() < 2:
        pass
    with cluster.another() as other, ThreadPoolExecutor(1) as executor:
        done = executor.submit(rebalance_group, other, group, 30)
        fewest = 2
        while not done.done():
            fewest = min(fewest, owned())
        assert done.result() == 1
    assert fewest == 1
    while owned() < 2:
        pass


def test_without_members_there_is_nothing_to_rebalance(
    run: Run, refused: Callable[..., tuple[int, str]]
) -> None:
    assert refused("group", "rebalance", "b3") == (1, "Error: there is no group b3\n")
    run("produce", "b4", "a")
    run("consume", "b4", "-g", "b4")
    assert refused("group", "rebalance", "b4") == (1, "Error: group b4 has no members\n")
