"""One transactional id in memory, and the markers of its transaction from PrepareX to CompleteX."""

from __future__ import annotations

from collections.abc import Collection

from broker.coordinator_runtime.shard import CoordinatorShard
from broker.loop.coroutines import Waiter
from broker.transactions.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    PREPARE_COMMIT,
    TopicPartition,
    Transaction,
    TransactionState,
)
from protocol.batch import EndTxnMarker


class Entry:
    """One transactional id: its committed state, and the state that an append in progress will set."""

    __slots__ = ("completion", "failed_fence", "pending", "txn")

    def __init__(self, txn: Transaction) -> None:
        self.txn = txn
        self.pending: TransactionState | None = None
        self.failed_fence = False
        """True after a fencing epoch bump that could not be written: the epoch in memory must not be bumped again."""
        self.completion: PendingCompleteTxn | None = None
        """The markers of the transaction between PrepareX and CompleteX; None at other times."""

    @property
    def unmarked(self) -> Collection[TopicPartition]:
        """The partitions of the transaction that have no committed marker yet."""
        return self.txn.partitions if self.completion is None else self.completion.remaining


class PendingCompleteTxn:
    """The markers of one transaction that is being completed.

    Until CompleteX is committed, requests for the transactional id get CONCURRENT_TRANSACTIONS.
    """

    __slots__ = (
        "_ended",
        "cancelled",
        "entry",
        "epoch",
        "marker",
        "producer_id",
        "remaining",
        "shard",
        "transaction_version",
    )

    def __init__(self, shard: CoordinatorShard, entry: Entry) -> None:
        """``entry`` must be in PrepareCommit or PrepareAbort."""
        txn = entry.txn
        self.shard = shard
        self.entry = entry
        self.producer_id = txn.producer_id
        self.epoch = txn.epoch
        self.marker = EndTxnMarker(txn.state is PREPARE_COMMIT, shard.coordinator_epoch)
        self.transaction_version = txn.client_version
        self.remaining = set(txn.partitions)
        """The partitions whose marker is not committed yet."""
        self.cancelled = False
        self._ended: Waiter[None] | None = None
        entry.completion = self
        entry.pending = COMPLETE_COMMIT if self.marker.committed else COMPLETE_ABORT

    def is_wanted(self) -> bool:
        """Whether this node still has to finish the transaction: not after `cancel` or a change of the leader."""
        return not self.cancelled and self.shard.is_current()

    async def all_committed(self) -> bool:
        """Wait until every marker is committed. Returns False if this node no longer has to finish the transaction."""
        if self.remaining and self.is_wanted():
            self._ended = Waiter()
            await self._ended
        return self.is_wanted()

    def committed(self, partition: tuple[str, int]) -> None:
        """Note that the marker of a partition is committed, or that the partition needs none."""
        self.remaining.discard(partition)
        if not self.remaining:
            self._end()

    def cancel(self) -> None:
        """Cancel the completion, because another coordinator owns the transactional id, or the shard is unloaded."""
        self.cancelled = True
        self._end()

    def _end(self) -> None:
        if self._ended is not None:
            self._ended.wake(None)
