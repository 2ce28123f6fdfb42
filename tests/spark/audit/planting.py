"""Plant defects in copied segments, each in a topic with the defect's name; return the places that the audit must find.

Batches are removed, inserted and changed with correct checksums, and offsets are numbered again without gaps: the file looks
as if the broker had written it like that.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from struct import Struct

import google_crc32c

from protocol.batch import RecordBatch, batches, build_batch, end_txn_marker, patched_header
from protocol.records.transaction_log import TransactionLogKey, TransactionLogValue

PREPARE_COMMIT = 2
STRANGER, TRANSACTIONAL_STRANGER, MARKED_STRANGER = 424_242, 424_243, 424_244
"""Producer ids that no coordinator has allocated, for batches and markers that are inserted."""
NOW_MS = 1_795_000_000_000

# Positions of fields in a batch's header (RecordBatch.java), and the format of an index entry.
LEADER_EPOCH, LEADER_EPOCH_AT = Struct(">i"), 12
CRC, CRC_AT = Struct(">I"), 17
ATTRIBUTES, ATTRIBUTES_AT = Struct(">h"), 21
TRANSACTIONAL = 0x10
TIMESTAMP, MAX_TIMESTAMP_AT = Struct(">q"), 35
COUNT, COUNT_AT = Struct(">i"), 57
INDEX_ENTRY = Struct(">ii")


@dataclass(frozen=True)
class Place:
    """A planted defect: the finding's name, and the place of its batch.

    ``offset`` is None for damaged bytes, whose offset is not reliable.
    """

    name: str
    topic: str
    partition: int
    offset: int | None
    position: int | None


class Segment:
    """The only segment of a partition, as a list of batches."""

    def __init__(self, directory: Path) -> None:
        self.topic, _, index = directory.name.rpartition("-")
        self.partition = int(index)
        (self.path,) = directory.glob("*.log")
        self.batches = list(batches(self.path.read_bytes()))

    def data(self, *, of_transaction: int) -> list[int]:
        """Indexes of the data batches of the nth transaction (from 0), which are between two markers."""
        markers = self.markers()
        first = markers[of_transaction - 1] + 1 if of_transaction else 0
        return list(range(first, markers[of_transaction]))

    def markers(self) -> list[int]:
        return [index for index, each in enumerate(self.batches) if each.is_control]

    def write(self, name: str, index: int) -> Place:
        """Number the offsets again and write the file; return the place of the batch at ``index``."""
        offset, position, content, place = 0, 0, b"", None
        for number, each in enumerate(self.batches):
            length = each.last_offset - each.base_offset + 1
            if number == index:
                place = Place(name, self.topic, self.partition, offset, position)
            content += _at(offset, each)
            offset, position = offset + length, position + each.size
        self.path.write_bytes(content)
        self.path.with_suffix(".index").unlink(missing_ok=True)  # its positions are wrong now
        assert place is not None
        return place


def _at(offset: int, batch: RecordBatch) -> bytes:
    body = bytes(batch.buffer)[batch.start : batch.start + batch.size]
    return patched_header(body, offset, batch.partition_leader_epoch) + body[16:]


def _batch(epoch: int, sequence: int, *, transactional: bool = False) -> RecordBatch:
    row = (NOW_MS, b"key", f"{epoch}/{sequence}".encode())
    return RecordBatch.parse(
        build_batch(
            [row],
            leader_epoch=0,
            producer_id=TRANSACTIONAL_STRANGER if transactional else STRANGER,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def _patched(batch: RecordBatch, at: int, value: bytes) -> RecordBatch:
    """The batch with other bytes in its header, and a matching checksum."""
    body = bytearray(bytes(batch.buffer)[batch.start : batch.start + batch.size])
    body[at : at + len(value)] = value
    CRC.pack_into(body, CRC_AT, google_crc32c.value(bytes(body[ATTRIBUTES_AT:])))
    return RecordBatch.parse(bytes(body))


def _marker(producer_id: int, epoch: int, timestamp_ms: int) -> RecordBatch:
    """An abort marker with this producer id and epoch."""
    return RecordBatch.parse(
        end_txn_marker(
            producer_id,
            epoch,
            committed=False,
            coordinator_epoch=0,
            timestamp_ms=timestamp_ms,
            leader_epoch=0,
        )
    )


def duplicate(segment: Segment) -> list[Place]:
    first, second, *_ = segment.data(of_transaction=1)
    segment.batches.insert(second + 1, segment.batches[first])
    place = segment.write("duplicated_sequence", second + 1)
    # The business keys of its two records are duplicated as well.
    assert place.offset is not None
    again = [replace(place, name="duplicated_key", offset=place.offset + record) for record in (0, 1)]
    return [place, *again]


def gap(segment: Segment) -> list[Place]:
    _, second, _ = segment.data(of_transaction=1)
    del segment.batches[second]
    return [segment.write("sequence_gap", second)]


def lost_offsets(segment: Segment) -> list[Place]:
    """Remove a batch without closing the gap in the offsets, unlike ``gap``."""
    _, second, third = segment.data(of_transaction=1)
    content, lost = segment.path.read_bytes(), segment.batches[second]
    segment.path.write_bytes(content[: lost.start] + content[lost.start + lost.size :])
    offset = segment.batches[third].base_offset
    return [Place("lost_offsets", segment.topic, segment.partition, offset, lost.start)]


def overlap(segment: Segment) -> list[Place]:
    """Append a batch of another producer at an offset that another batch has: one of the two offsets must be wrong."""
    content, last = segment.path.read_bytes(), segment.batches[-1].last_offset
    segment.path.write_bytes(content + _at(last, _batch(0, 0)))
    return [Place("damage", segment.topic, segment.partition, None, len(content))]


def overlapping_files(segment: Segment) -> list[Place]:
    """Write an overlap as ``overlap`` does, in a new segment whose name is the last offset of the segment before it."""
    last = segment.batches[-1]
    rolled = segment.path.with_name(f"{last.last_offset:020d}.log")
    rolled.write_bytes(_at(last.last_offset, _batch(0, 0)))
    return [Place("damage", segment.topic, segment.partition, None, last.start)]


def missing_marker(segment: Segment) -> list[Place]:
    first, *_ = segment.data(of_transaction=1)
    del segment.batches[segment.markers()[1]]
    return [segment.write("missing_marker", first)]


def missing_last_marker(segment: Segment) -> list[Place]:
    first, *_ = segment.data(of_transaction=2)
    del segment.batches[segment.markers()[2]]
    return [segment.write("missing_marker", first)]


def mixed_outcome(segment: Segment) -> list[Place]:
    index = segment.markers()[1]
    said = segment.batches[index]
    segment.batches[index] = RecordBatch.parse(
        end_txn_marker(
            said.producer_id,
            said.producer_epoch,
            committed=False,
            coordinator_epoch=0,
            timestamp_ms=said.max_timestamp,
            leader_epoch=said.partition_leader_epoch,
        )
    )
    place = segment.write("mixed_outcome", index)
    # The broker wrote a commit here, so the .txnindex has no entry of the aborted transaction.
    return [place, replace(place, name="wrong_index", position=0)]


def late_batch(segment: Segment) -> list[Place]:
    segment.batches.append(segment.batches[segment.data(of_transaction=2)[-1]])
    return [segment.write("late_batch", len(segment.batches) - 1)]


def epoch_regression(segment: Segment) -> list[Place]:
    segment.batches += [_batch(3, 0), _batch(2, 0), _batch(3, 1)]
    return [segment.write("epoch_regression", len(segment.batches) - 2)]


def hanging(segment: Segment) -> list[Place]:
    segment.batches.append(_batch(0, 0, transactional=True))
    return [segment.write("hanging_transaction", len(segment.batches) - 1)]


def bit_flip(segment: Segment) -> list[Place]:
    hit = segment.batches[segment.data(of_transaction=1)[1]]
    content = bytearray(segment.path.read_bytes())
    content[hit.start + hit.size - 2] ^= 4
    segment.path.write_bytes(content)
    return [Place("damage", segment.topic, segment.partition, None, hit.start)]


def not_transactional(segment: Segment) -> list[Place]:
    index = segment.data(of_transaction=1)[1]
    batch = segment.batches[index]
    (attributes,) = ATTRIBUTES.unpack_from(batch.buffer, batch.start + ATTRIBUTES_AT)
    segment.batches[index] = _patched(batch, ATTRIBUTES_AT, ATTRIBUTES.pack(attributes & ~TRANSACTIONAL))
    return [segment.write("not_transactional", index)]


def second_marker(segment: Segment) -> list[Place]:
    """Append an abort marker with the epoch of an earlier commit marker."""
    said = segment.batches[segment.markers()[2]]
    segment.batches.append(_marker(said.producer_id, said.producer_epoch, said.max_timestamp + 1))
    return [segment.write("mixed_outcome", len(segment.batches) - 1)]


def unexpected_producer(segment: Segment) -> list[Place]:
    segment.batches.append(_marker(MARKED_STRANGER, 0, segment.batches[-1].max_timestamp))
    return [segment.write("unexpected_producer", len(segment.batches) - 1)]


def record_count(segment: Segment) -> list[Place]:
    """Write one record less in the header than the batch has, so that bytes are left when the records are decoded."""
    index = segment.data(of_transaction=1)[1]
    fewer = COUNT.pack(segment.batches[index].record_count - 1)
    segment.batches[index] = _patched(segment.batches[index], COUNT_AT, fewer)
    place = segment.write("record_count", index)
    return [place, replace(place, name="damage", offset=None)]


def wrong_max_timestamp(segment: Segment) -> list[Place]:
    index = segment.data(of_transaction=1)[1]
    later = TIMESTAMP.pack(segment.batches[index].max_timestamp + 1)
    segment.batches[index] = _patched(segment.batches[index], MAX_TIMESTAMP_AT, later)
    return [segment.write("wrong_max_timestamp", index)]


def leader_epoch(segment: Segment) -> list[Place]:
    """Raise the leader epoch of the first batch. The checksum does not cover this field."""
    first, second, *_ = segment.batches
    content = bytearray(segment.path.read_bytes())
    LEADER_EPOCH.pack_into(content, LEADER_EPOCH_AT, first.partition_leader_epoch + 5)
    segment.path.write_bytes(content)
    return [
        Place("leader_epoch_regression", segment.topic, segment.partition, second.base_offset, second.start)
    ]


def zero_tail(segment: Segment) -> list[Place]:
    """Append zeros as if space had been preallocated, although a broker that is stopped truncates such space."""
    content = segment.path.read_bytes()
    segment.path.write_bytes(content + bytes(1 << 20))
    return [Place("damage", segment.topic, segment.partition, None, len(content))]


def gone(segment: Segment) -> list[Place]:
    shutil.rmtree(segment.path.parent)
    return [Place("lost_partition", segment.topic, segment.partition, None, None)]


def index_entry(segment: Segment) -> list[Place]:
    segment.path.with_suffix(".index").write_bytes(INDEX_ENTRY.pack(1, 7))
    return [Place("wrong_index", segment.topic, segment.partition, None, 0)]


def transaction_index(segment: Segment) -> list[Place]:
    """Empty the .txnindex of partition 2 of the topic, which has an aborted transaction."""
    beside = Segment(segment.path.parent.with_name(f"{segment.topic}-2"))
    assert beside.path.with_suffix(".txnindex").stat().st_size > 0
    beside.path.with_suffix(".txnindex").write_bytes(b"")
    marker = beside.batches[beside.markers()[0]]
    return [Place("wrong_index", beside.topic, beside.partition, marker.base_offset, 0)]


DEFECTS: dict[str, Callable[[Segment], list[Place]]] = {
    each.__name__: each
    for each in (
        duplicate,
        gap,
        lost_offsets,
        overlap,
        overlapping_files,
        missing_marker,
        missing_last_marker,
        mixed_outcome,
        late_batch,
        epoch_regression,
        hanging,
        bit_flip,
        not_transactional,
        second_marker,
        unexpected_producer,
        record_count,
        wrong_max_timestamp,
        leader_epoch,
        zero_tail,
        gone,
        index_entry,
        transaction_index,
    )
}


def lose_prepare(data_dir: Path, transactional_id: str) -> Place:
    """Remove the first PrepareCommit record of this transactional id from ``__transaction_state``."""
    for directory in sorted(data_dir.glob("__transaction_state-*")):
        if not any(path.stat().st_size for path in directory.glob("*.log")):
            continue
        segment = Segment(directory)
        for index, each in enumerate(segment.batches):
            (record,) = each.records()
            if (
                record.value is None
                or TransactionLogKey.decode(record.key or b"").transactional_id != transactional_id
            ):
                continue
            if TransactionLogValue.decode(record.value).transaction_status == PREPARE_COMMIT:
                del segment.batches[index]
                later = next(
                    number
                    for number, other in enumerate(segment.batches[index:], index)
                    if TransactionLogKey.decode(next(iter(other.records())).key or b"").transactional_id
                    == transactional_id
                )
                return segment.write("illegal_transition", later)
    raise AssertionError(f"__transaction_state has no PrepareCommit of {transactional_id}")
