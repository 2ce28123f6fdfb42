"""Read partitions: stored batches, with the outcome of the transaction of each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

from protocol.batch import Record, RecordBatch, batches, parse_end_txn_marker
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from protocol.record import CorruptBatch, Reason
from tools.client.cluster import Cluster
from tools.client.errors import ToolError, check
from tools.client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offset

FETCH_BYTES: Final = 4 * 1024 * 1024
FETCH_WAIT_MS: Final = 500
# Version 12 is the last that contains topic names; from 13 on, requests contain topic ids.
_NAMES_TOPICS: Final = 12

Outcome = Literal["", "committed", "aborted", "open", "COMMIT", "ABORT", "control"]
"""Outcome of a record's transaction; "" for a record outside transactions, the type for a control record."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A record with its partition, batch and outcome."""

    topic: str
    partition: int
    record: Record
    batch: RecordBatch
    outcome: Outcome


@dataclass(slots=True)
class _Partition:
    topic: str
    index: int
    offset: int
    end: int
    """Offset at which reading ends: the last stable offset or the high watermark when the reader was created."""
    stable: int
    aborted: dict[int, list[int]] = field(default_factory=dict)
    """First offsets of aborted transactions below the last stable offset, by producer id."""
    markers: dict[int, list[tuple[int, bool]]] = field(default_factory=dict)
    """Markers above the last stable offset, by producer id."""
    high_watermark: int = -1
    """High watermark in the last Fetch response; -1 before the first response."""
    passed_over: int = 0
    """Number of aborted records that were skipped."""


