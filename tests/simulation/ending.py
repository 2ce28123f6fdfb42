"""Checks at the end of a run, when all faults are undone and no client writes any more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any
from zlib import crc32

from broker.clock import Domain
from broker.cluster import Cluster
from broker.replicas.partition import Partition
from protocol.batch import parse_end_txn_marker
from tests.simulation.consumers import delivered, visible
from tests.simulation.ledger import Broken, Ledger, Spot, check_copies
from tests.simulation.loop import START_MS
from tests.simulation.offsets import OffsetsLedger
from tests.simulation.producers import EXPIRATION_MS
from tests.simulation.watch import check_memories


class Ending:
    """Final checks of a ``cluster`` whose nodes all run.

    ``compacts``: whether replicas compact their logs, which each replica does independently.
    """

    def __init__(self, cluster: Cluster, say: Callable[[str], None], *, compacts: bool) -> None:
        self._cluster = cluster
        self._say = say
        self._compacts = compacts

    def check(
        self,
        ledger: Ledger,
        offsets: OffsetsLedger,
        sources: Sequence[Spot],
        *,
        copied: Sequence[tuple[str, Sequence[Spot]]],
        members: Sequence[tuple[str, OffsetsLedger]],
    ) -> None:
        """Raise ``Broken`` if a record is lost, duplicated or visible too early, or replicas differ.

        Each transaction must be visible as a whole or not at all. ``copied``: the groups that copied the sources, and the
        target partitions. ``members``: groups whose members committed.
        """
        spots = (*sources, *(spot for _, targets in copied for spot in targets))
        committed = {spot: content(self._leader(spot), read_committed=True) for spot in spots}
        everything = {spot: content(self._leader(spot), read_committed=False) for spot in spots}
        self._check_nothing_hangs()
        self._check_replicas(committed)
        ledger.check_works({spot: committed[spot] for spot in sources})
        ledger.check_views(committed, everything)
        ledger.check_markers({spot: self._markers(spot) for spot in spots})
        for group, targets in copied:
            for source, target in zip(sources, targets, strict=True):
                copies = [value for _, value in committed[target]]
                at = max(self._committed_offset(group, source), 0)
                check_copies(source, at, committed[source], copies)
        offsets.check(self._committed_offset)
        for group, acknowledged in members:
            acknowledged.check_members(partial(self._committed_offset, group))
        check_memories(self._cluster.running_nodes())
        if self._cluster.clock.now_ms(Domain.PRODUCERS) - START_MS < EXPIRATION_MS:
            for spot in self._partitions():
                _check_epochs(spot, self._leader(spot))
        self._say(
            f"checked {len(ledger.works)} pieces of work, "
            f"{sum(map(len, committed.values()))} records, {sum(map(len, everything.values()))} with aborted ones"
        )

    def _leader(self, spot: Spot) -> Partition:
        topic = self._cluster.metadata.topics[spot[0]]
        node = self._cluster.running(topic.partitions[spot[1]].leader)
        partition = node.replicas.get(*spot) if node is not None else None
        if partition is None:
            raise Broken(f"{spot} has no leader although all nodes run")
        return partition

    def _markers(self, spot: Spot) -> dict[int, int]:
        """Offset of the commit or abort marker of each transactional record, by the record's offset."""
        found: dict[int, int] = {}
        open_offsets: dict[int, list[int]] = {}
        for batch in self._leader(spot).log.batches():
            if batch.is_control:
                found.update(dict.fromkeys(open_offsets.pop(batch.producer_id, ()), batch.base_offset))
            elif batch.is_transactional:
                offsets = range(batch.base_offset, batch.next_offset)
                open_offsets.setdefault(batch.producer_id, []).extend(offsets)
        return found

    def _committed_offset(self, group: str, spot: Spot) -> int:
        """Committed offset of a group, -1 if it has none."""
        for node in self._cluster.running_nodes():
            for shard in node.groups.memory().values():
                committed: Any = shard["committed"]
                if group in committed and spot in committed[group]:
                    return int(committed[group][spot].offset)
        return -1

    def _partitions(self) -> Iterable[Spot]:
        for name, topic in sorted(self._cluster.metadata.topics.items()):
            for state in topic.partitions:
                yield name, state.index

    def _check_nothing_hangs(self) -> None:
        for spot in self._partitions():
            partition = self._leader(spot)
            ends = (partition.last_stable_offset, partition.high_watermark, partition.log_end_offset)
            if len(set(ends)) != 1:
                raise Broken(
                    f"{spot}: LSO, high watermark and log end are {ends} although no client writes any more"
                )
        for node in self._cluster.running_nodes():
            for home in node.transactions.memory().values():
                for txn in home.values():
                    if txn.partitions:
                        raise Broken(
                            f"transaction of {txn.transactional_id} hangs in {txn.state.name}: {txn.partitions}"
                        )

    def _check_replicas(self, committed: dict[Spot, list[tuple[int, bytes]]]) -> None:
        """Check that replicas are equal byte for byte, and that each replica would serve the same records if it became
        leader."""
        for spot in self._partitions():
            leader = self._leader(spot)
            # Replicas that compact independently differ in bytes, but have the same latest record for each key.
            look = _latest if leader.log.config.compact and self._compacts else _bytes
            expected = look(leader, leader.high_watermark)
            for node in self._cluster.running_nodes():
                replica = node.replicas.get(*spot)
                if replica is None:
                    continue
                if look(replica, leader.high_watermark) != expected:
                    raise Broken(f"{spot}: the replica on node {node.node_id} differs from the leader")
                if spot in committed and content(replica, read_committed=True) != committed[spot]:
                    raise Broken(f"{spot}: node {node.node_id} would serve other records than the leader")
            self._say(f"{spot} is {len(expected)} {crc32(repr(expected).encode()):08x}")


