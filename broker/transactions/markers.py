"""From PrepareX to CompleteX: a marker in every partition of the transaction.

First one try in the turn of the commit itself, for partitions that this node leads, so that the producer's next transaction
does not meet the old one unfinished. What is left goes on by itself, with back-off, until it is done or somebody newer
owns the id.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.clock import Clock, Domain
from broker.crash import crash_point
from broker.logging import get_logger
from broker.partition import AppendResult, Partition
from broker.topics import CONSUMER_OFFSETS
from broker.transactions.home import Entry, Home
from broker.transactions.state import State, TopicPartition
from protocol.batch import EndTxnMarker
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.groups.coordinator import GroupCoordinator
    from broker.replicas import Replicas

log_events = get_logger()

MARKERS_PER_TURN = 64
RETRY_BACKOFF_MS = 100

# The partition's producers know a newer owner of the id: this completion is not ours to finish.
_OWNED_BY_ANOTHER = (ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced)


@dataclass(slots=True)
class Completion:
    """A decided transaction and the partitions that have no marker yet."""

    home: Home
    entry: Entry
    producer_id: int
    epoch: int
    marker: EndTxnMarker
    transaction_version: int
    remaining: set[TopicPartition] = field(default_factory=set)
    cancelled: bool = False


def completion_of(home: Home, entry: Entry) -> Completion:
    """What the Prepare record of an entry asks for."""
    txn = entry.txn
    return Completion(
        home,
        entry,
        txn.producer_id,
        txn.epoch,
        EndTxnMarker(txn.state is State.PREPARE_COMMIT, home.coordinator_epoch),
        txn.client_version,
        set(txn.partitions),
    )


class MarkerWriter:
    """Writes markers and says when a transaction has all of them."""

    def __init__(
        self, replicas: Replicas, groups: GroupCoordinator, clock: Clock, done: Callable[[Completion], None]
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._clock = clock
        self._done = done

    def start(self, completion: Completion) -> None:
        """Try every partition once, at most ``MARKERS_PER_TURN`` of them now."""
        if not completion.remaining:
            self._done(completion)
            return
        self._write_some(completion, sorted(completion.remaining))

    def _write_some(self, completion: Completion, partitions: list[TopicPartition]) -> None:
        for partition in partitions[:MARKERS_PER_TURN]:
            if not self._is_wanted(completion):
                return
            self._write(completion, partition)
        rest = partitions[MARKERS_PER_TURN:]
        if rest:
            self._clock.call_later_ms(0, lambda: self._write_some(completion, rest), Domain.TRANSACTIONS)

    @staticmethod
    def _is_wanted(completion: Completion) -> bool:
        return not completion.cancelled and completion.home.is_current

    def _write(self, completion: Completion, key: TopicPartition) -> None:
        partition = self._replicas.leader(*key)
        if partition is ErrorCode.unknown_topic_or_partition:
            self._written(completion, key)  # the topic was deleted: nobody will read there
            return
        if not isinstance(partition, Partition):
            self._retry(completion, key)
            return

        def committed(error: ErrorCode, offset: int) -> None:
            if error is ErrorCode.none:
                self._written(completion, key)
            else:
                self._refused(completion, key, error)

        write_marker(
            self._groups,
            partition,
            completion.producer_id,
            completion.epoch,
            completion.marker,
            completion.transaction_version,
            committed,
        )

    def _written(self, completion: Completion, key: TopicPartition) -> None:
        completion.remaining.discard(key)
        if not completion.remaining and self._is_wanted(completion):
            self._done(completion)

    def _refused(self, completion: Completion, key: TopicPartition, error: ErrorCode) -> None:
        if error in _OWNED_BY_ANOTHER:
            completion.cancelled = True
            log_events.warning(
                "markers given up: a newer owner has written here",
                transactional_id=completion.entry.txn.transactional_id,
                topic=key[0],
                partition=key[1],
                error=error.name,
            )
            return
        self._retry(completion, key)

    def _retry(self, completion: Completion, key: TopicPartition) -> None:
        def again() -> None:
            if self._is_wanted(completion):
                self._write(completion, key)

        self._clock.call_later_ms(RETRY_BACKOFF_MS, again, Domain.TRANSACTIONS)


def write_marker(
    groups: GroupCoordinator,
    partition: Partition,
    producer_id: int,
    epoch: int,
    marker: EndTxnMarker,
    transaction_version: int,
    then: Callable[[ErrorCode, int], None],
) -> None:
    """Append one marker; ``then`` hears the outcome once it is committed, and group offsets have followed it."""
    crash_point("txn.marker.before")
    result: AppendResult = partition.append_marker(producer_id, epoch, marker, transaction_version)
    if result.error is not ErrorCode.none:
        then(result.error, -1)
        return
    crash_point("txn.marker.after")

    def committed(error: ErrorCode) -> None:
        if error is ErrorCode.none and partition.topic == CONSUMER_OFFSETS:
            groups.on_marker(partition.index, producer_id, epoch, marker.committed, result.base_offset)
        then(error, result.base_offset)

    partition.on_committed(result.last_offset + 1, committed)
