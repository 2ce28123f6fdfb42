"""Members of share groups on real connections: when connections close, locks run out, nodes stop and leaders move."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from broker.loop.coroutines import start
from broker.metadata.features import SHARE_VERSION
from broker.metadata.values import NO_LEADER
from broker.share.state import Initialization
from protocol.batch import build_batch
from tests.support import raw
from tests.support.in_process import InProcess

TOPIC = "orders"
GROUP = "g"
ACCEPT, RELEASE = 1, 2

Acquired = list[tuple[int, int, int]]


class Broker(InProcess):
    """A broker whose topic has five records in a partition that the group g reads from the start."""

    def __init__(self, path: Path, nodes: int = 1) -> None:
        arguments = ("--nodes", str(nodes), "--set=share.coordinator.state.topic.num.partitions=3")
        super().__init__(path, "--topic", f"{TOPIC}:1", *arguments)

    def begin(self) -> None:
        self.run(self._initialize())
        batch = build_batch([(1, None, b"x")] * 5)
        data = [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}]
        producer = Member(self, "producer", self.leader)
        producer.ask("produce", 9, acks=-1, timeout=1000, transactional_id=None, topic_data=data)
        producer.wire.close()

    async def _initialize(self) -> None:
        metadata = self.cluster.metadata
        metadata.image.features[SHARE_VERSION] = 2
        self.topic_id: UUID = metadata.topics[TOPIC].topic_id
        node = self.cluster.running_nodes()[0]
        outcome = start(node.persister.initialize(GROUP, [Initialization(self.topic_id, 0, 1, 0)]), node.life)
        (initialized,) = await outcome if isinstance(outcome, asyncio.Future) else outcome
        assert initialized.error == 0, initialized

    @property
    def leader(self) -> int:
        return self.call(lambda: self.cluster.metadata.topics[TOPIC].partitions[0].leader)

    def members(self, *names: str) -> list[Member]:
        """Members with connections to the leader."""
        return [Member(self, name, self.leader) for name in names]


class Member:
    """A member of the share group, with one connection."""

    def __init__(self, broker: Broker, name: str, node_id: int) -> None:
        self.wire = raw.Wire(
            "127.0.0.1", broker.call(lambda: broker.cluster.nodes[node_id].listeners[0].port)
        )
        self._session = {"group_id": GROUP, "member_id": name}
        self._topic_id = broker.topic_id
        self._epoch = 0

    def ask(self, api: str, version: int, **body: Any) -> dict[str, Any]:
        self.wire.send_frame(raw.encode_request(api, version, body, 1))
        return raw.decode_response(api, version, self.wire.receive_frame())[1]

    def _share(self, api: str, *batches: tuple[int, int, int], **more: Any) -> dict[str, Any]:
        """Send a request of the share session. Returns the partition of the response, {} if there is none."""
        acknowledged = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": [kind]}
            for first, last, kind in batches
        ]
        partitions = [{"partition_index": 0, "acknowledgement_batches": acknowledged}]
        topics = [{"topic_id": self._topic_id, "partitions": partitions}]
        answer = self.ask(api, 2, **self._session, share_session_epoch=self._epoch, topics=topics, **more)
        assert answer["error_code"] == 0
        self._epoch += 1
        return answer["responses"][0]["partitions"][0] if answer["responses"] else {}

    def fetch(self) -> Acquired:
        found = self._share(
            "share_fetch",
            max_wait=0,
            min_bytes=1,
            max_records=500,
            batch_size=500,
            forgotten_topics_data=[],
        )
        assert found.get("error_code", 0) == 0
        return [
            (each["first_offset"], each["last_offset"], each["delivery_count"])
            for each in found.get("acquired_records", ())
        ]

    def fetch_until_acquired(self) -> Acquired:
        while not (found := self.fetch()):
            pass
        return found

    def acknowledge(self, *batches: tuple[int, int, int]) -> int:
        error: int = self._share("share_acknowledge", *batches)["error_code"]
        return error


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path) as broker:
        broker.begin()
        yield broker


def test_a_closed_connection_releases_the_records_of_its_session(broker: Broker) -> None:
    first, second = broker.members("m1", "m2")
    assert first.fetch() == [(0, 4, 1)]
    assert second.fetch() == []
    first.wire.close()
    assert second.fetch_until_acquired() == [(0, 4, 2)]
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


def test_a_crash_forgets_what_was_only_acquired(broker: Broker) -> None:
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
    with Broker(tmp_path) as broker:
        broker.begin()
        (member,) = broker.members("m1")
        assert member.fetch() == [(0, 4, 1)]
    member.wire.close()
    with Broker(tmp_path) as broker:
        broker.call(lambda: broker.cluster.metadata.image.features.update({SHARE_VERSION: 2}))
        broker.topic_id = broker.call(lambda: broker.cluster.metadata.topics[TOPIC].topic_id)
        (member,) = broker.members("m1")
        assert member.fetch_until_acquired() == [(0, 4, 2)]
        member.wire.close()


def test_a_new_leader_continues_with_the_stored_state(tmp_path: Path) -> None:
    with Broker(tmp_path, nodes=3) as broker:
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
