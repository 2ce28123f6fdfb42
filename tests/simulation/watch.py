"""Invariants inside the cluster that hold at any time, and checks that coordinator state equals its log.

Clients notice a violation late or never: a replica that joins the ISR too early does harm only if it becomes leader. So the
run checks all nodes once per virtual second, at each change of leaders or ISR, and when a follower has truncated its log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from broker.cluster import Cluster
from broker.groups.coordinator_state import GroupCoordinatorState
from broker.groups.group import ClassicGroupConfig
from broker.metadata.listeners import MetadataListener
from broker.metadata.values import PartitionState, Topic
from broker.node import Node
from broker.replicas.partition import Partition
from broker.share.coordinator.shard import ShareCoordinatorShard
from broker.share.coordinator.state import ShareCoordinatorState
from broker.transactions.shard import TransactionShard
from broker.transactions.transaction import NO_EPOCH
from storage.log import Log
from storage.producers import NO_OFFSET, ProducerStateManager
from storage.recovery import OpenOptions, truncate
from tests.simulation.ledger import Broken, Spot
from tests.simulation.watermarks import Watermarks

LOOK_EACH_S: Final = 1.0


class Seen(NamedTuple):
    """State of a leader at the last check."""

    epoch: int
    high_watermark: int
    last_stable_offset: int
    is_short: bool
    """Whether the ISR is smaller than ``min.insync.replicas``."""


class Watch(MetadataListener):
    """Checks all replicas of a cluster, and remembers their offsets from the last check."""

    def __init__(self, cluster: Cluster, watermarks: Watermarks) -> None:
        self._cluster = cluster
        self._watermarks = watermarks
        self._seen: dict[Partition, Seen] = {}
        self._stable: dict[Partition, StableOffset] = {}
        self._is_due = False
        self.more: list[Callable[[], None]] = []
        """Further checks to make each time, such as those of reaches."""
        self._committed: dict[Spot, tuple[int, int]] = {}
        """By partition: the highest high watermark of any leader since the last unclean election, and the leader
        epoch of the last record below it."""

    async def run(self) -> None:
        self._cluster.metadata.subscribe(self)
        try:
            while True:
                await asyncio.sleep(LOOK_EACH_S)
                self.look()
        finally:
            self._cluster.metadata.unsubscribe(self)

    def on_leader_changed(self, topic: Topic, partition: PartitionState) -> None:
        if self._watermarks.elected(topic, partition):
            self._committed.pop((topic.name, partition.index), None)
        self.soon()

    def on_topic_deleted(self, topic: Topic) -> None:
        for spot in [spot for spot in self._committed if spot[0] == topic.name]:
            del self._committed[spot]

    def heard(self, event: Mapping[str, Any]) -> None:
        """Called with each line of the broker's log."""
        if event["event"] == "log truncated":
            self.soon()

    def soon(self) -> None:
        """Check in the next turn of the event loop, when the current change is complete."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._look_now)

    def _look_now(self) -> None:
        self._is_due = False
        self.look()

    def look(self) -> None:
        """Check all nodes. Raises ``Broken`` if an invariant of a replica or leader is violated."""
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
                self._watermarks.leads(leader)
                seen[leader] = self._check_progress(spot, leader)
                for node_id in state.isr:
                    replica = replicas.get((node_id, spot))
                    if replica is not None:
                        self._check_in_sync(spot, node_id, replica)
        self._watermarks.check()
        self._seen = seen
        for node in self._cluster.running_nodes():
            check_owners(node)
        for check in self.more:
            check()

    def _check_progress(self, spot: Spot, leader: Partition) -> Seen:
        """Check that within a leader epoch the high watermark and the LSO do not decrease.

        The high watermark must not increase either while the ISR is smaller than min.insync.replicas.
        """
        is_short = len(leader.isr) < min(leader.log.config.min_insync_replicas, len(leader.replicas))
        self._check_stable(spot, leader)
        now = Seen(leader.leader_epoch, leader.high_watermark, leader.last_stable_offset, is_short)
        before = self._seen.get(leader, now)
        if before.epoch == now.epoch:
            if (
                now.high_watermark < before.high_watermark
                or now.last_stable_offset < before.last_stable_offset
            ):
                raise Broken(f"{spot}: high watermark or LSO of the leader decreased from {before} to {now}")
            if before.is_short and is_short and now.high_watermark > before.high_watermark:
                raise Broken(f"{spot}: high watermark moved with too few in sync, from {before} to {now}")
        if now.high_watermark > max(self._committed.get(spot, (0, -1))[0], leader.log_start_offset):
            epoch = leader.log.epochs.epoch_for_offset(now.high_watermark - 1)
            self._committed[spot] = now.high_watermark, epoch
        return now

    def _check_stable(self, spot: Spot, leader: Partition) -> None:
        """Check that the LSO is the first offset of the transactions without a marker below the high watermark."""
        stable = self._stable.get(leader)
        if stable is None or stable.epoch != leader.leader_epoch:
            stable = self._stable[leader] = StableOffset(leader.leader_epoch, leader.log_start_offset)
        expected, found = stable.read_on(leader), leader.last_stable_offset
        # DeleteRecords may have moved the log start into a transaction, or beyond its first batches.
        is_deleted = min(found, expected) <= leader.log_start_offset
        if found == expected or is_deleted or found in stable.after_a_restart(leader):
            return
        raise Broken(f"{spot}: the LSO is {found}, but by the committed records it is {expected}")

    def _check_in_sync(self, spot: Spot, node_id: int, replica: Partition) -> None:
        """Check that a replica in the ISR, or the leader, has all committed records, with the same leader epochs.

        Records above the current leader's high watermark are included. A new leader does not know yet which of
        them its predecessor has committed, and a replica that joins the ISR meanwhile may become leader next.
        """
        committed, epoch = self._committed.get(spot, (0, -1))
        if replica.log_end_offset < committed:
            raise Broken(
                f"{spot}: all offsets below {committed} were committed, but node {node_id}, "
                f"which is in sync, has the log end {replica.log_end_offset}"
            )
        if committed > replica.log_start_offset:
            found = replica.log.epochs.epoch_for_offset(committed - 1)
            if found != epoch:
                raise Broken(
                    f"{spot}: offset {committed - 1} was committed in epoch {epoch}, "
                    f"but has epoch {found} on node {node_id}, which is in sync"
                )


def check_owners(node: Node) -> None:
    """Check that a partition belongs to at most one member of a consumer group, as assigned or as still to be revoked."""
    for shard in node.groups._runtime.open():
        for group in shard.state.consumer_groups.values():
            owners: dict[tuple[UUID, int], str] = {}
            for member in group.members.values():
                for part in (member.assigned, member.pending_revocation):
                    for topic_id, epochs in part.items():
                        for index in epochs:
                            other = owners.setdefault((topic_id, index), member.member_id)
                            if other != member.member_id:
                                raise Broken(
                                    f"group {group.group_id}: partition {index} of {topic_id} belongs to {other} "
                                    f"and to {member.member_id}"
                                )


class StableOffset:
    """The LSO of one leader, computed only from its log below the high watermark."""

    def __init__(self, epoch: int, log_start_offset: int) -> None:
        self.epoch = epoch
        self._next = log_start_offset
        self._open: dict[int, int] = {}
        """First offset of the open transaction, by producer id."""

    def read_on(self, leader: Partition) -> int:
        high_watermark = leader.high_watermark
        if self._next < high_watermark:
            for batch in leader.log.batches(self._next):
                if batch.last_offset >= high_watermark:
                    break
                if batch.is_control:
                    self._open.pop(batch.producer_id, None)
                elif batch.is_transactional:
                    self._open.setdefault(batch.producer_id, batch.base_offset)
            self._next = high_watermark
        return min(self._open.values(), default=high_watermark)

    def after_a_restart(self, leader: Partition) -> Iterator[int]:
        """Yield further LSOs that are allowed if the leader loaded its producer state from a snapshot.

        The snapshot lacks transactions that ended before it, even if their markers are above the high watermark
        (``ProducerStateManager`` does not save unreplicated transactions). Their outcome is decided: if the markers are
        lost, the coordinator writes the same markers again.
        """
        left, high_watermark = dict(self._open), leader.high_watermark
        last_snapshot = max((int(file.stem) for file in leader.log.directory.glob("*.snapshot")), default=0)
        for batch in leader.log.batches(high_watermark):
            if batch.base_offset >= last_snapshot:
                return
            if batch.is_control:
                left.pop(batch.producer_id, None)
                yield min(left.values(), default=high_watermark)


def _check_bounds(node_id: int, spot: Spot, partition: Partition) -> None:
    ends = (partition.log_start_offset, partition.high_watermark, partition.log_end_offset)
    if list(ends) != sorted(ends) or partition.last_stable_offset > partition.high_watermark:
        raise Broken(
            f"{spot} on node {node_id}: log start, high watermark, log end are {ends}, "
            f"the LSO is {partition.last_stable_offset}"
        )


# ---- state in memory equals the log


def check_memories(nodes: Iterable[Node]) -> None:
    """Check that the state of coordinators and producers in memory equals the state rebuilt from their logs.

    The nodes must have no pending work.
    """
    for node in nodes:
        for name, remembered, rebuilt in _memories(node):
            if remembered != rebuilt:
                raise Broken(f"{name} on node {node.node_id}: in memory {remembered}, in the log {rebuilt}")


def _memories(node: Node) -> Iterator[tuple[str, Any, Any]]:
    for index, shard in node.transactions._runtime.items():
        # A value of version 0 lacks the fields of KIP-890.
        tagged = node.metadata.features.get("transaction.version", 0) > 0
        yield (
            f"transactions of partition {index}",
            _of_shard(shard, tagged=tagged),
            _of_shard(_read(shard), tagged=tagged),
        )
    for index, group_shard in node.groups._runtime.items():
        if not group_shard.is_loading:
            rebuilt = GroupCoordinatorState(
                ClassicGroupConfig(initial_rebalance_delay_ms=0, group_size_max=1 << 30)
            )
            for batch in group_shard.partition.log.batches():
                rebuilt.replay(batch)
            rebuilt.settle()
            yield f"offsets of partition {index}", group_shard.state.image(), rebuilt.image()
    for index, share_shard in (
        node.share_coordinator._runtime.items() if node.share_coordinator.known() else ()
    ):
        pruned = share_shard.partition.log_start_offset > 0
        yield (
            f"share partitions of partition {index}",
            _of_shares(share_shard.state, pruned=pruned),
            _of_shares(_read_shares(share_shard), pruned=pruned),
        )
    for partition in node.replicas.opened():
        if partition.offline is None:
            yield f"producers of {partition.topic}-{partition.index}", *_producers(partition.log)


def _of_shares(state: ShareCoordinatorState, *, pruned: bool) -> dict[str, Any]:
    # Pruning deletes the records that the last snapshots have made superfluous.
    return {"offsets": state.offsets} if pruned else vars(state)


def _read_shares(shard: ShareCoordinatorShard) -> ShareCoordinatorState:
    rebuilt = ShareCoordinatorShard(shard.partition, shard._config, shard.clock)
    for _ in rebuilt.load():
        pass
    return rebuilt.state


def _read(shard: TransactionShard) -> TransactionShard:
    rebuilt = TransactionShard(shard.partition)
    for _ in rebuilt.load():
        pass
    return rebuilt


def _of_shard(shard: TransactionShard, *, tagged: bool) -> dict[str, Any]:
    # The last epoch is in memory only, as in Kafka's TransactionMetadata, and so is a fence that was not written.
    forgotten: dict[str, Any] = {"last_epoch": NO_EPOCH}
    if not tagged:
        forgotten |= {"previous_producer_id": -1, "next_producer_id": -1, "client_version": 0}
    return {
        name: entry.txn._replace(**forgotten)
        for name, entry in sorted(shard.entries.items())
        if not entry.failed_fence and entry.txn.epoch != NO_EPOCH
    }


def _producers(log: Log) -> tuple[Any, Any]:
    """(in memory, from the log) of each producer in the log: epoch, last sequence, open transaction."""
    rebuilt = ProducerStateManager()
    for batch in log.batches():
        rebuilt.replay(batch)
    known = rebuilt.entries.keys() & log.producers.entries.keys()
    # If a producer's records are deleted, its remaining markers have no sequence.
    unknown = {each for each in known if log.log_start_offset and rebuilt.entries[each].last_sequence < 0}
    remembered, read = (
        {
            producer_id: (
                entry.epoch,
                None if producer_id in unknown else entry.last_sequence,
                entry.current_txn_first_offset != NO_OFFSET,
            )
            for producer_id, entry in sorted(producers.entries.items())
            if producer_id in known
        }
        for producers in (log.producers, rebuilt)
    )
    return remembered, read


def truncate_and_check(log: Log, offset: int, options: OpenOptions) -> None:
    """Call `storage.recovery.truncate`, and check that no state of the removed batches is left."""
    truncate(log, offset, options)
    remembered, read = _producers(log)
    if remembered != read:
        raise Broken(
            f"{log.directory.name} truncated to {offset}: producers in memory {remembered}, in the log {read}"
        )
    behind = [entry for entry in log.epochs.entries() if entry[1] > log.log_end_offset]
    if behind:
        raise Broken(
            f"{log.directory.name} truncated to {offset}: leader epochs {behind} begin after the log end"
        )
