"""Partition logs for benchmarks: prebuilt batches, and directories with many segments that are mostly copies."""

from __future__ import annotations

import os
import struct
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from protocol.batch import RecordBatch, build_batch
from protocol.records import producer_snapshot
from storage.config import LogConfig
from storage.log import Log
from storage.recovery import OpenOptions, Recovered, open_log
from storage.segment import file_name

TOPIC_ID: Final = uuid.UUID("11111111-2222-4333-8444-555555555555")
NOW_MS: Final = 1_700_000_000_000
KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
BATCH_OVERHEAD: Final = 61 + 12
"""Approximate bytes that the batch header and the record fields add to the record's value."""


def batch_of(size: int, timestamp_ms: int = NOW_MS) -> RecordBatch:
    """A batch of one record with a total of ``size`` bytes, give or take two."""
    return RecordBatch.parse(build_batch([(timestamp_ms, None, bytes(max(size - BATCH_OVERHEAD, 0)))]))


def new_log(directory: Path, **settings: Any) -> Log:
    return Log(directory, TOPIC_ID, LogConfig(**settings))


def fill(log: Log, batch: RecordBatch, length: int) -> None:
    """Append the same batch until ``length`` bytes are written."""
    append, max_timestamp = log.append_data, batch.max_timestamp
    for _ in range(-(-length // batch.size)):
        append(batch, 0, NOW_MS, max_timestamp)


def reopen(directory: Path, *, clean: bool, recovery_point: int = 0) -> Recovered:
    return open_log(
        directory,
        OpenOptions(TOPIC_ID, LogConfig(), NOW_MS, clean=clean, recovery_point=recovery_point),
    )


def many_segments(directory: Path, count: int, batches_each: int) -> tuple[int, int]:
    """Make a directory of ``count`` sealed segments that differ in offsets and times. Returns (end offset, end time in ms).

    Each segment has ``batches_each`` batches of about 1 KiB, a millisecond apart, and indexes of the usual density.
    """
    directory.mkdir(parents=True)
    offset, timestamp_ms = 0, 0
    for _ in range(count):
        base, position, since = offset, 0, 0
        content, entries, times = bytearray(), bytearray(), bytearray()
        for _ in range(batches_each):
            body = batch_of(KIB, timestamp_ms)
            content += struct.pack(">q", offset) + bytes(body.buffer)[8:]
            if since > 4096:
                entries += struct.pack(">ii", offset - base, position)
                times += struct.pack(">qi", timestamp_ms, offset - base)
                since = 0
            since += body.size
            position += body.size
            offset += 1
            timestamp_ms += 1
        if not times.endswith(last := struct.pack(">qi", timestamp_ms - 1, offset - 1 - base)):
            times += last
        for suffix, data in (("log", content), ("index", entries), ("timeindex", times)):
            _write(directory / file_name(base, suffix), data)
    # A producer snapshot, as a clean stop writes it: without it the broker would scan the whole log for producers.
    _write(directory / file_name(offset, "snapshot"), producer_snapshot.encode([]))
    return offset, timestamp_ms


def _write(path: Path, data: bytes | bytearray) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(fd, data)
    os.close(fd)


def cpu_us(work: Callable[[], object], times: int) -> float:
    """CPU time of this thread per call in microseconds, user and system."""
    before = time.thread_time_ns()
    for _ in range(times):
        work()
    return (time.thread_time_ns() - before) / times / 1000
