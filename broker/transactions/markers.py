"""From PrepareX to CompleteX: a marker in every partition of the transaction.

First one try in the turn of the commit itself, for partitions that this node leads, so that the producer's next transaction
does not meet the old one unfinished; those of other nodes are sent in the same turn (`remote_markers`). What is left goes on
by itself, with back-off, until it is done or a newer epoch owns the id.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from broker.clock import Clock, Domain
from broker.injection.crash import crash_point
from broker.injection.points import FaultInjection
from broker.logging import get_logger
from broker.metadata.topics import CONSUMER_OFFSETS
from broker.replicas.partition.partition import AppendResult, Partition
from broker.transactions.remote_markers import PendingCompleteTxn, TransactionMarkerChannel
from broker.transactions.sequential_markers import SequentialMarkers
from broker.transactions.shard import Entry, TransactionShard
from broker.transactions.transaction import PREPARE_COMMIT, TopicPartition
from protocol.batch import EndTxnMarker
from protocol.errors import NONE, ErrorCode

if TYPE_CHECKING:
    from broker.groups.coordinator import GroupCoordinator
    from broker.metadata.cluster import ClusterMetadata
    from broker.peers import Peers
    from broker.replicas.manager import ReplicaManager

log_events = get_logger()

MARKERS_PER_TURN = 64
RETRY_BACKOFF_MS = 100

# The partition's producers know a newer owner of the id: this completion is not ours to finish.
_OWNED_BY_ANOTHER = (ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced)
# A partition that can have no marker needs none.
_NOT_FOR_MARKERS = (ErrorCode.unsupported_for_message_format, ErrorCode.unsupported_version)


def completion_of(shard: TransactionShard, entry: Entry) -> PendingCompleteTxn:
    """What the Prepare record of an entry asks for."""
    txn = entry.txn
    return PendingCompleteTxn(
        shard,
        entry,
        txn.producer_id,
        txn.epoch,
        EndTxnMarker(txn.state is PREPARE_COMMIT, shard.coordinator_epoch),
        txn.client_version,
        set(txn.partitions),
    )


class TransactionMarkerManager:
    """Writes markers, or has them written, and says when a transaction has all of them."""

    def __init__(
        self,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
        clock: Clock,
        *,
        metadata: ClusterMetadata,
        injection: FaultInjection,
        peers: Peers | None,
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._clock = clock
        self._metadata = metadata
        self._peers = peers
        self._one_by_one = SequentialMarkers(
            replicas.node_id, clock, injection, self._write_watched, self._refused
        )
        self._remote = (
            TransactionMarkerChannel(peers.node_id, peers, self._told) if peers is not None else None
        )

    def start(self, *completions: PendingCompleteTxn) -> None:
        """Try every partition once: now, unless a rule looks at each marker. Then the client is answered first."""
        if self._one_by_one.is_wanted:
            self._clock.call_later_ms(0, partial(self._begin, completions), Domain.TRANSACTIONS)
        else:
            self._begin(completions)

    def _begin(self, completions: Sequence[PendingCompleteTxn]) -> None:
        """So many in this turn of the loop, the rest in the next ones: a coordinator that takes over may have thousands."""
        batch: list[tuple[PendingCompleteTxn, Collection[TopicPartition]]] = []
        room = MARKERS_PER_TURN
        for number, completion in enumerate(completions):
            if room <= 0:
                rest = partial(self._begin, completions[number:])
                self._clock.call_later_ms(0, rest, Domain.TRANSACTIONS)
                break
            batch.append((completion, completion.remaining))
            room -= len(completion.remaining) or 1
        self._try(batch)

    def _try(self, batch: Sequence[tuple[PendingCompleteTxn, Collection[TopicPartition]]]) -> None:
        """Other nodes work while this one writes what it leads, so many partitions in one turn."""
        led_here = []
        for completion, keys in batch:
            if not keys and completion.is_wanted():
                completion.then(completion)  # nothing was written in it
            if self._one_by_one.is_wanted:
                self._one_by_one.add(completion, sorted(keys))
                continue
            own = []
            for key in sorted(keys):
                if self._replicas.opened_leader(key[0], key[1]) is not None or self._node_for(key) is None:
                    own.append(key)
                else:
                    self._write(completion, key)
            led_here.append((completion, own))
        self.flush()
        for completion, own in led_here:
            self._write_some(completion, own)

    def _write_some(self, completion: PendingCompleteTxn, keys: list[TopicPartition]) -> None:
        for key in keys[:MARKERS_PER_TURN]:
            self._write(completion, key)
        rest = keys[MARKERS_PER_TURN:]
        if rest:
            self._clock.call_later_ms(0, partial(self._write_some, completion, rest), Domain.TRANSACTIONS)

    def _node_for(self, key: TopicPartition) -> int | None:
        """The other node that leads a partition; None: this one, or there is none to send to."""
        topic = self._metadata.topic(key[0])
        state = topic.partition(key[1]) if topic is not None else None
        if state is None or state.leader == self._replicas.node_id or self._peers is None:
            return None
        return state.leader if self._peers.is_alive(state.leader) else None

    def _exists(self, key: TopicPartition) -> bool:
        topic = self._metadata.topic(key[0])
        return topic is not None and topic.partition(key[1]) is not None

    def _write_watched(self, completion: PendingCompleteTxn, key: TopicPartition) -> bool:
        asked = self._write(completion, key)
        self.flush()
        return asked

    def _write(self, completion: PendingCompleteTxn, key: TopicPartition) -> bool:
        """True if the marker goes to another node with the next ``flush``; `_told` gets the result."""
        if not completion.is_wanted() or key not in completion.remaining:
            return False
        partition: Partition | ErrorCode | None = self._replicas.opened_leader(key[0], key[1])
        if partition is None:
            if not self._exists(key):
                self._written(completion, key)  # the topic was deleted: there is no log to mark
                return False
            node_id = self._node_for(key)
            if node_id is not None and self._remote is not None:
                self._remote.add(node_id, completion, key)
                return True
            partition = self._replicas.leader(key[0], key[1])
        if not isinstance(partition, Partition):
            self._retry(completion, (key,))
            return False
        write_marker(
            self._groups,
            partition,
            completion.producer_id,
            completion.epoch,
            completion.marker,
            completion.transaction_version,
            partial(self._committed, completion, key),
        )
        return False

    def _committed(
        self, completion: PendingCompleteTxn, key: TopicPartition, error: ErrorCode, offset: int
    ) -> None:
        if error is NONE:
            self._written(completion, key)
        else:
            self._refused(completion, key, error)

    def flush(self) -> None:
        """Send what was collected for other nodes."""
        if self._remote is not None:
            self._remote.flush()

    def _told(self, completion: PendingCompleteTxn, errors: dict[TopicPartition, ErrorCode]) -> None:
        """Another node has answered, or has not."""
        again = []
        for key, error in errors.items():
            if error is NONE:
                self._written(completion, key)
            elif self._is_repeated(completion, key, error):
                again.append(key)
        if again:
            self._retry(completion, again)
        self._one_by_one.settled(completion, errors)

    def _written(self, completion: PendingCompleteTxn, key: TopicPartition) -> None:
        if key not in completion.remaining:
            return
        completion.remaining.discard(key)
        if not completion.remaining and completion.is_wanted():
            completion.then(completion)

    def _refused(self, completion: PendingCompleteTxn, key: TopicPartition, error: ErrorCode) -> None:
        if self._is_repeated(completion, key, error):
            self._retry(completion, (key,))

    def _is_repeated(self, completion: PendingCompleteTxn, key: TopicPartition, error: ErrorCode) -> bool:
        """Whether a marker that was not written is to be written later."""
        if not completion.is_wanted():
            return False
        if error in _NOT_FOR_MARKERS:
            self._written(completion, key)
            return False
        if error not in _OWNED_BY_ANOTHER:
            return True
        completion.cancelled = True
        log_events.warning(
            "markers given up: a newer owner has written here",
            transactional_id=completion.entry.txn.transactional_id,
            topic=key[0],
            partition=key[1],
            error=error.name,
        )
        return False

    def _retry(self, completion: PendingCompleteTxn, keys: Collection[TopicPartition]) -> None:
        """Later, and wherever the partitions are led then."""
        again = partial(self._again, completion, keys)
        self._clock.call_later_ms(RETRY_BACKOFF_MS, again, Domain.REQUESTS)

    def _again(self, completion: PendingCompleteTxn, keys: Collection[TopicPartition]) -> None:
        if completion.is_wanted():
            self._try([(completion, keys)])

    def abandon(self) -> None:
        self._one_by_one.clear()
        if self._remote is not None:
            self._remote.clear()


def write_marker(
    groups: GroupCoordinator,
    partition: Partition,
    producer_id: int,
    epoch: int,
    marker: EndTxnMarker,
    transaction_version: int,
    then: Callable[[ErrorCode, int], None],
) -> None:
    """Append one marker; ``then`` gets the outcome when it is committed and the group offsets are applied."""
    crash_point("txn.marker.before")
    result: AppendResult = partition.append_marker(producer_id, epoch, marker, transaction_version)
    if result.error is not NONE:
        then(result.error, -1)
        return
    crash_point("txn.marker.after")

    def committed(error: ErrorCode) -> None:
        if error is NONE and partition.topic == CONSUMER_OFFSETS:
            groups.on_marker(partition.index, producer_id, epoch, marker.committed, result.base_offset)
        then(error, result.base_offset)

    if partition.high_watermark > result.last_offset:
        committed(NONE)  # at once: this node is the only replica
    else:
        partition.on_committed(result.last_offset + 1, committed)
