"""Short functions that make logs for tests, and readers of their files that use only `struct` and the specified layout."""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.batch import EndTxnMarker, RecordBatch, build_batch, end_txn_marker
from storage.config import LogConfig
from storage.log import Log
from storage.recovery import OpenOptions, Recovered, open_log
from tests.support.batches import stored

TOPIC_ID = uuid.UUID("a7ad32e0-e8b6-4c0a-9471-0dfd971c20a9")
NOW_MS = 1_700_000_000_000


def options(clean: bool = True, **changes: Any) -> OpenOptions:
    given = {"topic_id": TOPIC_ID, "config": LogConfig(), "now_ms": NOW_MS, "clean": clean} | changes
    return OpenOptions(**given)  # type: ignore[arg-type]


def reopen(log: Log, *, clean: bool = True, **changes: Any) -> Recovered:
    """Open the log's directory again, after a clean stop or (``clean=False``) as after the process was killed."""
    return open_log(log.directory, options(clean, config=log.config, **changes))


def data(
    count: int = 1,
    *,
    producer: tuple[int, int, int] = (-1, -1, -1),
    timestamp_ms: int = NOW_MS,
    transactional: bool = False,
    value: bytes = b"value",
    compression: int = 0,
) -> RecordBatch:
    """A batch of ``count`` records. ``producer`` is (id, epoch, base sequence)."""
    records = [(timestamp_ms, b"key", value) for _ in range(count)]
    producer_id, epoch, sequence = producer
    return RecordBatch.parse(
        build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
            compression=compression,
        )
    )


def append(log: Log, count: int = 1, *, leader_epoch: int = 0, now_ms: int = NOW_MS, **batch: Any) -> int:
    """Append one batch (see ``data``) and return its base offset."""
    made = data(count, **batch)
    return log.append_data(made, leader_epoch, now_ms, made.max_timestamp)


def end(
    log: Log,
    producer_id: int,
    *,
    committed: bool,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    leader_epoch: int = 0,
    now_ms: int = NOW_MS,
) -> int:
    """Append the marker that ends a producer's transaction, and return its offset."""
    marker = EndTxnMarker(committed, coordinator_epoch)
    made = end_txn_marker(
        producer_id, epoch, committed=committed, coordinator_epoch=coordinator_epoch, timestamp_ms=now_ms
    )
    return log.append_marker(RecordBatch.parse(made), marker, leader_epoch, now_ms)


@dataclass
class Indexes:
    """The expected content of a segment's index files (`OffsetIndex`, `TimeIndex`)."""

    offsets: bytes
    times: bytes


def indexes(content: bytes, base_offset: int, interval_bytes: int, *, sealed: bool = True) -> Indexes:
    offsets: list[bytes] = []
    times: list[tuple[int, int]] = []
    since, latest, latest_offset = 0, -1, base_offset
    for batch in stored(content):
        if batch.max_timestamp_ms > latest:
            latest, latest_offset = batch.max_timestamp_ms, batch.last_offset
        if since > interval_bytes:
            offsets.append(struct.pack(">ii", batch.last_offset - base_offset, batch.position))
            if latest > (times[-1][0] if times else -1):
                times.append((latest, latest_offset))
            since = 0
        since += batch.size
    if sealed and latest > (times[-1][0] if times else -1):
        times.append((latest, latest_offset))
    return Indexes(
        b"".join(offsets), b"".join(struct.pack(">qi", time, offset - base_offset) for time, offset in times)
    )


def aborted(content: bytes) -> list[tuple[int, int, int, int]]:
    """(producer id, first offset, last offset, last stable offset) of a `.txnindex` file."""
    entries = list(struct.iter_unpack(">hqqqq", content))
    assert all(entry[0] == 0 for entry in entries)
    return [entry[1:] for entry in entries]


def contents(directory: Path, suffix: str) -> dict[int, bytes]:
    """The contents of the files with this suffix, by base offset."""
    return {int(path.stem): path.read_bytes() for path in sorted(directory.glob(f"*.{suffix}"))}


def assert_indexes_match_the_log(log: Log) -> None:
    """Compare all index files with those computed from the `.log` files alone."""
    for base, content in contents(log.directory, "log").items():
        expected = indexes(content, base, log.config.index_interval_bytes)
        assert (log.directory / f"{base:020d}.index").read_bytes() == expected.offsets
        assert (log.directory / f"{base:020d}.timeindex").read_bytes() == expected.times
