"""Reading partitions: the batches as they are stored, and what became of each transaction in them."""

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
# Version 12 is the last that names topics; from 13 on a request needs their ids.
_NAMES_TOPICS: Final = 12

Outcome = Literal["", "committed", "aborted", "open", "COMMIT", "ABORT", "control"]
"""Of a record without a transaction, of one with, and of a control record: a marker or another one."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A record in its partition."""

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
    """Where reading ends; the last stable offset or the high watermark of the start."""
    stable: int
    aborted: dict[int, list[int]] = field(default_factory=dict)
    """First offsets of aborted transactions below the last stable offset, by producer id."""
    markers: dict[int, list[tuple[int, bool]]] = field(default_factory=dict)
    """Above it: the markers, by producer id."""
    high_watermark: int = -1
    """Of the last response; -1 before the first."""
    passed_over: int = 0
    """Aborted records that were not yielded."""


class Reader:
    """Reads one partition from an offset on.

    ``isolation`` decides what is there to read, as with a consumer: with ``READ_COMMITTED`` no aborted records, no open
    transactions and no markers; with ``READ_UNCOMMITTED`` all of it, each record with its outcome.
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
        """Of the next record to be read."""
        return self._at.offset

    @property
    def at_end(self) -> bool:
        """All that was there at the start is read."""
        return self._at.offset >= self._at.end

    @property
    def topic(self) -> str:
        return self._at.topic

    @property
    def partition(self) -> int:
        return self._at.index

    @property
    def stable(self) -> int:
        """The last stable offset, as far as it is known."""
        return self._at.stable

    @property
    def high_watermark(self) -> int:
        """As the last response had it; -1 before the first."""
        return self._at.high_watermark

    @property
    def aborted(self) -> int:
        """The aborted records that a reader with ``READ_COMMITTED`` has passed over."""
        return self._at.passed_over

    def seek(self, offset: int) -> None:
        """Go on at this offset."""
        self._at.offset = offset

    def read(self, wait_ms: int = 0) -> Iterator[Seen]:
        """The next records, those of one request; none if there are none within ``wait_ms``."""
        at = self._at
        # Below the last stable offset the leader names aborted transactions, if the request is for committed ones.
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
        """Fetch the next batches, and go on behind them without a look at their records."""
        data = self._fetch(self._at.offset, self._isolation, 0)
        if not data.records:
            self._pass_gap(data, self._isolation == READ_COMMITTED)
        with _reading(self._at):
            for batch in batches(_bytes(data)):
                self._at.offset = batch.next_offset

    def _pass_gap(self, data: PartitionData, below: bool) -> None:
        """Go on where the response ends: it has no batch, so that no offset from here to there has a record.

        Offsets are missing where a log was compacted. The next batch may lie behind the last stable offset, and with
        read_committed it is not sent: the same request would get the same response for as long as that holds.
        """
        at = self._at
        at.offset = max(at.offset, data.last_stable_offset if below else data.high_watermark)
        if below:
            at.stable = min(at.stable, at.offset)
        if not below or self._isolation == READ_COMMITTED:
            # After the loss of a leader the log may end before what was its end at the start.
            at.end = min(at.end, at.offset)

    def _of_batch(self, batch: RecordBatch, below: bool) -> Iterator[Seen]:
        at = self._at
        outcome = self._outcome(batch, below)
        if outcome == "ABORT" and below:
            # The transaction ends here: a later one of the same producer is another.
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
        """Find the markers above the last stable offset: transactions may have ended behind one that is open."""
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
                # A quota: the response is empty, and the broker reads the next request when the time is over.
                response = self._cluster.ask_leader(at.topic, at.index, "fetch", request, _NAMES_TOPICS)
                check(response.error_code, "Fetch")
            data: PartitionData = response.responses[0].partitions[0]
            check(data.error_code, f"{at.topic}-{at.index}")
            return data

        return self._cluster.retrying(ask)


@contextmanager
def _reading(at: _Partition) -> Iterator[None]:
    """A ``ToolError`` for batches that are damaged, or of a format that this client does not read."""
    try:
        yield
    except CorruptBatch as error:
        raise ToolError(f"{at.topic}-{at.index}, from offset {at.offset} on: {error}") from None


def _sound(data: PartitionData) -> Iterator[RecordBatch]:
    """The batches of a response, each with the CRC that it had at its producer. Raises ``CorruptBatch``."""
    for batch in batches(_bytes(data)):
        if not batch.has_valid_crc():
            raise CorruptBatch(Reason.RECORDS, f"the CRC of the batch at {batch.base_offset} is wrong")
        yield batch


def _bytes(data: PartitionData) -> bytes:
    """The batches of a response, copied out of its frame."""
    records = data.records
    return bytes(records) if isinstance(records, bytes | bytearray | memoryview) else b""
