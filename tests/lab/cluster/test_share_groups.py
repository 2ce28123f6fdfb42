"""Share groups after a restore and after a reset: what comes back, and what the nodes before no longer do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.clock import Domain, is_dead
from broker.groups.share.group import ShareGroup
from broker.metadata.topics import SHARE_GROUP_STATE
from broker.metadata.values import GROUP_RESOURCE
from lab.cluster.reset import reset
from lab.cluster.snapshots import Snapshots
from tests.support.clients import eventually
from tests.support.share_group import ACCEPT, GROUP, RELEASE, TOPIC, Member, ShareBroker


@pytest.fixture(params=[1, 3], ids=["one node", "three nodes"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ShareBroker]:
    settings = {
        "default.replication.factor": request.param,
        "share.coordinator.state.topic.replication.factor": request.param,
    }
    with ShareBroker(tmp_path, nodes=request.param, settings=settings) as broker:
        begin(broker)
        yield broker


def begin(broker: ShareBroker) -> None:
    """Produce five records, and let a member join the group, which reads from the start."""
    broker.produce(5)
    configs = {"share.auto.offset.reset": "earliest"}
    broker.run(broker.cluster.metadata.change_config(GROUP_RESOURCE, GROUP, configs))
    join(broker, "m1")
    eventually(lambda: any(each.state_epoch > 0 for each in states(broker).values()))


def states(broker: ShareBroker) -> dict[object, Any]:
    """What the share coordinators know."""
    return broker.call(
        lambda: {
            key: offset.stored
            for node in broker.cluster.running_nodes()
            for key, offset in node.share_coordinator.known()
        }
    )


def join(broker: ShareBroker, name: str) -> None:
    """Let a member of the group send its first heartbeat, to whichever node coordinates the group."""
    ports = broker.call(lambda: [each.listeners[0].port for each in broker.cluster.nodes.values()])
    error = -1
    while error:
        for port in ports:
            member = Member(port, name)
            member.ask("find_coordinator", 6, key_type=0, coordinator_keys=[GROUP])
            body = {
                "group_id": GROUP,
                "member_id": name,
                "member_epoch": 0,
                "subscribed_topic_names": [TOPIC],
            }
            error = member.ask("share_group_heartbeat", 1, **body)["error_code"]
            member.wire.close()
            if not error:
                return


def groups(broker: ShareBroker) -> dict[str, Any]:
    return broker.call(
        lambda: {
            group.group_id: group.image()
            for node in broker.cluster.running_nodes()
            for group, _ in node.groups.known()
            if isinstance(group, ShareGroup)
        }
    )


def test_a_restore_brings_back_the_group_and_its_delivery_counts(broker: ShareBroker) -> None:
    """Acquisitions and locks were not written, so they are lost, as when the leader starts again."""
    snapshots = Snapshots(broker.cluster)
    (member,) = broker.members("m1")
    assert member.fetch_until_acquired() == [(0, 4, 1)]
    assert member.acknowledge((0, 0, ACCEPT), (1, 1, RELEASE)) == 0
    assert member.fetch() == [(1, 1, 2)]
    before = states(broker), groups(broker)
    snapshot = broker.run(snapshots.take())
    assert member.acknowledge((1, 4, ACCEPT)) == 0, "a snapshot ends no session"
    member.wire.close()
    for _ in range(2):
        join(broker, "m2")
        broker.initialize("another")
        assert (states(broker), groups(broker)) != before
        broker.run(snapshots.restore(snapshot.id))
        assert (states(broker), groups(broker)) == before
        (member,) = broker.members("m1")
        assert member.fetch_until_acquired() == [(1, 1, 2), (2, 4, 1)]
        assert member.acknowledge((1, 4, ACCEPT)) == 0
        member.wire.close()


def test_a_reset_leaves_nothing_of_share_groups(broker: ShareBroker) -> None:
    holder, waiting = broker.members("m1", "m2")
    assert holder.fetch_until_acquired() == [(0, 4, 1)]
    waiting.send_fetch(max_wait=3_600_000)
    rule = broker.stage("share.write -> hold")
    holder.send_acknowledge((0, 4, ACCEPT))
    broker.reached(rule)
    broker.run(reset(broker.cluster, broker.faults.clear))
    assert holder.is_hung_up()
    assert waiting.is_hung_up()
    holder.wire.close()
    waiting.wire.close()
    assert (states(broker), groups(broker)) == ({}, {})
    assert (
        broker.call(
            lambda: [node.share.loaded() for node in broker.cluster.running_nodes() if node.share.loaded()]
        )
        == []
    )
    assert broker.call(lambda: SHARE_GROUP_STATE not in broker.cluster.metadata.topics)
    assert broker.call(lambda: dead_timers(broker)) == []
    broker.advance("1h", ["groups"])  # of the acknowledgement's locks
    begin(broker)
    (member,) = broker.members("m1")
    assert member.fetch_until_acquired() == [(0, 4, 1)]
    member.wire.close()


def dead_timers(broker: ShareBroker) -> list[object]:
    return [timer for domain in Domain for timer in broker.clock.timers(domain) if is_dead(timer.callback)]
