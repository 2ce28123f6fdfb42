"""One partition of ``__transaction_state`` with its transactional ids in memory.

The memory is a view of the log: it is built by reading the log, and changes only after an append is committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.coordinator_runtime.append_errors import CLIENT_ERRORS
from broker.coordinator_runtime.shard import CoordinatorShard
from broker.injection.points import FaultInjection
from broker.logging import get_logger
from broker.replicas.partition.partition import AppendResult, Partition
from broker.transactions.entry import Entry
from broker.transactions.loading import load
from broker.transactions.transaction import ONGOING, Transaction
from protocol.errors import NONE, ErrorCode

# Kafka's transaction coordinator maps one error more than its group coordinator (``TransactionStateManager``).
_APPEND_ERRORS: Final = {
    **CLIENT_ERRORS,
    ErrorCode.not_enough_replicas_after_append: ErrorCode.coordinator_not_available,
}


log_events = get_logger()


class TransactionShard(CoordinatorShard):
    """The transactional ids of one partition of ``__transaction_state``, while this node leads it."""

    client_errors = _APPEND_ERRORS

    def __init__(self, partition: Partition, injection: FaultInjection | None = None) -> None:
        super().__init__(partition, injection)
        self.entries: dict[str, Entry] = {}
        self.open_ids: set[str] = set()
        """Ids with an open transaction; the job that aborts transactions after a timeout checks only these."""

    def load(self) -> Iterator[None]:
        return load(self.partition, self._load_one)

    def _load_one(self, txn: Transaction) -> None:
        entry = self.entries[txn.transactional_id] = Entry(txn)
        self.install(entry, txn)

    def loaded(self) -> None:
        log_events.debug("transactions loaded", partition=self.partition.index, ids=len(self.entries))

    def install(self, entry: Entry, txn: Transaction) -> None:
        """Set the committed state of a transactional id, after the append is committed or while the log is loaded."""
        entry.txn, entry.completion = txn, None
        if self._injection.transaction_watcher is not None:
            self._injection.transaction_watcher(txn)
        if txn.state is ONGOING:
            self.open_ids.add(txn.transactional_id)
        else:
            self.open_ids.discard(txn.transactional_id)

    async def write(self, records: bytes, transactional_id: str, point: str | None = None) -> ErrorCode:
        """Append a batch. Returns NONE once it is committed and this shard is still current, else the error for the client.

        ``point``: injection point at which a fault rule may hold or refuse the append.
        """
        if point is not None and self._injection.points is not None:
            refused = await self.verdict_at_append(point, transactional_id=transactional_id)
            if refused is not NONE:
                return self.client_error(refused)
        result: AppendResult = self.append(records)
        if result.error is not NONE:
            return self.client_error(result.error)
        if self.partition.high_watermark > result.last_offset and not self.is_closed:
            return NONE  # the batch is committed already, as this node is the only replica in the ISR
        return await self.committed(result.last_offset + 1)

    def unload(self, error: ErrorCode) -> None:
        """Close the shard and cancel the completions that wait for markers."""
        super().unload(error)
        for entry in self.entries.values():
            if entry.completion is not None:
                entry.completion.cancel()

    def memory(self) -> dict[str, Transaction]:
        """Committed state of every id, for comparisons in tests."""
        return {transactional_id: entry.txn for transactional_id, entry in self.entries.items()}
