"""Appends to a partition's log (parsing the header, checking the CRC), compared with a plain ``write`` of the same bytes.

Both write to the page cache only, as the broker does.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from benchmarks.figures import Figure, Run
from benchmarks.logs import KIB, MIB, NOW_MS, batch_of, new_log
from benchmarks.process import used_by
from protocol.batch import RecordBatch
from storage.validation import Valid, validate

ROUND_BYTES = 64 * MIB
LIMIT_ABOVE_WRITE_US = 20.0


def measure(run: Run) -> Iterator[Figure]:
    yield from _of_size(run, 64 * KIB, "64 KiB", LIMIT_ABOVE_WRITE_US)
    yield from _of_size(run, 300, "300 B", None)


def _of_size(run: Run, size: int, text: str, limit_us: float | None) -> Iterator[Figure]:
    batch = batch_of(size)
    count = min(ROUND_BYTES // batch.size, 20_000)
    ours, plain, ours_s, plain_s = [], [], [], []
    with used_by(None) as usage:
        for number in range(run.scaled(9, 3) + 1):
            directory = run.scratch / "append-0"
            # Alternate, so that each finds pages that the other has just freed (README: memory of a virtual machine).
            cpu, wall = _plain(directory / "plain", bytes(batch.buffer), count)
            shutil.rmtree(directory)
            own_cpu, own_wall = _append(directory / "topic-0", size, count)
            shutil.rmtree(directory)
            if number:  # skip the first round, the warm-up
                plain.append(cpu)
                plain_s.append(wall)
                ours.append(own_cpu)
                ours_s.append(own_wall)
    above = median(mine - theirs for mine, theirs in zip(ours, plain, strict=True))
    yield Figure(
        f"CPU per append of a {text} batch above a plain write",
        above,
        "us",
        limit=limit_us,
        baseline=f"plain write {median(plain):.1f} us",
        note=f"append {median(ours):.1f} us in all",
        other_cpu=usage.other_cpu,
    )
    rate = count / median(ours_s)
    yield Figure(
        f"append of {text} batches",
        rate * batch.size / 1e6,
        "MB/s",
        higher_is_better=True,
        baseline=f"plain write {count / median(plain_s) * batch.size / 1e6:.0f} MB/s",
        note=f"{rate:,.0f} batches/s, plain write {count / median(plain_s):,.0f}/s",
        other_cpu=usage.other_cpu,
    )


def _timed(work: Callable[[], None], count: int) -> tuple[float, float]:
    """(CPU time per call in us, total seconds)."""
    began, cpu = time.perf_counter(), time.thread_time_ns()
    work()
    return (time.thread_time_ns() - cpu) / count / 1000, time.perf_counter() - began


def _plain(path: Path, content: bytes, count: int) -> tuple[float, float]:
    path.parent.mkdir(parents=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)

    def work() -> None:
        for _ in range(count):
            os.write(fd, content)

    try:
        return _timed(work, count)
    finally:
        os.close(fd)


def _append(directory: Path, size: int, count: int) -> tuple[float, float]:
    log, content = new_log(directory), batch_of(size).buffer
    log.create(NOW_MS)

    def work() -> None:
        append, parse, config = log.append_data, RecordBatch.parse, log.config
        for _ in range(count):
            valid = validate(parse(content), config, NOW_MS)
            assert isinstance(valid, Valid)
            append(valid.batch, 0, NOW_MS, valid.batch.max_timestamp)

    try:
        return _timed(work, count)
    finally:
        log.close(clean=False)
