"""Share coordinators on three nodes, which the persisters of all nodes ask by requests, while nodes die and come back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.loop.coroutines import start
from broker.share.persister import Persister
from broker.share.state import Initialization, SharePartitionKey, StateBatch, StoredState
from tests.support.clients import eventually
from tests.support.in_process import InProcess

PARTITIONS = 12


class Cluster:
    """Three nodes, and the persister of each."""

    def __init__(self, broker: InProcess) -> None:
        self.broker = broker
        topic = broker.cluster.metadata.topic("t")
        assert topic is not None
        self.topic_id = topic.topic_id

    def ask(self, node_id: int, ask: Callable[[Persister], Coroutine[Any, Any, Any]]) -> Any:
        """Call a persister. Advances the clock while the persister waits for its next attempt."""

        async def begin() -> Any:
            node = self.broker.cluster.running(node_id)
            assert node is not None
            return start(ask(node.persister), node.life)

        value = self.broker.run(begin())
        if isinstance(value, asyncio.Future):

            def is_done() -> bool:
                self.broker.advance("1s", ["groups"])
                return value.done()

            eventually(is_done)
            value = value.result()
        return value

    def key(self, partition: int) -> SharePartitionKey:
        return SharePartitionKey("g", self.topic_id, partition)

    def initialize(self, node_id: int) -> list[int]:
        wanted = [Initialization(self.topic_id, index, 1, 0) for index in range(PARTITIONS)]
        return [each.error for each in self.ask(node_id, lambda persister: persister.initialize("g", wanted))]

    def write(self, node_id: int, partition: int, offset: int) -> int:
        state = StoredState(1, 0, 0, 1, [StateBatch(offset, offset, 2, 1)])
        outcome = self.ask(node_id, lambda persister: persister.write(self.key(partition), state))
        return int(outcome.error)

    def read(self, node_id: int, partition: int) -> StoredState:
        outcome, state = self.ask(node_id, lambda persister: persister.read(self.key(partition), 0))
        assert outcome.error == 0, outcome
        return state

    def coordinator_of(self, partition: int) -> int:
        metadata = self.broker.cluster.metadata
        node = self.broker.cluster.running_nodes()[0]
        topic = metadata.topic("__share_group_state")
        assert topic is not None
        return topic.partitions[
            node.share_coordinator.partition_for(self.key(partition).coordinator_key)
        ].leader


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = {"share.coordinator.state.topic.replication.factor": 3}
    with InProcess(tmp_path, "--nodes", "3", "--topic", f"t:{PARTITIONS}", settings=settings) as broker:
        yield Cluster(broker)


def test_states_survive_the_death_of_their_coordinator(cluster: Cluster) -> None:
    assert cluster.initialize(1) == [0] * PARTITIONS
    assert {cluster.coordinator_of(index) for index in range(PARTITIONS)} == {1, 2, 3}
    for node_id in (1, 2, 3):
        assert [cluster.write(node_id, index, 2 * node_id) for index in range(PARTITIONS)] == [0] * PARTITIONS
    written = tuple(StateBatch(2 * node_id, 2 * node_id, 2, 1) for node_id in (1, 2, 3))
    cluster.broker.call(lambda: cluster.broker.cluster.kill_node(2))
    states = [cluster.read(1, index) for index in range(PARTITIONS)]
    assert states == [StoredState(1, 0, 0, -1, written)] * PARTITIONS
    assert [cluster.write(3, index, 10) for index in range(PARTITIONS)] == [0] * PARTITIONS
    cluster.broker.run(cluster.broker.cluster.start_node(2))
    assert cluster.read(2, 0).batches == (*written, StateBatch(10, 10, 2, 1))