def _check_epochs(spot: Spot, leader: Partition) -> None:
    """Check that in one log no epoch of a producer or of its coordinator decreases. No producer expires in a run."""
    epochs: dict[int, int] = {}
    coordinator_epochs: dict[int, int] = {}
    for batch in leader.log.batches():
        producer_id = batch.producer_id
        if producer_id < 0:
            continue
        if batch.producer_epoch < epochs.get(producer_id, -1):
            raise Broken(
                f"{spot}: the batch at {batch.base_offset} has epoch {batch.producer_epoch} of producer {producer_id}, "
                f"but an earlier batch has epoch {epochs[producer_id]}"
            )
        epochs[producer_id] = batch.producer_epoch
        marker = parse_end_txn_marker(batch) if batch.is_control else None
        if marker is not None:
            if marker.coordinator_epoch < coordinator_epochs.get(producer_id, -1):
                raise Broken(
                    f"{spot}: the marker at {batch.base_offset} has coordinator epoch {marker.coordinator_epoch}, "
                    f"but an earlier marker has {coordinator_epochs[producer_id]}"
                )
            coordinator_epochs[producer_id] = marker.coordinator_epoch


def content(partition: Partition, *, read_committed: bool) -> list[tuple[int, bytes]]:
    """Records that a consumer gets from a replica, from its log start."""
    position = partition.log_start_offset
    found: list[tuple[int, bytes]] = []
    while True:
        result = partition.read(position, 1 << 20, read_committed=read_committed, whole_first_batch=True)
        more, after = visible(result.records, list(result.aborted or ()), position)
        found += more
        if after == position:
            return found
        position = after


def _pieces(partition: Partition, end: int) -> Iterable[tuple[int, bytes, list[tuple[int, int]]]]:
    """Yield (offset, whole batches, aborted transactions) of a replica up to an offset."""
    offset = partition.log_start_offset
    while offset < end:
        span = partition.log.read(offset, end, 1 << 20, whole_first_batch=True)
        if span is None:
            return
        data = span.bytes()
        aborted = partition.log.aborted_transactions(offset, span)
        yield offset, data, [(entry.producer_id, entry.first_offset) for entry in aborted]
        _, offset = delivered(data, [], offset)


def _bytes(partition: Partition, end: int) -> bytes:
    return b"".join(data for _, data, _ in _pieces(partition, end))


def _latest(partition: Partition, end: int) -> dict[bytes | None, bytes]:
    """Latest record of each key, in a log that may have been compacted."""
    found: dict[bytes | None, bytes] = {}
    for offset, data, aborted in _pieces(partition, end):
        for _, record in delivered(data, aborted, offset)[0]:
            found.pop(record.key, None)
            if record.value is not None:
                found[record.key] = record.value
    return dict(sorted(found.items(), key=lambda pair: pair[0] or b""))
