"""The replay of the metadata log at the start: the newest snapshot, then every batch after it."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

from broker.metadata.deltas import apply
from broker.metadata.framing import CorruptMetadata, Quorum, decoded, whole_batches
from broker.metadata.image import Image
from broker.metadata.snapshot import read_snapshot, snapshots
from broker.metadata.values import AnyRecord, InconsistentMetadata, MetadataDelta
from protocol.batch import CorruptBatch, RecordBatch
from protocol.records import cluster_metadata as schema
from protocol.schema import MalformedRecord
from protocol.slotted import slotted


@slotted
class Replayed:
    """The result of a replay, apart from the image."""

    next_offset: int = 0
    log_end: int = 0
    """End offset of the last segment; lower than ``next_offset`` if the newest snapshot ends later."""
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """(epoch, first offset) of the batches in the segments, in rising order."""
    snapshot_epoch: int = 0
    segment: Path | None = None
    """The segment to append to; None if there is none."""
    segment_bytes: int = 0
    """Size of the valid batches in ``segment``; the rest is a torn write."""
    log_bytes: int = 0
    """Bytes of the batches that were read after the snapshot."""
    snapshot_bytes: int = 0
    last_record_ms: int = -1
    quorum: Quorum = field(default_factory=Quorum)
    held_back: list[AnyRecord] | None = None
    """Records of a metadata transaction that has not ended yet (KIP-868); None if no transaction is open."""

    @property
    def epoch(self) -> int:
        return max(self.snapshot_epoch, self.epochs[-1][0] if self.epochs else 0)


def replay(directory: Path, image: Image) -> Replayed:
    """Apply the newest snapshot and the log of the directory to an empty image."""
    state = Replayed()
    existing = snapshots(directory)
    if existing:
        newest = existing[-1]
        read_snapshot(newest, image, state.quorum)
        state.next_offset = newest.end_offset
        state.snapshot_epoch = newest.epoch
        state.snapshot_bytes = newest.path.stat().st_size
    segments = sorted(path for path in directory.glob("*.log") if path.stem.isdigit())
    for path in segments:
        data = path.read_bytes()
        state.segment, state.segment_bytes = path, 0
        if int(path.stem) > state.next_offset:
            raise CorruptMetadata(
                f"{path} begins after offset {state.next_offset}: a file of the log is missing"
            )
        for batch in whole_batches(data, path.name):
            state.segment_bytes += batch.size
            _fold(state, image, batch)
        if state.segment_bytes != len(data) and path != segments[-1]:
            raise CorruptMetadata(f"{path} is torn although later segments follow it: restore it from a copy")
    return state


def _fold(state: Replayed, image: Image, batch: RecordBatch) -> None:
    epoch = batch.partition_leader_epoch
    if not state.epochs or epoch > state.epochs[-1][0]:
        state.epochs.append((epoch, batch.base_offset))
    state.log_end = batch.next_offset
    if batch.base_offset < state.next_offset:
        return  # covered by the snapshot
    if batch.base_offset != state.next_offset:
        raise CorruptMetadata(
            f"the metadata log jumps from offset {state.next_offset} to {batch.base_offset}"
        )
    state.log_bytes += batch.size
    try:
        if batch.is_control:
            state.quorum.note(batch)
        else:
            changes = MetadataDelta()  # no listener is subscribed yet
            for record in decoded(batch):
                _fold_record(state, image, record, changes)
            state.last_record_ms = batch.max_timestamp
    except (CorruptBatch, InconsistentMetadata, MalformedRecord) as error:
        # The checksum is valid, so the batch was written like that, by a newer Kafka or because of a bug.
        raise CorruptMetadata(
            f"the metadata log cannot be read at offset {batch.base_offset}: {error}"
        ) from error
    state.next_offset = batch.next_offset
    image.offset = batch.last_offset


def _fold_record(state: Replayed, image: Image, record: AnyRecord, changes: MetadataDelta) -> None:
    """Apply a record. Records of a metadata transaction are applied when it ends, and dropped if it is aborted."""
    if isinstance(record, schema.BeginTransactionRecord):
        state.held_back = []
    elif isinstance(record, schema.AbortTransactionRecord):
        state.held_back = None
    elif isinstance(record, schema.EndTransactionRecord):
        held_back, state.held_back = state.held_back or [], None
        for one in held_back:
            apply(image, one, changes)
    elif state.held_back is not None:
        state.held_back.append(record)
    else:
        apply(image, record, changes)
