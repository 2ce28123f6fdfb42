"""A model of a log in memory: batches of records, and the producer state and visible records that follow from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import strategies as st

from protocol.batch import RecordBatch, batches, parse_end_txn_marker
from storage.aborted import AbortedTransaction
from storage.log import Log

RECORDS = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.sampled_from([b"a", b"b", b"c"]),
        st.sampled_from([b"v" * 20, b"w" * 20, None]),
    ),
    min_size=1,
    max_size=3,
)
PRODUCERS = st.integers(1, 3)
Records = list[tuple[int, bytes, bytes | None]]


class Stored(NamedTuple):
    """One record. The record of a marker has only an offset and a timestamp."""

    offset: int
    time: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class Written:
    """One batch of a log, as the model predicts it."""

    base: int
    last: int
    size: int
    records: tuple[Stored, ...]
    """The remaining records: compaction removes records but keeps the offsets of the batch."""
    time: int
    """The largest timestamp of the batch's records when the batch was written."""
    producer: tuple[int, int, int] = (-1, -1, -1)
    transactional: bool = False
    committed: bool | None = None
    """For a marker: whether it is a commit. None for other batches."""
    coordinator_epoch: int = -1
    """For a marker that compaction has not emptied: its coordinator epoch."""

    @classmethod
    def of(cls, batch: RecordBatch) -> Written:
        """Convert a batch of a real log for the comparison with the model."""
        marker = parse_end_txn_marker(batch) if batch.is_control and batch.record_count else None
        return cls(
            batch.base_offset,
            batch.last_offset,
            batch.size,
            tuple(
                Stored(record.offset, record.timestamp, None, None)
                if batch.is_control
                else Stored(record.offset, record.timestamp, record.key, record.value)
                for record in batch.records()
            ),
            batch.max_timestamp,
            (batch.producer_id, batch.producer_epoch, batch.base_sequence),
            batch.is_transactional,
            # A marker that compaction has emptied has no effect: all data of its transaction has been removed before.
            (marker.committed if marker is not None else True) if batch.is_control else None,
            marker.coordinator_epoch if marker is not None else -1,
        )


@dataclass
class Known:
    """The state of one producer in the model."""

    epoch: int = -1
    last_sequence: int = -1
    last_offset: int = -1
    delta: int = 0
    timestamp: int = -1
    coordinator_epoch: int = -1
    transaction: list[Written] = field(default_factory=list)


def producers_after(written: Iterable[Written]) -> tuple[dict[int, Known], set[int]]:
    """The state of each producer, and the base offsets of the data batches that were aborted."""
    known: dict[int, Known] = {}
    aborted: set[int] = set()
    for batch in written:
        producer_id, epoch, sequence = batch.producer
        if producer_id < 0:
            continue
        entry = known.setdefault(producer_id, Known())
        if epoch != entry.epoch:
            entry.epoch, entry.last_sequence, entry.last_offset, entry.delta = epoch, -1, -1, 0
        entry.timestamp = batch.time
        if batch.committed is not None:
            # Later epochs have it too, as an operator needs it to abort their transactions (DescribeProducers).
            entry.coordinator_epoch = max(entry.coordinator_epoch, batch.coordinator_epoch)
            if not batch.committed:
                aborted.update(data.base for data in entry.transaction)
            entry.transaction = []
            continue
        entry.delta = batch.last - batch.base
        entry.last_sequence = sequence + entry.delta
        entry.last_offset = batch.last
        if batch.transactional:
            entry.transaction.append(batch)
    return known, aborted


def latest(written: list[Written], end_offset: int) -> dict[bytes, tuple[int, bytes]]:
    """Offset and value of the last record of each key, among the committed records below ``end_offset``.

    A key whose last record is a tombstone has no entry.
    """
    _, aborted = producers_after(written)
    found: dict[bytes, tuple[int, bytes]] = {}
    for batch in written:
        if batch.last >= end_offset or batch.base in aborted or batch.committed is not None:
            continue
        for record in batch.records:
            assert record.key is not None
            found.pop(record.key, None)
            if record.value is not None:
                found[record.key] = (record.offset, record.value)
    return found


def content(log: Log) -> list[Written]:
    """All batches in the files of a log."""
    return [Written.of(batch) for segment in log.segments for batch in segment.batches()]


def is_left_of(before: list[Written], after: list[Written]) -> Iterator[str]:
    """Yield an error for each difference between ``before`` and ``after`` that a compaction must not make."""
    were = {batch.base: batch for batch in before}
    for batch in after:
        was = were.get(batch.base)
        if was is None or (batch.last, batch.producer) != (was.last, was.producer):
            yield f"{batch} was never written"
        elif not set(batch.records) <= set(was.records):
            yield f"{batch} has records that {was} had not"
    if [batch.base for batch in after] != sorted(batch.base for batch in after):
        yield "the order has changed"


def survived_as(what: str, done: bool, before: list[Written], after: list[Written]) -> bool:
    """Whether the batches ``after`` are valid if a crash hit the operation ``what`` on the batches ``before``.

    ``done``: whether the operation ended before the crash. An appended batch must be there if ``done``, and may be
    missing otherwise. A truncation or a deletion of segments may have happened in part. No other operation changes
    the batches.
    """
    if what in ("append", "end"):
        return after[: len(before)] == before and len(after) - len(before) in ((1,) if done else (0, 1))
    if what == "truncate":
        return after == before[: len(after)]
    if what == "drop":
        return after == before[len(before) - len(after) :]
    return after == before


def visible(data: bytes, aborted: list[AbortedTransaction]) -> list[int]:
    """Base offsets of the batches that a read_committed consumer returns, by the algorithm of Kafka's client."""
    coming = sorted(aborted, key=lambda entry: entry.first_offset)
    active: set[int] = set()
    shown = []
    for batch in batches(data):
        while coming and coming[0].first_offset <= batch.last_offset:
            active.add(coming.pop(0).producer_id)
        if batch.is_control:
            marker = parse_end_txn_marker(batch) if batch.record_count else None
            if marker is not None and not marker.committed:
                active.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in active):
            shown.append(batch.base_offset)
    return shown
