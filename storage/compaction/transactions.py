"""Which batches of a log that is read from front to back belong to aborted transactions, and which markers are done with.

Kafka's counterpart is `CleanedTransactionMetadata`.
"""

from __future__ import annotations

from collections.abc import Iterable

from protocol.batch import RecordBatch, parse_end_txn_marker
from storage.aborted import AbortedTransaction


class CleanedTransactionMetadata:
    """Fed every batch in order; ``aborted`` are the transactions of the indexes, in any order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        # The next one to begin is at the end.
        self._coming = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        # Producers of which data of the current transaction was seen.
        self._aborted_with_data: set[int] = set()
        self._committed_with_data: set[int] = set()
        self.still_needed: list[AbortedTransaction] = []
        """Aborted transactions whose marker was seen after some of their data: the new index needs them."""

    def may_discard(self, batch: RecordBatch) -> bool:
        """Data of an aborted transaction, or a marker of whose transaction nothing was left before this reading."""
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
        # The next pass finds no data before the marker; until then a reader may still hold what this one removes.
        self.still_needed.append(entry)
        return False
