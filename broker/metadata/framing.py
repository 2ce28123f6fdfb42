"""Metadata records in batches, and the control records of a KRaft log.

A commit is one batch: it is there as a whole or not at all. The log of a quorum of one still says who leads since when,
because Kafka's reader expects it to (``KafkaRaftClient``, ``LeaderChangeMessage``).
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

# Kafka's reader of metadata refuses batches above 8 MiB (`KafkaRaftClient.MAX_BATCH_SIZE_BYTES`).
BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
BATCH_RECORDS_MAX: Final = 10_000
"""A snapshot's batches, and a restart's, are cut at this many records."""


@slotted
class Quorum:
    """What the log says of the quorum itself, in control records (KIP-853): kept for Kafka, which finds its voters there.

    A directory whose voters stand in the settings has none of it, and so have those that we format.
    """

    version: kraft.KRaftVersionRecord | None = None
    voters: kraft.VotersRecord | None = None

    def note(self, batch: RecordBatch) -> None:
        """Take what a control batch says."""
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
    """The metadata log holds something that no torn write explains. The message names the file."""


def data_batch(records: Sequence[MetadataRecord], offset: int, epoch: int, now_ms: int) -> bytes:
    """One commit."""
    values = [(now_ms, None, encode_metadata_record(record)) for record in records]
    batch = build_batch(values, base_offset=offset, leader_epoch=epoch)
    if len(batch) > BATCH_BYTES_MAX:
        raise ValueError(f"a metadata change of {len(batch)} bytes is larger than {BATCH_BYTES_MAX}")
    return batch


def leader_change(node_id: int, offset: int, epoch: int, now_ms: int) -> bytes:
    """The node leads from here on, elected by itself."""
    voters = (kraft.QuorumVoter(node_id),)
    return _control(kraft.LeaderChangeMessage(node_id, voters, voters), offset, epoch, now_ms)


def snapshot_header(last_record_ms: int, epoch: int, now_ms: int, quorum: Quorum) -> tuple[bytes, int]:
    """The beginning of a snapshot, and the offset behind it: the header, then what is known of the quorum."""
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
    """Whether a control batch is the last of a snapshot."""
    return any(
        isinstance(kraft.decode_control_record(record.key, record.value), kraft.SnapshotFooterRecord)
        for record in batch.records()
    )


def decoded(batch: RecordBatch) -> Iterator[AnyRecord]:
    """The metadata records of a data batch."""
    for record in batch.records():
        if record.value is None:
            raise CorruptMetadata(f"the metadata record at offset {record.offset} has no value")
        yield decode_metadata_record(record.value)


def whole_batches(data: bytes, name: str) -> Iterator[RecordBatch]:
    """The good batches of a file, up to a tail that a crash has torn.

    A batch that is bad although a good one follows was not torn: it was whole, was answered for, and has been
    damaged since. To cut there would take back topics and hand out producer ids twice, so it is an error.
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
    """Whether the length that the bad batch claims leads to a good one."""
    try:
        size = RecordBatch.parse(data, position).size
    except CorruptBatch as error:
        # A wrong length or format hides where the next batch begins; its end is then the end of what we know.
        if error.reason is not Reason.MAGIC:
            return False
        size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
    return _good_batch(data, position + size) is not None
