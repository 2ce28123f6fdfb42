"""How long a reader may see only a part of a decided batch: from its first commit marker to its last, by their timestamps.

One query writes to both brokers in turns, with 8 tasks that each write to their own partition. So the nth marker of each
partition belongs to the nth batch. Timestamps of markers are in milliseconds.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.figures import Figure
from benchmarks.process import others_at_rest
from benchmarks.spark import SparkRun
from benchmarks.spark.brokers import KAFKA, ODRADEK, both, create, fill
from benchmarks.spark.copying import INPUT, copy

TASKS: Final = 8
BATCHES: Final = 40
RECORDS_PER_TASK: Final = 100
"""Number of records that each task writes in a batch."""
RECORD_BYTES: Final = 100
OUTPUT: Final = "spread"


def measure(run: SparkRun) -> Iterator[Figure]:
    batches, rest = run.scaled(BATCHES), others_at_rest()
    with both(run.scratch / "spread") as brokers:
        for name, address in brokers.items():
            fill(address.bootstrap, INPUT, TASKS, batches * TASKS * RECORDS_PER_TASK, RECORD_BYTES)
            create(address.bootstrap, OUTPUT, TASKS)
            run.say(f"writing to {name}")
            # Each task writes its rows to the partition that it reads.
            sink, query = "odradek.exactly_once", f"{OUTPUT}-{address.pid}"
            copy(
                run, address.bootstrap, sink, OUTPUT, query, TASKS * RECORDS_PER_TASK, ("partition", "value")
            )
        spreads_ms = {
            name: sorted(_spreads_ms(run, address.data, batches)) for name, address in brokers.items()
        }
    ours, theirs = spreads_ms[ODRADEK], spreads_ms[KAFKA]
    yield Figure(
        "exactly-once sink: milliseconds in which a part of a decided batch is seen",
        statistics.median(ours),
        "ms",
        baseline=f"{KAFKA} {statistics.median(theirs):.0f} ms (at most {theirs[-1]:.0f})",
        note=f"at most {ours[-1]:.0f}; {len(ours)} batches of {TASKS} tasks, a transaction each",
        other_cpu=rest,
    )


def _spreads_ms(run: SparkRun, data: Path, batches: int) -> list[float]:
    """Milliseconds from the first to the last commit marker of each batch, without the first: it starts the workers."""
    markers = (
        run.spark.read.format("odradek.segments")
        .option("table", "batches")
        .load(str(data))
        .where(f"topic = '{OUTPUT}' and control and marker = 'commit'")
        .selectExpr("partition", "base_offset", "unix_millis(max_timestamp) as ms")
        .orderBy("partition", "base_offset")
        .collect()
    )
    of_partitions: dict[int, list[int]] = defaultdict(list)
    for each in markers:
        of_partitions[each.partition].append(each.ms)
    if {len(each) for each in of_partitions.values()} != {batches} or len(of_partitions) != TASKS:
        raise RuntimeError(f"{data}: not one marker for each batch and partition")
    return [float(max(each) - min(each)) for each in zip(*of_partitions.values(), strict=True)][1:]