class Reader:
    """A reader of one partition, which begins at an offset.

    ``isolation`` works as for a consumer: with ``READ_COMMITTED`` aborted records, open transactions and markers are not
    returned; with ``READ_UNCOMMITTED`` all records are returned, each with its outcome.
    """

    def __init__(
        self, cluster: Cluster, topic: str, partition: int, isolation: int, offset: int | None = None
    ) -> None:
        self._cluster, self._isolation = cluster, isolation
        start = list_offset(cluster, topic, partition, EARLIEST) if offset is None else offset
        stable = list_offset(cluster, topic, partition, LATEST, READ_COMMITTED)
        end = stable if isolation == READ_COMMITTED else list_offset(cluster, topic, partition, LATEST)
        self._at = _Partition(topic, partition, start, end, stable)
        if isolation == READ_UNCOMMITTED and end > stable:
            self._look_ahead()

    @property
    def offset(self) -> int:
        """Offset of the next record to be read."""
        return self._at.offset

    @property
    def at_end(self) -> bool:
        """Whether the reader has read all that was readable when the reader was created."""
        return self._at.offset >= self._at.end

    @property
    def topic(self) -> str:
        return self._at.topic

    @property
    def partition(self) -> int:
        return self._at.index

    @property
    def stable(self) -> int:
        """The last stable offset, from a response of the leader.

        A ``READ_UNCOMMITTED`` reader updates it only when it has read everything (`at_end`).
        """
        return self._at.stable

    @property
    def high_watermark(self) -> int:
        """High watermark in the last Fetch response; -1 before the first response."""
        return self._at.high_watermark

    @property
    def aborted(self) -> int:
        """Number of aborted records that a ``READ_COMMITTED`` reader has skipped."""
        return self._at.passed_over

    def seek(self, offset: int) -> None:
        """Continue reading at this offset."""
        self._at.offset = offset

    def read(self, wait_ms: int = 0) -> Iterator[Seen]:
        """Yield the records of one Fetch response; none if no records are available within ``wait_ms``."""
        at = self._at
        # Below the last stable offset, a response to a read_committed Fetch lists the aborted transactions.
        below = at.offset < at.stable or self._isolation == READ_COMMITTED
        data = self._fetch(at.offset, READ_COMMITTED if below else READ_UNCOMMITTED, wait_ms)
        at.high_watermark = data.high_watermark
        if self._isolation == READ_COMMITTED:
            at.stable = max(at.stable, data.last_stable_offset)
        if not below:
            at.stable = max(at.stable, data.last_stable_offset) if at.offset >= at.end else at.stable
        for each in data.aborted_transactions or ():
            firsts = at.aborted.setdefault(each.producer_id, [])
            if each.first_offset not in firsts:
                firsts.append(each.first_offset)
        if not data.records:
            self._pass_gap(data, below)
        with _reading(at):
            for batch in _sound(data):
                yield from self._of_batch(batch, below)

    def skip(self) -> None:
        """Fetch the next batches, and continue after them without decoding their records."""
        data = self._fetch(self._at.offset, self._isolation, 0)
        if not data.records:
            self._pass_gap(data, self._isolation == READ_COMMITTED)
        with _reading(self._at):
            for batch in batches(_bytes(data)):
                self._at.offset = batch.next_offset

    def _pass_gap(self, data: PartitionData, below: bool) -> None:
        """Continue at the end of a response without batches: there are no records up to that offset.

        Offsets are missing after compaction. With read_committed the next batch may be above the last stable offset and is
        then not returned, so that the same request would get the same response until the transaction ends.
        """
        at = self._at
        at.offset = max(at.offset, data.last_stable_offset if below else data.high_watermark)
        if below:
            at.stable = min(at.stable, at.offset)
        if not below or self._isolation == READ_COMMITTED:
            # If a leader was lost, the log may now end below its end at the start.
            at.end = min(at.end, at.offset)

    def _of_batch(self, batch: RecordBatch, below: bool) -> Iterator[Seen]:
        at = self._at
        outcome = self._outcome(batch, below)
        if outcome == "ABORT" and below:
            # The transaction ends here; a later one of the same producer is a different transaction.
            firsts = at.aborted.get(batch.producer_id, [])
            at.aborted[batch.producer_id] = [each for each in firsts if each > batch.base_offset]
        hidden = self._isolation == READ_COMMITTED and outcome not in ("", "committed")
        if hidden:
            at.passed_over += self._aborted_in(batch) if outcome == "aborted" else 0
        else:
            for record in batch.records():
                if record.offset >= at.offset:
                    yield Seen(at.topic, at.index, record, batch, outcome)
        at.offset = max(at.offset, batch.next_offset)

    def _aborted_in(self, batch: RecordBatch) -> int:
        if batch.base_offset >= self._at.offset:
            return batch.record_count
        return sum(record.offset >= self._at.offset for record in batch.records())

    def _outcome(self, batch: RecordBatch, below: bool) -> Outcome:
        if batch.is_control:
            marker = parse_end_txn_marker(batch)
            return "control" if marker is None else "COMMIT" if marker.committed else "ABORT"
        if not batch.is_transactional:
            return ""
        if below:
            firsts = self._at.aborted.get(batch.producer_id, ())
            return "aborted" if any(first <= batch.base_offset for first in firsts) else "committed"
        for offset, committed in self._at.markers.get(batch.producer_id, ()):
            if offset > batch.base_offset:
                return "committed" if committed else "aborted"
        return "open"

    def _look_ahead(self) -> None:
        """Find the markers above the last stable offset: transactions may have ended after the first open one."""
        at = self._at
        offset = at.stable
        while offset < at.end:
            data = self._fetch(offset, READ_UNCOMMITTED, 0)
            before = offset
            with _reading(at):
                for batch in _sound(data):
                    offset = batch.next_offset
                    marker = parse_end_txn_marker(batch) if batch.is_control else None
                    if marker is not None:
                        ends = at.markers.setdefault(batch.producer_id, [])
                        ends.append((batch.base_offset, marker.committed))
            if offset == before:
                return

    def _fetch(self, offset: int, isolation: int, wait_ms: int) -> PartitionData:
        at = self._at

        def ask() -> PartitionData:
            wanted = FetchPartition(
                partition=at.index,
                current_leader_epoch=-1,
                fetch_offset=offset,
                last_fetched_epoch=-1,
                log_start_offset=-1,
                partition_max_bytes=FETCH_BYTES,
            )
            request = FetchRequest(
                replica_id=-1,
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=FETCH_BYTES,
                isolation_level=isolation,
                session_epoch=-1,
                topics=[FetchTopic(topic=at.topic, partitions=[wanted])],
            )
            response = self._cluster.ask_leader(at.topic, at.index, "fetch", request, _NAMES_TOPICS)
            check(response.error_code, "Fetch")
            while not response.responses:
                # Throttled by a quota: the response is empty, and the broker delays the next request.
                response = self._cluster.ask_leader(at.topic, at.index, "fetch", request, _NAMES_TOPICS)
                check(response.error_code, "Fetch")
            data: PartitionData = response.responses[0].partitions[0]
            check(data.error_code, f"{at.topic}-{at.index}")
            return data

        return self._cluster.retrying(ask)


@contextmanager
def _reading(at: _Partition) -> Iterator[None]:
    """Context manager: turn errors of damaged batches or unsupported formats into a ``ToolError``."""
    try:
        yield
    except CorruptBatch as error:
        raise ToolError(f"{at.topic}-{at.index} cannot be read from offset {at.offset} on: {error}") from None


def _sound(data: PartitionData) -> Iterator[RecordBatch]:
    """The batches of a response, after checking each CRC. Raises ``CorruptBatch``."""
    for batch in batches(_bytes(data)):
        if not batch.has_valid_crc():
            raise CorruptBatch(Reason.RECORDS, f"the CRC of the batch at offset {batch.base_offset} is wrong")
        yield batch


def _bytes(data: PartitionData) -> bytes:
    """The batches of a response, copied out of its frame."""
    records = data.records
    return bytes(records) if isinstance(records, bytes | bytearray | memoryview) else b""
