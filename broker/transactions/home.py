"""One partition of ``__transaction_state`` and the memory of the ids that live in it.

The memory is a view of the log: it is built by reading it and changes only after an append is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from broker.append_errors import CLIENT_ERRORS
from broker.partition import Partition
from broker.transactions.records import state_batch, tombstone_batch
from broker.transactions.state import State, TopicPartition, Transaction
from protocol.errors import ErrorCode

# The transaction coordinator knows one more than the group coordinator (``TransactionStateManager``).
_APPEND_ERRORS = {
    **CLIENT_ERRORS,
    ErrorCode.not_enough_replicas_after_append: ErrorCode.coordinator_not_available,
}


@dataclass(slots=True)
class Entry:
    """One id: its committed state, and the state that an append under way will bring."""

    txn: Transaction
    pending: State | None = None
    failed_fence: bool = False
    """A fence could not be written: the epoch is bumped in memory already and must not be bumped twice."""
    remaining: Collection[TopicPartition] | None = None
    """While the transaction ends: the partitions that have no marker yet."""

    @property
    def unmarked(self) -> Collection[TopicPartition]:
        """The partitions of the transaction whose verdict is still to come."""
        return self.txn.partitions if self.remaining is None else self.remaining


@dataclass(slots=True, eq=False)
class Home:
    """The ids of one partition, while this node leads it."""

    partition: Partition
    coordinator_epoch: int
    leader_id: int
    refusal: ErrorCode | None = ErrorCode.coordinator_load_in_progress
    """What everybody is told until the log has been read."""
    is_closed: bool = False
    """Another has taken its place, or the node is gone: nothing that waits here may do anything any more."""
    entries: dict[str, Entry] = field(default_factory=dict)
    open_ids: set[str] = field(default_factory=set)
    """Ids with an open transaction: all that the timeout job looks at."""

    @property
    def is_current(self) -> bool:
        """Does this node still lead the partition, in the same epoch?"""
        leadership = (self.partition.leader_id, self.partition.leader_epoch)
        return not self.is_closed and leadership == (self.leader_id, self.coordinator_epoch)

    def install(self, entry: Entry, txn: Transaction) -> None:
        """The append is committed: this is the state now."""
        entry.txn, entry.remaining = txn, None
        if txn.state is State.ONGOING:
            self.open_ids.add(txn.transactional_id)
        else:
            self.open_ids.discard(txn.transactional_id)

    def append(
        self, txn: Transaction, value_version: int, now_ms: int, then: Callable[[ErrorCode], object]
    ) -> None:
        """Write a state; ``then`` hears NONE once it is committed, or the client's code for why it is not."""
        self._append(state_batch(txn, value_version, now_ms), then)

    def forget(self, transactional_id: str, now_ms: int, then: Callable[[ErrorCode], object]) -> None:
        """Write an id's tombstone."""
        self._append(tombstone_batch(transactional_id, now_ms), then)

    def _append(self, records: bytes, then: Callable[[ErrorCode], object]) -> None:
        if not self.is_current:
            then(ErrorCode.not_coordinator)  # it was decided while this node led, and held up since
            return
        result = self.partition.append_internal(records)
        if result.error is not ErrorCode.none:
            then(client_error(result.error))
            return

        def committed(error: ErrorCode) -> None:
            if error is ErrorCode.none and not self.is_current:
                error = ErrorCode.not_coordinator
            then(client_error(error))

        self.partition.on_committed(result.last_offset + 1, committed)

    def memory(self) -> dict[str, Transaction]:
        """The committed state of every id, to be compared."""
        return {transactional_id: entry.txn for transactional_id, entry in self.entries.items()}


def client_error(error: ErrorCode) -> ErrorCode:
    """What a failed append means to a client."""
    return _APPEND_ERRORS.get(error, error)
