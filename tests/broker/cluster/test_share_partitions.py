"""Members of share groups on real connections: when connections close, locks run out, nodes stop and leaders move."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.metadata.values import NO_LEADER
from tests.support.share_group import ACCEPT, RELEASE, ShareBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ShareBroker]:
    with ShareBroker(tmp_path) as broker:
        broker.begin()
        yield broker


def test_a_closed_connection_releases_the_records_of_its_session(broker: ShareBroker) -> None:
    first, second = broker.members("m1", "m2")
    assert first.fetch() == [(0, 4, 1)]
    assert second.fetch() == []
    first.wire.close()
    assert second.fetch_until_acquired() == [(0, 4, 2)]
    second.wire.close()


def test_locks_run_out_by_the_clock_of_groups(broker: ShareBroker) -> None:
    first, second = broker.members("m1", "m2")
    assert first.fetch() == [(0, 4, 1)]
    broker.advance("29s", ["groups"])
    assert second.fetch() == []
    broker.advance("1s", ["groups"])
    assert second.fetch() == [(0, 4, 2)]
    first.wire.close()
    second.wire.close()


def test_a_crash_forgets_what_was_only_acquired(broker: ShareBroker) -> None:
    """As Kafka: records of a killed broker are available with the delivery count that was written last."""
    (member,) = broker.members("m1")
    assert member.fetch() == [(0, 4, 1)]
    assert member.acknowledge((0, 1, RELEASE)) == 0
    assert member.fetch() == [(0, 1, 2)]
    broker.call(lambda: broker.cluster.kill_node(1))
    broker.run(broker.cluster.start_node(1))
    member.wire.close()
    (member,) = broker.members("m1")
    assert member.fetch_until_acquired() == [(0, 1, 2), (2, 4, 1)]
    member.wire.close()


def test_a_broker_that_stops_releases_the_records_of_its_sessions(tmp_path: Path) -> None:
    with ShareBroker(tmp_path) as broker:
        broker.begin()
        (member,) = broker.members("m1")
        assert member.fetch() == [(0, 4, 1)]
    member.wire.close()
    with ShareBroker(tmp_path) as broker:
        (member,) = broker.members("m1")
        assert member.fetch_until_acquired() == [(0, 4, 2)]
        member.wire.close()


def test_a_new_leader_continues_with_the_stored_state(tmp_path: Path) -> None:
    with ShareBroker(tmp_path, nodes=3) as broker:
        broker.begin()
        leader = broker.leader
        (member,) = broker.members("m1")
        assert member.fetch_until_acquired() == [(0, 4, 1)]
        assert member.acknowledge((0, 1, ACCEPT), (2, 2, RELEASE)) == 0
        broker.call(lambda: broker.cluster.kill_node(leader))
        member.wire.close()
        while broker.leader in (leader, NO_LEADER):
            pass
        (member,) = broker.members("m1")
        assert member.fetch_until_acquired() == [(2, 2, 2), (3, 4, 1)]
        member.wire.close()
