"""Ten thousand logs without a running broker: the time to open them after a clean stop and after a kill."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, Run
from benchmarks.logs import batch_of, fill, new_log, reopen
from benchmarks.process import used_by


def measure(run: Run) -> Iterator[Figure]:
    count = run.scaled(10_000, 500)
    directory = run.scratch / "partitions"
    logs = []
    batch = batch_of(300)
    began = time.perf_counter()
    for number in range(count):
        log = new_log(directory / f"topic-{number}")
        fill(log, batch, 10 * batch.size)
        log.assign_epoch(0)
        logs.append(log)
    made_s = time.perf_counter() - began
    for log in logs:
        log.close(clean=False)
    for clean in (False, True):
        yield _opened(directory, count, clean=clean, note=f"made and written to in {made_s:.1f} s")
    shutil.rmtree(directory)


def _opened(directory: Path, count: int, *, clean: bool, note: str) -> Figure:
    with used_by(None) as usage:
        began = time.perf_counter()
        logs = [
            reopen(directory / f"topic-{number}", clean=clean, recovery_point=0).log
            for number in range(count)
        ]
        taken_s = time.perf_counter() - began
    for log in logs:
        log.close(clean=False)
    return Figure(
        f"open of {count:,} logs after a {'clean stop' if clean else 'kill'}",
        taken_s,
        "s",
        baseline=f"{taken_s / count * 1e6:.0f} us each",
        note=note,
        other_cpu=usage.other_cpu,
    )
