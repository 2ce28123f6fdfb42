"""One partition of ``__transaction_state`` and the memory of the ids that live in it.

The memory is a view of the log: it is built by reading it and changes only after an append is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Final

from broker.coordinator_runtime.append_errors import CLIENT_ERRORS
from broker.coordinator_runtime.shard import CoordinatorShard
from broker.injection.points import FaultInjection
from broker.logging import get_logger
from broker.replicas.partition.partition import Partition
from broker.transactions.loading import load
from broker.transactions.records import state_batch, tombstone_batch
from broker.transactions.transaction import ONGOING, TopicPartition, Transaction, TransactionState
from protocol.errors import NONE, ErrorCode

# The transaction coordinator knows one more than the group coordinator (``TransactionStateManager``).
_APPEND_ERRORS: Final = {
    **CLIENT_ERRORS,
    ErrorCode.not_enough_replicas_after_append: ErrorCode.coordinator_not_available,
}


log_events = get_logger()


class Entry:
    """One id: its committed state, and the state that an append under way will bring."""

    __slots__ = ("failed_fence", "pending", "remaining", "txn")

    def __init__(self, txn: Transaction) -> None:
        self.txn = txn
        self.pending: TransactionState | None = None
        self.failed_fence = False
        """A fence could not be written: the epoch is bumped in memory already and must not be bumped twice."""
        self.remaining: Collection[TopicPartition] | None = None
        """While the transaction ends: the partitions that have no marker yet."""

    @property
    def unmarked(self) -> Collection[TopicPartition]:
        """The partitions of the transaction whose verdict is still to come."""
        return self.txn.partitions if self.remaining is None else self.remaining


class TransactionShard(CoordinatorShard):
    """The ids of one partition, while this node leads it."""

    client_errors = _APPEND_ERRORS

    def __init__(self, partition: Partition, injection: FaultInjection | None = None) -> None:
        super().__init__(partition, injection)
        self.entries: dict[str, Entry] = {}
        self.open_ids: set[str] = set()
        """Ids with an open transaction: all that the timeout job looks at."""

    def load(self) -> Iterator[None]:
        return load(self.partition, self._load_one)

    def _load_one(self, txn: Transaction) -> None:
        entry = self.entries[txn.transactional_id] = Entry(txn)
        self.install(entry, txn)

    def loaded(self) -> None:
        log_events.debug("transactions loaded", partition=self.partition.index, ids=len(self.entries))

    def install(self, entry: Entry, txn: Transaction) -> None:
        """The append is committed: this is the state now."""
        entry.txn, entry.remaining = txn, None
        if self._injection.transaction_watcher is not None:
            self._injection.transaction_watcher(txn)
        if txn.state is ONGOING:
            self.open_ids.add(txn.transactional_id)
        else:
            self.open_ids.discard(txn.transactional_id)

    def write(
        self,
        txn: Transaction,
        value_version: int,
        now_ms: int,
        then: Callable[[ErrorCode], object],
        point: str | None = None,
    ) -> None:
        """Write a state; ``then`` gets NONE once it is committed, else the error for the client.

        ``point``: the injection point at which a rule may hold the append up, or have it fail.
        """
        if point is None or self._injection.points is None:
            self._write(state_batch(txn, value_version, now_ms), then)
            return
        self.intercept_append(
            point,
            lambda: self._write(state_batch(txn, value_version, now_ms), then),
            lambda error: then(self.client_error(error)),
            transactional_id=txn.transactional_id,
        )

    def forget(self, transactional_id: str, now_ms: int, then: Callable[[ErrorCode], object]) -> None:
        """Write an id's tombstone."""
        self._write(tombstone_batch(transactional_id, now_ms), then)

    def _write(self, records: bytes, then: Callable[[ErrorCode], object]) -> None:
        result = self.append(records)
        if result.error is not NONE:
            then(self.client_error(result.error))
        elif self.partition.high_watermark > result.last_offset and not self.is_closed:
            then(NONE)  # committed at once: this node is the only replica
        else:
            self.partition.on_committed(result.last_offset + 1, partial(self._committed, then))

    def _committed(self, then: Callable[[ErrorCode], object], error: ErrorCode) -> None:
        if error is NONE and not self.is_current():
            error = ErrorCode.not_coordinator
        then(self.client_error(error))

    def memory(self) -> dict[str, Transaction]:
        """The committed state of every id, to be compared."""
        return {transactional_id: entry.txn for transactional_id, entry in self.entries.items()}
