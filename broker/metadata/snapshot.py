"""Snapshots: the whole image in one file, so that a start need not read the log before the snapshot (KIP-630).

The file ``<end offset, 20 digits>-<epoch, 10 digits>.checkpoint`` in the log's directory has a header, the records, a
footer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from broker.metadata.deltas import apply
from broker.metadata.framing import (
    BATCH_RECORDS_MAX,
    CorruptMetadata,
    Quorum,
    data_batch,
    decoded,
    ends_snapshot,
    snapshot_footer,
    snapshot_header,
    whole_batches,
)
from broker.metadata.image import Image
from broker.metadata.values import MetadataDelta
from protocol.named_tuple import NamedTuple
from protocol.records.cluster_metadata import MetadataRecord
from storage.files import replace_file

_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


class Snapshot(NamedTuple):
    """A snapshot file. It covers all records below ``end_offset``, of epochs up to ``epoch``."""

    path: Path
    end_offset: int
    epoch: int


def snapshots(directory: Path) -> list[Snapshot]:
    """Return the complete snapshots in a directory, oldest first."""
    found = []
    for path in directory.iterdir():
        match = _NAME.fullmatch(path.name)
        if match is not None:
            found.append(Snapshot(path, int(match[1]), int(match[2])))
    return sorted(found, key=lambda snapshot: (snapshot.end_offset, snapshot.epoch))


def read_snapshot(snapshot: Snapshot, image: Image, quorum: Quorum) -> None:
    """Apply a snapshot to an empty image, and store the snapshot's quorum records in ``quorum``."""
    finished = False
    changes = MetadataDelta()
    for batch in whole_batches(snapshot.path.read_bytes(), snapshot.path.name):
        if batch.is_control:
            quorum.note(batch)
            finished = ends_snapshot(batch)
            continue
        for record in decoded(batch):
            apply(image, record, changes)
    if not finished:
        raise CorruptMetadata(f"{snapshot.path} is incomplete (it has no footer): restore it from a copy")
    image.offset = snapshot.end_offset - 1


def write_snapshot(
    directory: Path,
    records: Iterable[MetadataRecord],
    end_offset: int,
    epoch: int,
    last_record_ms: int,
    now_ms: int,
    quorum: Quorum,
) -> Snapshot:
    """Write and sync a snapshot. The file gets its final name only when it is complete."""
    header, offset = snapshot_header(last_record_ms, epoch, now_ms, quorum)
    chunks = [header]
    remaining = iter(records)
    while batch := list(islice(remaining, BATCH_RECORDS_MAX)):
        chunks.append(data_batch(batch, offset, epoch, now_ms))
        offset += len(batch)
    chunks.append(snapshot_footer(offset, epoch, now_ms))
    path = directory / f"{end_offset:020d}-{epoch:010d}.checkpoint"
    replace_file(path, b"".join(chunks))
    return Snapshot(path, end_offset, epoch)
