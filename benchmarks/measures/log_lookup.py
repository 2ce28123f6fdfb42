"""Look-ups by offset and by timestamp in a partition's log with very many segments."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from statistics import median, quantiles
from typing import Final

from benchmarks.figures import Figure, Run
from benchmarks.logs import many_segments, reopen
from benchmarks.process import used_by

BATCHES_EACH: Final = 16
LIMIT_US: Final = 50.0


def measure(run: Run) -> Iterator[Figure]:
    segments, lookups = run.scaled(100_000, 2_000), run.scaled(20_000, 2_000)
    directory = run.scratch / "lookup-0"
    run.say(f"making a log of {segments:,} segments")
    end_offset, end_ms = many_segments(directory, segments, BATCHES_EACH)
    began = time.perf_counter()
    log = reopen(directory, clean=True).log
    opened_s = time.perf_counter() - began
    rng = random.Random(1)
    with used_by(None) as usage:
        log.find_timestamp(end_ms // 2)
        first_s = time.perf_counter() - began - opened_s
        offsets = _each(lambda: log.locate(rng.randrange(end_offset)), lookups)
        times = _each(lambda: log.find_timestamp(rng.randrange(end_ms)), lookups)
        hot = _each(lambda: log.locate(end_offset // 2), lookups)
        hot_times = _each(lambda: log.find_timestamp(end_ms // 2), lookups)
    note = f"{segments:,} segments, opened in {opened_s:.2f} s"
    yield _figure("look-up of a random offset", offsets, hot, note, usage.other_cpu, LIMIT_US)
    note = f"with decoding of one index interval; the first ever {first_s:.2f} s"
    yield _figure("look-up of a random timestamp", times, hot_times, note, usage.other_cpu, None)
    log.close(clean=False)


def _each(work: Callable[[], object], count: int) -> list[float]:
    """Call ``work`` ``count`` times; return the microseconds that each call took."""
    taken = []
    for _ in range(count):
        began = time.perf_counter_ns()
        work()
        taken.append((time.perf_counter_ns() - began) / 1000)
    return taken


def _figure(
    name: str, taken: list[float], hot: list[float], note: str, other_cpu: float, limit: float | None
) -> Figure:
    p99 = quantiles(taken, n=100)[98]
    return Figure(
        name,
        median(taken),
        "us",
        limit=limit,
        baseline=f"the same one again {median(hot):.1f} us",
        note=f"p99 {p99:.0f} us; {note}",
        other_cpu=other_cpu,
    )
