"""Members of share groups on real connections: a connection that closes, locks that run out, a node that stops."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from broker.metadata.features import SHARE_VERSION
from broker.share.manager import SharePartitionManager
from broker.share.state import SharePartitionKey, StateBatch, StoredState
from protocol.batch import build_batch
from tests.broker.share.world import FakePersister
from tests.support import raw
from tests.support.in_process import InProcess

TOPIC = "orders"


class Member:
    """A member of the share group g, with one connection to node 1."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.wire = raw.Wire("127.0.0.1", broker.call(lambda: broker.cluster.nodes[1].listeners[0].port))
        self._name = name
        self._topic_id = broker.topic_id
        self.epoch = 0

    def ask(self, api: str, version: int, **body: Any) -> dict[str, Any]:
        self.wire.send_frame(raw.encode_request(api, version, body, 1))
        return raw.decode_response(api, version, self.wire.receive_frame())[1]

    def fetch(self) -> list[tuple[int, int, int]]:
        partitions = [{"partition_index": 0, "acknowledgement_batches": []}]
        answer = self.ask(
            "share_fetch",
            2,
            group_id="g",
            member_id=self._name,
            share_session_epoch=self.epoch,
            max_wait=0,
            min_bytes=1,
            max_records=500,
            batch_size=500,
            topics=[{"topic_id": self._topic_id, "partitions": partitions}],
            forgotten_topics_data=[],
        )
        assert answer["error_code"] == 0
        self.epoch += 1
        return [
            (each["first_offset"], each["last_offset"], each["delivery_count"])
            for topic in answer["responses"]
            for partition in topic["partitions"]
            for each in partition["acquired_records"]
        ]


class Broker(InProcess):
    """A broker of one node, whose share coordinator is a dictionary."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "--topic", f"{TOPIC}:1")
        self.persister = FakePersister()

    def begin(self) -> None:
        self.call(self._begin)

    def _begin(self) -> None:
        (node,) = self.cluster.running_nodes()
        node.metadata.image.features[SHARE_VERSION] = 2
        self.topic_id: UUID = node.metadata.topics[TOPIC].topic_id
        key = SharePartitionKey("g", self.topic_id, 0)
        self.persister.states.setdefault(key, StoredState(1, 0, 0, 0))
        node.share = SharePartitionManager(
            node.config,
            node.clock,
            node.metadata,
            node.replicas,
            self.persister,
            node.peers,
            node.slices,
            node.life,
        )

    def members(self, *names: str) -> list[Member]:
        return [Member(self, name) for name in names]

    def produce(self) -> None:
        (producer,) = self.members("producer")
        batch = build_batch([(1, None, b"x")] * 5)
        data = [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}]
        producer.ask("produce", 9, acks=-1, timeout=1000, transactional_id=None, topic_data=data)
        producer.wire.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path) as broker:
        broker.begin()
        broker.produce()
        yield broker


def test_a_closed_connection_releases_the_records_of_its_session(broker: Broker) -> None:
    first, second = broker.members("m1", "m2")
    assert first.fetch() == [(0, 4, 1)]
    assert second.fetch() == []
    first.wire.close()
    while not (found := second.fetch()):
        pass
    assert found == [(0, 4, 2)]
    second.wire.close()


def test_locks_run_out_by_the_clock_of_groups(broker: Broker) -> None:
    first, second = broker.members("m1", "m2")
    assert first.fetch() == [(0, 4, 1)]
    broker.advance("29s", ["groups"])
    assert second.fetch() == []
    broker.advance("1s", ["groups"])
    assert second.fetch() == [(0, 4, 2)]
    first.wire.close()
    second.wire.close()


def test_a_broker_that_is_killed_releases_nothing(broker: Broker) -> None:
    (member,) = broker.members("m1")
    assert member.fetch() == [(0, 4, 1)]
    broker.call(lambda: broker.cluster.kill_node(1))
    assert broker.persister.written == []
    broker.run(broker.cluster.start_node(1))
    broker.begin()
    member.wire.close()
    (member,) = broker.members("m1")
    assert member.fetch() == [(0, 4, 1)]
    member.wire.close()


def test_a_broker_that_stops_releases_the_records_of_its_sessions(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        broker.begin()
        broker.produce()
        (member,) = broker.members("m1")
        assert member.fetch() == [(0, 4, 1)]
    assert [state.batches for state in broker.persister.written] == [[StateBatch(0, 4, 0, 1)]]
    member.wire.close()
