"""Consumers fetch from leaders and followers, and get a preferred replica in their rack. Other requests need the leader."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from broker.apis.fetch import fetch as fetch_handler
from broker.apis.list_offsets import list_offsets as list_offsets_handler
from broker.apis.offset_for_leader_epoch import offset_for_leader_epoch
from broker.loop.life import NodeLife
from broker.loop.slices import Slices
from broker.node import Listener
from broker.node.context import RequestContext
from broker.node.fetch_sessions import FetchSessionCache
from broker.replicas.replication.selection import RACK_AWARE
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.replicas.replication.conftest import MakeNodes
from tests.support.coroutines import served
from tests.support.nodes import TOPIC, Nodes

fetch = served(fetch_handler)
list_offsets = served(list_offsets_handler)

OK = ErrorCode.none
LISTENER = Listener("PLAINTEXT", "", 9092, "localhost", 9092)
LATEST = -1


@pytest.fixture
def racks(make_nodes: MakeNodes) -> Nodes:
    """Three nodes with a rack-aware replica selector: node k is in rack ``rk``."""
    nodes = make_nodes(3, replica_selector_class=RACK_AWARE)
    for node_id, broker in nodes.controller.brokers.items():
        nodes.controller.brokers[node_id] = replace(broker, rack=f"r{node_id}")
    nodes.create()
    return nodes


def context(nodes: Nodes, node_id: int, version: int, api_key: int = 1) -> RequestContext:
    node: Any = SimpleNamespace(
        life=NodeLife(),
        slices=Slices(),
        node_id=node_id,
        clock=nodes.clock,
        config=nodes.config,
        metadata=nodes.controller,
        replicas=nodes.running[node_id],
        fetch_sessions=FetchSessionCache(10, lambda: 1),
        authorizer=None,
        quotas=SimpleNamespace(are_set=False),
    )
    return RequestContext(node, LISTENER, api_key, version, "test", "/127.0.0.1")


def ask(
    nodes: Nodes, node_id: int, offset: int = 0, *, version: int = 12, rack: str = "", **more: Any
) -> PartitionData:
    wanted = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, **{"current_leader_epoch": -1, **more}
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=TOPIC, partitions=[wanted])],
        rack_id=rack,
    )
    answer: Any = fetch(request, context(nodes, node_id, version))
    partition: PartitionData = answer.responses[0].partitions[0]
    return partition


def test_a_follower_serves_records_below_its_high_watermark(nodes: Nodes):
    nodes.create()
    nodes.append(b"a")
    nodes.injection.links.pause(3)
    nodes.append(b"b")
    at_leader, at_follower = ask(nodes, 1), ask(nodes, 2)
    assert at_follower.error_code == OK
    assert (at_follower.records, at_follower.high_watermark) == (at_leader.records, 1)
    beyond = ask(nodes, 2, 2)
    assert (beyond.error_code, beyond.records, beyond.high_watermark) == (OK, b"", 1)
    assert ask(nodes, 3, 2).error_code == ErrorCode.offset_out_of_range


def test_before_kip_392_only_the_leader_is_read_from(nodes: Nodes):
    nodes.create()
    nodes.append(b"a")
    assert ask(nodes, 2, version=10).error_code == ErrorCode.not_leader_or_follower
    assert ask(nodes, 1, version=10).error_code == OK


def test_a_node_without_a_replica_is_not_read_from(nodes: Nodes):
    nodes.create([1, 2])
    assert ask(nodes, 3).error_code == ErrorCode.not_leader_or_follower


def test_a_follower_checks_epochs_too(nodes: Nodes):
    nodes.create()
    nodes.append(b"a")
    nodes.lead(2)
    assert ask(nodes, 3, current_leader_epoch=0).error_code == ErrorCode.fenced_leader_epoch
    assert ask(nodes, 3, current_leader_epoch=2).error_code == ErrorCode.unknown_leader_epoch
    assert ask(nodes, 3, current_leader_epoch=1).error_code == OK


def test_a_consumer_is_sent_to_the_follower_in_its_rack(racks: Nodes):
    racks.append(b"a")
    answer = ask(racks, 1, rack="r3")
    assert (answer.preferred_read_replica, answer.records, answer.error_code) == (3, b"", OK)
    assert answer.high_watermark == 1
    served = ask(racks, 3, rack="r3")
    assert served.preferred_read_replica == -1
    assert served.records


@pytest.mark.parametrize("rack", ["", "r1", "elsewhere"])
def test_without_a_replica_in_the_rack_the_leader_serves(racks: Nodes, rack: str):
    racks.append(b"a")
    answer = ask(racks, 1, rack=rack)
    assert answer.preferred_read_replica == -1
    assert answer.records


def test_a_follower_that_has_not_the_offset_or_is_not_in_sync_is_not_preferred(racks: Nodes):
    racks.append(b"a")
    racks.injection.links.pause(3)
    racks.append(b"b")
    assert ask(racks, 1, 2, rack="r3").preferred_read_replica == -1
    assert ask(racks, 1, 1, rack="r3").preferred_read_replica == 3
    racks.lose(3)
    assert ask(racks, 1, 1, rack="r3").preferred_read_replica == -1


def test_without_the_selector_racks_mean_nothing(nodes: Nodes):
    nodes.controller.brokers[3] = replace(nodes.controller.brokers[3], rack="r3")
    nodes.create()
    nodes.append(b"a")
    assert ask(nodes, 1, rack="r3").preferred_read_replica == -1


def list_latest(nodes: Nodes, node_id: int, version: int = 5) -> tuple[int, int]:
    asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=LATEST)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked])]
    )
    answer = list_offsets(request, context(nodes, node_id, version, 2)).topics[0].partitions[0]
    return answer.error_code, answer.offset


async def test_a_new_leader_says_where_the_end_is_once_its_followers_have_told_it(nodes: Nodes):
    nodes.create(min_isr=2)
    nodes.append(b"a")
    nodes.injection.links.cut(1, 2)
    nodes.injection.links.cut(2, 3)
    nodes.injection.links.pause(3)
    nodes.append(b"b", acks=1)
    assert list_latest(nodes, 2) == (ErrorCode.not_leader_or_follower, -1)
    nodes.injection.links.mend(1, 2)
    await nodes.settle()
    assert nodes.ends() == {1: (1, 2), 2: (1, 2), 3: (1, 1)}
    nodes.kill(1)
    assert list_latest(nodes, 2) == (ErrorCode.offset_not_available, -1)
    assert list_latest(nodes, 2, version=4) == (ErrorCode.leader_not_available, -1)
    nodes.injection.links.mend(2, 3)
    nodes.injection.links.resume(3)
    await nodes.settle()
    assert list_latest(nodes, 2) == (OK, 2)


def end_of_epoch(nodes: Nodes, node_id: int, epoch: int, current: int = -1) -> tuple[int, int, int]:
    asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=[asked])]
    )
    answer = offset_for_leader_epoch(request, context(nodes, node_id, 4, 23)).topics[0].partitions[0]
    return answer.error_code, answer.leader_epoch, answer.end_offset


async def test_only_the_leader_serves_offset_for_leader_epoch(nodes: Nodes):
    nodes.create()
    nodes.append(b"a")
    nodes.lead(2)
    await nodes.settle()
    nodes.append(b"b")
    assert end_of_epoch(nodes, 2, 0) == (OK, 0, 1)
    assert end_of_epoch(nodes, 2, 1) == (OK, 1, 2)
    assert end_of_epoch(nodes, 2, 0, current=0)[0] == ErrorCode.fenced_leader_epoch
    assert end_of_epoch(nodes, 3, 0)[0] == ErrorCode.not_leader_or_follower
