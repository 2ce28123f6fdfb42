"""Reads of 1 MiB of a partition's log, compared with ``pread`` of the same bytes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Final

from benchmarks.figures import Figure, Run
from benchmarks.logs import KIB, MIB, batch_of, fill, new_log
from benchmarks.process import used_by
from storage.log import Log

LOG_BYTES: Final = 256 * MIB
READ_BYTES: Final = MIB


def measure(run: Run) -> Iterator[Figure]:
    log, batch = new_log(run.scratch / "read-0", segment_bytes=64 * MIB), batch_of(64 * KIB)
    fill(log, batch, LOG_BYTES)
    ours, plain, ours_s, plain_s = [], [], [], []
    with used_by(None) as usage:
        for number in range(run.scaled(9, 3) + 1):
            theirs, own = _timed(lambda: _pread(log)), _timed(lambda: _read(log, batch.size))
            if number:  # skip the first round, the warm-up
                plain.append(theirs[0])
                plain_s.append(theirs[1])
                ours.append(own[0])
                ours_s.append(own[1])
    log.close(clean=False)
    yield Figure(
        "CPU per read of 1 MiB above a plain pread",
        median(mine - theirs for mine, theirs in zip(ours, plain, strict=True)),
        "us",
        baseline=f"pread {median(plain):.0f} us",
        note=f"{LOG_BYTES / median(ours_s) / 1e6:.0f} MB/s, pread {LOG_BYTES / median(plain_s) / 1e6:.0f} MB/s",
        other_cpu=usage.other_cpu,
    )


def _timed(work: Callable[[], int]) -> tuple[float, float]:
    """(CPU time per read in us, seconds for the whole log)."""
    began, cpu = time.perf_counter(), time.thread_time_ns()
    count = work()
    return (time.thread_time_ns() - cpu) / count / 1000, time.perf_counter() - began


def _read(log: Log, batch_size: int) -> int:
    """Read the whole log by offsets, as a consumer does."""
    offset, end, count = 0, log.log_end_offset, 0
    while offset < end:
        span = log.read(offset, end, READ_BYTES, whole_first_batch=True)
        assert span is not None
        content = span.bytes()
        offset += max(len(content) // batch_size, 1)  # the last batch may be cut off, and is read again
        count += 1
    return count


def _pread(log: Log) -> int:
    count = 0
    for segment in log.segments:
        fd = os.open(segment.log.path, os.O_RDONLY)
        for position in range(0, segment.size, READ_BYTES):
            os.pread(fd, READ_BYTES, position)
            count += 1
        os.close(fd)
    return count
