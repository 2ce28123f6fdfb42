"""Finds the batches that belong to aborted transactions, and the markers that are not needed any more.

Reads the log from front to back. Kafka's counterpart is `CleanedTransactionMetadata`.
"""

from __future__ import annotations

from collections.abc import Iterable

from protocol.batch import RecordBatch, parse_end_txn_marker
from storage.aborted import AbortedTransaction


class CleanedTransactionMetadata:
    """State of the transactions during a pass. Every batch must be passed to it in the order of the log.

    ``aborted`` are the entries of the transaction indexes, in any order.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        # Sorted so that the transaction that begins next is the last one.
        self._coming = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        # Producers with data in their current transaction, among the batches read so far.
        self._aborted_with_data: set[int] = set()
        self._committed_with_data: set[int] = set()
        self.still_needed: list[AbortedTransaction] = []
        """Aborted transactions that still had data in this pass. The new transaction index must list them."""

    def may_discard(self, batch: RecordBatch) -> bool:
        """Whether the batch is data of an aborted transaction, or a marker whose transaction has no data left."""
        self._begin_up_to(batch.last_offset)
        return self._marker_is_done(batch) if batch.is_control else self._is_aborted(batch)

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            entry = self._coming.pop()
            self._aborted.setdefault(entry.producer_id, entry)

    def _is_aborted(self, batch: RecordBatch) -> bool:
        if not batch.is_transactional:
            return False
        if batch.producer_id in self._aborted:
            self._aborted_with_data.add(batch.producer_id)
            return True
        self._committed_with_data.add(batch.producer_id)
        return False

    def _marker_is_done(self, batch: RecordBatch) -> bool:
        if batch.record_count == 0:
            return True  # an earlier pass has left it empty
        marker = parse_end_txn_marker(batch)
        producer_id = batch.producer_id
        if marker is None:
            return False
        if marker.committed:
            had_data = producer_id in self._committed_with_data
            self._committed_with_data.discard(producer_id)
            return not had_data
        entry = self._aborted.pop(producer_id, None)
        if entry is None or producer_id not in self._aborted_with_data:
            return True
        self._aborted_with_data.discard(producer_id)
        # This pass removes the data. Readers may still have it, so the marker and this entry stay until the next pass.
        self.still_needed.append(entry)
        return False
