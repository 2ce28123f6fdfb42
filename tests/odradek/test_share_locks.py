"""Acquisition locks of share groups expire by the clock of groups, which the handle and the control port advance."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator

import pytest

import odradek
from broker.share.state import SharePartitionKey
from protocol.batch import build_batch
from tests.support.clients import eventually
from tests.support.share_group import GROUP, TOPIC, Member


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker(topics={TOPIC: 1}) as broker:
        yield broker


def by_handle(broker: odradek.Broker) -> None:
    broker.clock.advance("1h", only=["groups"])


def by_control_port(broker: odradek.Broker) -> None:
    assert broker.control_url is not None
    request = urllib.request.Request(
        f"{broker.control_url}/v1/clock/advance",
        json.dumps({"by": "1h", "only": ["groups"]}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:
        assert response.status == 200


def initialize(member: Member) -> bool:
    """Initialize the share partition, as the group coordinator does. False while the coordinator's topic is created."""
    key = SharePartitionKey(GROUP, member.topic_id, 0).coordinator_key
    member.ask("find_coordinator", 6, key_type=2, coordinator_keys=[key])
    partition = {"partition": 0, "state_epoch": 0, "start_offset": 0}
    topics = [{"topic_id": member.topic_id, "partitions": [partition]}]
    answer = member.ask("initialize_share_group_state", 0, group_id=GROUP, topics=topics)
    return answer["results"][0]["partitions"][0]["error_code"] == 0


@pytest.mark.parametrize("advance", [by_handle, by_control_port])
def test_records_that_were_not_acknowledged_come_again(
    broker: odradek.Broker, advance: Callable[[odradek.Broker], None]
) -> None:
    broker.reset()
    port = int(broker.bootstrap_servers.rpartition(":")[2])
    first, second = Member(port, "m1"), Member(port, "m2")
    eventually(lambda: initialize(first))
    batch = build_batch([(1, None, b"x")] * 5)
    data = [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}]
    first.ask("produce", 9, acks=-1, timeout=1000, transactional_id=None, topic_data=data)
    for count in (1, 2):
        assert first.fetch_until_acquired() == [(0, 4, count)]
        assert second.fetch() == []
        advance(broker)
    assert second.fetch() == [(0, 4, 3)]
    first.wire.close()
    second.wire.close()
