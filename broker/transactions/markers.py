"""Writes a marker to every partition of a transaction, between PrepareX and CompleteX.

The first attempt is made in the turn of the event loop in which PrepareX is committed: markers for partitions that this node
leads are appended, so that the producer's next transaction does not find this one incomplete, and markers for other nodes
are sent (`marker_channel`). Failed markers are retried with a back-off until all are committed or another coordinator owns
the id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from broker.clock import Clock, Domain
from broker.clock.sleeping import sleep_ms
from broker.injection.crash import crash_point
from broker.injection.points import FaultInjection
from broker.logging import get_logger
from broker.loop.coroutines import Waiter, start_in_background
from broker.metadata.topics import CONSUMER_OFFSETS
from broker.replicas.partition.partition import AppendResult, Partition
from broker.transactions.entry import PendingCompleteTxn
from broker.transactions.marker_channel import TransactionMarkerChannel
from broker.transactions.sequential_markers import SequentialMarkers
from broker.transactions.transaction import TopicPartition
from protocol.batch import EndTxnMarker
from protocol.errors import NONE, ErrorCode

if TYPE_CHECKING:
    from broker.groups.coordinator import GroupCoordinator
    from broker.loop.life import NodeLife
    from broker.metadata.cluster import ClusterMetadata
    from broker.peers import Peers
    from broker.replicas.manager import ReplicaManager

log_events = get_logger()

MARKERS_PER_TURN = 64
RETRY_BACKOFF_MS = 100

# The partition has seen a newer producer epoch or coordinator epoch, so another coordinator finishes this transaction.
_OWNED_BY_ANOTHER = (ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced)
# The partition cannot store markers, so it counts as marked.
_NOT_FOR_MARKERS = (ErrorCode.unsupported_for_message_format, ErrorCode.unsupported_version)


class TransactionMarkerManager:
    """Writes the markers of transactions, on this node or through other nodes, and completes each `PendingCompleteTxn`."""

    def __init__(
        self,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
        clock: Clock,
        life: NodeLife,
        *,
        metadata: ClusterMetadata,
        injection: FaultInjection,
        peers: Peers | None,
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._clock = clock
        self._life = life
        self._metadata = metadata
        self._peers = peers
        self._one_by_one = SequentialMarkers(replicas.node_id, clock, life, injection, self)
        self._remote = TransactionMarkerChannel(peers, life) if peers is not None else None

    def start(self, *completions: PendingCompleteTxn) -> None:
        """Try each marker once: for a single transaction before this method returns; for several transactions, or
        while a fault rule is installed at ``txn.marker``, in the background."""
        if self._one_by_one.is_wanted or len(completions) > 1:
            start_in_background(self._start_all(completions), self._life)
        else:
            self._try((completion, completion.remaining) for completion in completions)

    async def _start_all(self, completions: Sequence[PendingCompleteTxn]) -> None:
        """Start about ``MARKERS_PER_TURN`` markers in each turn of the event loop: a new coordinator may have thousands."""
        if self._one_by_one.is_wanted:
            await sleep_ms(self._clock, 0, Domain.TRANSACTIONS)
        batch: list[PendingCompleteTxn] = []
        room = MARKERS_PER_TURN
        for completion in completions:
            if room <= 0:
                self._try([(each, each.remaining) for each in batch])
                await sleep_ms(self._clock, 0, Domain.TRANSACTIONS)
                batch, room = [], MARKERS_PER_TURN
            batch.append(completion)
            room -= len(completion.remaining) or 1
        self._try([(each, each.remaining) for each in batch])

    def _try(self, batch: Iterable[tuple[PendingCompleteTxn, Collection[TopicPartition]]]) -> None:
        """Try each marker once. Requests to other nodes are sent first, so that these nodes work while this node appends."""
        led_here: list[tuple[PendingCompleteTxn, list[TopicPartition]]] = []
        for completion, keys in batch:
            if self._one_by_one.is_wanted:
                self._one_by_one.add(completion, sorted(keys))
                continue
            own: list[TopicPartition] = []
            others: dict[int, list[TopicPartition]] = {}
            for key in sorted(keys):
                node_id = None
                if self._replicas.opened_leader(key[0], key[1]) is None:
                    node_id = self._node_for(key)
                if node_id is None:
                    own.append(key)
                else:
                    others.setdefault(node_id, []).append(key)
            for node_id, theirs in others.items():
                start_in_background(self._write_at(node_id, completion, theirs), self._life)
            led_here.append((completion, own))
        self.flush()
        for completion, own in led_here:
            if len(own) > MARKERS_PER_TURN:
                start_in_background(self._write_in_turns(completion, own), self._life)
                continue
            for key in own:
                start_in_background(self.write_here(completion, key), self._life)

    async def _write_in_turns(self, completion: PendingCompleteTxn, keys: Sequence[TopicPartition]) -> None:
        for number, key in enumerate(keys):
            if number and number % MARKERS_PER_TURN == 0:
                await sleep_ms(self._clock, 0, Domain.TRANSACTIONS)
            start_in_background(self.write_here(completion, key), self._life)

    def _node_for(self, key: TopicPartition) -> int | None:
        """Return the other node that leads a partition; None if this node leads it, or no leader is known and alive."""
        topic = self._metadata.topic(key[0])
        state = topic.partition(key[1]) if topic is not None else None
        if state is None or state.leader == self._replicas.node_id or self._peers is None:
            return None
        return state.leader if self._peers.is_alive(state.leader) else None

    def _exists(self, key: TopicPartition) -> bool:
        topic = self._metadata.topic(key[0])
        return topic is not None and topic.partition(key[1]) is not None

    def send_to_leader(self, completion: PendingCompleteTxn, key: TopicPartition) -> Waiter[ErrorCode] | None:
        """Send a marker to the other node that leads its partition. Returns a waiter for the error code of the
        marker; None if this node leads the partition, or no live node does."""
        if self._replicas.opened_leader(key[0], key[1]) is not None:
            return None
        node_id = self._node_for(key)
        if node_id is None or self._remote is None:
            return None
        written = self._remote.add(node_id, completion, key)
        self.flush()
        return written

    def flush(self) -> None:
        """Send the markers that were queued for other nodes."""
        if self._remote is not None:
            self._remote.flush()

    async def _write_at(
        self, node_id: int, completion: PendingCompleteTxn, keys: Sequence[TopicPartition]
    ) -> None:
        assert self._remote is not None, "without peers no other node can lead a partition"
        asked = [self._remote.add(node_id, completion, key) for key in keys]
        results = []
        for key, written in zip(keys, asked, strict=True):
            results.append((key, await written))
        await self.handle_results(completion, results)

    async def write_here(self, completion: PendingCompleteTxn, key: TopicPartition) -> None:
        """Append a marker on this node and wait until it is committed. After a retriable error, retry after a back-off."""
        if not completion.is_wanted() or key not in completion.remaining:
            return
        partition: Partition | ErrorCode | None = self._replicas.opened_leader(key[0], key[1])
        if partition is None:
            if not self._exists(key):
                completion.committed(key)  # the topic was deleted, so no marker is needed
                return
            partition = self._replicas.leader(key[0], key[1])
        if isinstance(partition, Partition):
            error = await write_marker(
                self._groups,
                partition,
                completion.producer_id,
                completion.epoch,
                completion.marker,
                completion.transaction_version,
            )
            if error is NONE:
                completion.committed(key)
                return
        else:
            error = ErrorCode.not_leader_or_follower
        await self.handle_results(completion, [(key, error)])

    async def handle_results(
        self, completion: PendingCompleteTxn, results: Iterable[tuple[TopicPartition, ErrorCode]]
    ) -> None:
        """Process the result of each marker. After a back-off, failed markers are sent again, to the leader at that time."""
        again = []
        for key, error in results:
            if error is NONE:
                completion.committed(key)
            elif self._is_repeated(completion, key, error):
                again.append(key)
        if again:
            await sleep_ms(self._clock, RETRY_BACKOFF_MS, Domain.REQUESTS)
            if completion.is_wanted():
                self._try([(completion, again)])

    def _is_repeated(self, completion: PendingCompleteTxn, key: TopicPartition, error: ErrorCode) -> bool:
        """Whether to retry a failed marker. If False, the partition needs no marker, or the completion is cancelled."""
        if not completion.is_wanted():
            return False
        if error in _NOT_FOR_MARKERS:
            completion.committed(key)
            return False
        if error not in _OWNED_BY_ANOTHER:
            return True
        log_events.warning(
            "markers cancelled: another coordinator owns the transaction",
            transactional_id=completion.entry.txn.transactional_id,
            topic=key[0],
            partition=key[1],
            error=error.name,
        )
        completion.cancel()
        return False

    def abandon(self) -> None:
        self._one_by_one.clear()
        if self._remote is not None:
            self._remote.clear()


async def write_marker(
    groups: GroupCoordinator,
    partition: Partition,
    producer_id: int,
    epoch: int,
    marker: EndTxnMarker,
    transaction_version: int,
) -> ErrorCode:
    """Append one marker. Returns NONE once it is committed and, in ``__consumer_offsets``, applied to the offsets."""
    crash_point("txn.marker.before")
    result: AppendResult = partition.append_marker(producer_id, epoch, marker, transaction_version)
    if result.error is not NONE:
        return result.error
    crash_point("txn.marker.after")
    if partition.high_watermark <= result.last_offset:
        committed: Waiter[ErrorCode] = Waiter()
        partition.on_committed(result.last_offset + 1, committed.wake)
        error = await committed
        if error is not NONE:
            return error
    if partition.topic == CONSUMER_OFFSETS:
        groups.on_marker(partition.index, producer_id, epoch, marker.committed, result.base_offset)
    return NONE
