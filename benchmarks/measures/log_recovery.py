"""Recovery of a partition's log after a crash, with nothing flushed and with nearly everything flushed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.figures import Figure, Run
from benchmarks.logs import GIB, KIB, MIB, batch_of, fill, new_log, reopen
from benchmarks.process import used_by

TAIL_BYTES: Final = 64 * MIB


def measure(run: Run) -> Iterator[Figure]:
    for size, text in ((64 * KIB, "64 KiB"), (KIB, "1 KiB")):
        yield _unflushed(run, size, text)
    yield _flushed(run)


def _unflushed(run: Run, size: int, text: str) -> Figure:
    length = run.scaled(GIB, 128 * MIB)
    directory = run.scratch / "recovery-0"
    log = new_log(directory, segment_bytes=256 * MIB)
    fill(log, batch_of(size), length)
    end_offset = log.log_end_offset
    log.close(clean=False)
    with used_by(None) as usage:
        plain_s = _plain_read(directory)
        began = time.perf_counter()
        recovered = reopen(directory, clean=False)
        taken_s = time.perf_counter() - began
    assert recovered.log.log_end_offset == end_offset
    recovered.log.close(clean=False)
    shutil.rmtree(directory)
    return Figure(
        f"recovery, all unflushed, batches of {text}",
        taken_s * GIB / length,
        "s per GiB",
        baseline=f"plain read {plain_s * GIB / length:.2f} s",
        note="every CRC checked, indexes and producers rebuilt",
        other_cpu=usage.other_cpu,
    )


def _plain_read(directory: Path) -> float:
    began = time.perf_counter()
    for path in sorted(directory.glob("*.log")):
        with path.open("rb", buffering=0) as file:
            while file.read(MIB):
                pass
    return time.perf_counter() - began


def _flushed(run: Run) -> Figure:
    """Ten segments of 1 GiB, flushed except for the last 64 MiB. The first nine are mostly holes, which are not read."""
    directory = run.scratch / "flushed-0"
    segment_bytes = run.scaled(GIB, 64 * MIB)
    log = new_log(directory, segment_bytes=segment_bytes)
    batch = batch_of(64 * KIB)
    recovery_point = 0
    for number in range(10):
        length = segment_bytes - 2 * batch.size
        tail = min(TAIL_BYTES, length // 2)
        fill(log, batch, length - tail)
        if number == 9:
            for segment in log.flush_targets():
                segment.save_indexes()
                segment.sync()
            recovery_point = log.log_end_offset
        fill(log, batch, tail)
        if number < 9:
            sealed = log.active
            log.roll(0)
            _make_hole(sealed.log.path, sealed.size)
    end_offset, size = log.log_end_offset, log.size
    log.close(clean=False)
    with used_by(None) as usage:
        began = time.perf_counter()
        recovered = reopen(directory, clean=False, recovery_point=recovery_point)
        taken_s = time.perf_counter() - began
    assert recovered.log.log_end_offset == end_offset
    recovered.log.close(clean=False)
    shutil.rmtree(directory)
    return Figure(
        f"recovery of {size / 1e9:.1f} GB, flushed but for the last {TAIL_BYTES // MIB} MiB",
        taken_s,
        "s",
        note=f"{recovered.scanned_bytes / 1e6:.0f} MB were read",
        other_cpu=usage.other_cpu,
    )


def _make_hole(path: Path, size: int) -> None:
    """Free the blocks of a file except for its beginning and end. No reader may read between them."""
    with path.open("r+b") as file:
        head = file.read(MIB)
        file.seek(size - 2 * MIB)
        tail = file.read()
        file.truncate(0)
        file.write(head)
        file.seek(size - 2 * MIB)
        file.write(tail)
        file.flush()
        os.fsync(file.fileno())
