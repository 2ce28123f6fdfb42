"""What must hold inside of the cluster at any moment, and what a rebuilt coordinator must remember.

A client sees a broken rule late or never: who joins the ISR too early does harm only if it leads next. So the run looks
into all nodes once in a virtual second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from broker.cluster import Cluster
from broker.groups.group import Rules
from broker.groups.memory import Memory
from broker.node import Node
from broker.partition import Partition
from broker.transactions.home import Home
from broker.transactions.loading import reading
from broker.transactions.state import NO_EPOCH
from storage.producers import NO_OFFSET, Producers
from tests.simulation.ledger import Broken, Spot

LOOK_EACH_S: Final = 1.0


class Watch:
    """Looks at all replicas of a cluster, and remembers how far each had come."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seen: dict[Partition, tuple[int, int, int]] = {}
        """Of each leader: (leader epoch, high watermark, LSO)."""
        self._committed: dict[Spot, tuple[int, int]] = {}
        """The highest high watermark that a leader ever had, and in which epoch the record before it was written."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EACH_S)
            self.look()

    def look(self) -> None:
        """``Broken`` if a rule does not hold now."""
        replicas = {
            (node.node_id, (partition.topic, partition.index)): partition
            for node in self._cluster.running_nodes()
            for partition in node.replicas.opened()
            if partition.offline is None
        }
        for (node_id, spot), partition in replicas.items():
            _check_bounds(node_id, spot, partition)
        seen = {}
        for name, topic in self._cluster.metadata.topics.items():
            for state in topic.partitions:
                spot = (name, state.index)
                leader = replicas.get((state.leader, spot))
                if leader is None or leader.leader_epoch != state.leader_epoch:
                    continue
                seen[leader] = self._check_progress(spot, leader)
                for node_id in state.isr:
                    replica = replicas.get((node_id, spot))
                    if replica is not None:
                        self._check_in_sync(spot, node_id, replica)
        self._seen = seen

    def _check_progress(self, spot: Spot, leader: Partition) -> tuple[int, int, int]:
        """On one leader, in one epoch, neither high watermark nor LSO goes back."""
        now = (leader.leader_epoch, leader.high_watermark, leader.last_stable_offset)
        before = self._seen.get(leader, now)
        if before[0] == now[0] and (now[1] < before[1] or now[2] < before[2]):
            raise Broken(f"{spot}: (epoch, high watermark, LSO) of the leader was {before}, is {now}")
        if now[1] > self._committed.get(spot, (0, -1))[0]:
            self._committed[spot] = now[1], leader.log.epochs.epoch_for_offset(now[1] - 1)
        return now

    def _check_in_sync(self, spot: Spot, node_id: int, replica: Partition) -> None:
        """Who is in sync, the leader too, has all that was ever committed, written by the same leaders.

        Not only what is below this leader's high watermark: one that has just taken over does not know yet how far
        its predecessor had come, and who joins the ISR meanwhile may lead next.
        """
        committed, epoch = self._committed.get(spot, (0, -1))
        if replica.log_end_offset < committed:
            raise Broken(
                f"{spot}: {committed} offsets were committed, and node {node_id}, "
                f"which is in sync, has {replica.log_end_offset}"
            )
        if committed > replica.log_start_offset:
            found = replica.log.epochs.epoch_for_offset(committed - 1)
            if found != epoch:
                raise Broken(
                    f"{spot}: offset {committed - 1} was committed in epoch {epoch}, "
                    f"and is of epoch {found} on node {node_id}, which is in sync"
                )


def _check_bounds(node_id: int, spot: Spot, partition: Partition) -> None:
    ends = (partition.log_start_offset, partition.high_watermark, partition.log_end_offset)
    if list(ends) != sorted(ends) or partition.last_stable_offset > partition.high_watermark:
        raise Broken(
            f"{spot} on node {node_id}: log start, high watermark, log end are {ends}, "
            f"the LSO is {partition.last_stable_offset}"
        )


# ---- a memory is a view of its log


def check_memories(nodes: Iterable[Node]) -> None:
    """Coordinators and producer states are what their logs say, field by field. Give nodes at rest."""
    for node in nodes:
        for name, remembered, rebuilt in _memories(node):
            if remembered != rebuilt:
                raise Broken(f"{name} on node {node.node_id}: in memory {remembered}, in the log {rebuilt}")


def _memories(node: Node) -> Iterator[tuple[str, Any, Any]]:
    for index, home in node.transactions._homes.items():
        # A value of version 0 has none of the fields of KIP-890.
        tagged = node.metadata.features.get("transaction.version", 0) > 0
        yield (
            f"transactions of partition {index}",
            _of_home(home, tagged=tagged),
            _of_home(_read(home), tagged=tagged),
        )
    for index, shard in node.groups._shards.items():
        if not shard.loading:
            rebuilt = Memory(Rules(initial_rebalance_delay_ms=0, group_size_max=1 << 30))
            for batch in shard.partition.log.batches():
                rebuilt.replay(batch)
            rebuilt.settle()
            yield f"offsets of partition {index}", shard.memory.image(), rebuilt.image()
    for partition in node.replicas.opened():
        if partition.offline is None:
            yield f"producers of {partition.topic}-{partition.index}", *_producers(partition)


def _read(home: Home) -> Home:
    rebuilt = Home(home.partition, home.coordinator_epoch, home.leader_id)
    for _ in reading(rebuilt):
        pass
    return rebuilt


def _of_home(home: Home, *, tagged: bool) -> dict[str, Any]:
    # The epoch before lives in memory only (as in Kafka's TransactionMetadata), and so does a fence not written.
    forgotten: dict[str, Any] = {"last_epoch": NO_EPOCH}
    if not tagged:
        forgotten |= {"previous_producer_id": -1, "next_producer_id": -1, "client_version": 0}
    return {
        name: replace(entry.txn, **forgotten)
        for name, entry in sorted(home.entries.items())
        if not entry.failed_fence and entry.txn.epoch != NO_EPOCH
    }


def _producers(partition: Partition) -> tuple[Any, Any]:
    """Of each producer that the log still knows: epoch, last sequence, open transaction."""
    rebuilt = Producers()
    for batch in partition.log.batches():
        rebuilt.replay(batch)
    known = rebuilt.entries.keys() & partition.log.producers.entries.keys()
    remembered, read = (
        {
            producer_id: (entry.epoch, entry.last_sequence, entry.current_txn_first_offset != NO_OFFSET)
            for producer_id, entry in sorted(producers.entries.items())
            if producer_id in known
        }
        for producers in (partition.log.producers, rebuilt)
    )
    return remembered, read
