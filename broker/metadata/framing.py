"""Encoding of metadata records in batches, and the control records of a KRaft log.

A commit is one batch, which is replayed as a whole or not at all. The log contains LeaderChangeMessages although the
quorum has one member, because Kafka's reader expects them (``KafkaRaftClient``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from broker.metadata.values import AnyRecord
from protocol.batch import CorruptBatch, Reason, RecordBatch, build_batch
from protocol.records import kraft
from protocol.records.cluster_metadata import (
    MetadataRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from protocol.schema import Value
from protocol.slotted import slotted

# Kafka's reader of the metadata log refuses batches above 8 MiB (`KafkaRaftClient.MAX_BATCH_SIZE_BYTES`).
BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
BATCH_RECORDS_MAX: Final = 10_000
"""Maximum number of records in a batch of a snapshot, or in a batch that is written at the start."""


@slotted
class Quorum:
    """The quorum's control records in the log (KIP-853). They are preserved for Kafka, which reads its voters from them.

    The log has no such records if the voters are in the settings (``controller.quorum.voters``), or if this broker
    formatted the log.
    """

    version: kraft.KRaftVersionRecord | None = None
    voters: kraft.VotersRecord | None = None

    def note(self, batch: RecordBatch) -> None:
        """Store the version and voters of the quorum, if the control batch contains them."""
        for record in batch.records():
            control = kraft.decode_control_record(record.key, record.value)
            if isinstance(control, kraft.KRaftVersionRecord):
                self.version = control
            elif isinstance(control, kraft.VotersRecord):
                self.voters = control

    def records(self) -> Iterator[Value]:
        if self.version is not None:
            yield self.version
        if self.voters is not None:
            yield self.voters


class CorruptMetadata(Exception):
    """The metadata log is missing or unreadable, or damaged by more than a torn write at its end."""


def data_batch(records: Sequence[MetadataRecord], offset: int, epoch: int, now_ms: int) -> bytes:
    """Encode the records of one metadata change as a batch."""
    values = [(now_ms, None, encode_metadata_record(record)) for record in records]
    batch = build_batch(values, base_offset=offset, leader_epoch=epoch)
    if len(batch) > BATCH_BYTES_MAX:
        raise ValueError(
            f"a metadata change of {len(batch)} bytes exceeds the limit of {BATCH_BYTES_MAX} bytes"
        )
    return batch


def leader_change(node_id: int, offset: int, epoch: int, now_ms: int) -> bytes:
    """Encode the LeaderChangeMessage batch that begins a leader epoch of the node, the only voter."""
    voters = (kraft.QuorumVoter(node_id),)
    return _control(kraft.LeaderChangeMessage(node_id, voters, voters), offset, epoch, now_ms)


def snapshot_header(last_record_ms: int, epoch: int, now_ms: int, quorum: Quorum) -> tuple[bytes, int]:
    """Encode the first batch of a snapshot, with the header and the quorum records: (batch, number of its records)."""
    records = [kraft.SnapshotHeaderRecord(last_record_ms), *quorum.records()]
    values = [(now_ms, *kraft.encode_control_record(record)) for record in records]
    return build_batch(
        [(time_ms, key, value) for time_ms, key, value in values],
        base_offset=0,
        leader_epoch=epoch,
        control=True,
    ), len(records)


def snapshot_footer(offset: int, epoch: int, now_ms: int) -> bytes:
    return _control(kraft.SnapshotFooterRecord(), offset, epoch, now_ms)


def _control(record: Value, offset: int, epoch: int, now_ms: int) -> bytes:
    key, value = kraft.encode_control_record(record)
    return build_batch([(now_ms, key, value)], base_offset=offset, leader_epoch=epoch, control=True)


def ends_snapshot(batch: RecordBatch) -> bool:
    """Whether a control batch contains the footer of a snapshot."""
    return any(
        isinstance(kraft.decode_control_record(record.key, record.value), kraft.SnapshotFooterRecord)
        for record in batch.records()
    )


def decoded(batch: RecordBatch) -> Iterator[AnyRecord]:
    """Yield the metadata records of a data batch."""
    for record in batch.records():
        if record.value is None:
            raise CorruptMetadata(f"the metadata record at offset {record.offset} has no value")
        yield decode_metadata_record(record.value)


def whole_batches(data: bytes, name: str) -> Iterator[RecordBatch]:
    """Yield the valid batches of a file, up to a torn write at its end. Raises `CorruptMetadata`.

    An invalid batch in front of a valid one was not torn: it was complete, clients have seen its changes, and it has been
    damaged since. A truncation would remove topics and allocate producer ids twice, so this is an error.
    """
    position = 0
    while position < len(data):
        batch = _good_batch(data, position)
        if batch is None:
            if _good_batch_after(data, position):
                raise CorruptMetadata(
                    f"{name} is damaged at byte {position}, and not just torn at its end: restore it from a copy"
                )
            return
        yield batch
        position += batch.size


def _good_batch(data: bytes, position: int) -> RecordBatch | None:
    try:
        batch = RecordBatch.parse(data, position)
    except CorruptBatch:
        return None
    return batch if batch.has_valid_crc() else None


def _good_batch_after(data: bytes, position: int) -> bool:
    """Whether a valid batch follows an invalid batch, at the end that the length field of the invalid batch states."""
    try:
        size = RecordBatch.parse(data, position).size
    except CorruptBatch as error:
        # With a wrong length or format the position of the next batch is unknown.
        if error.reason is not Reason.MAGIC:
            return False
        size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
    return _good_batch(data, position + size) is not None
