"""``python -m benchmarks.spark``: Spark against the broker and Apache Kafka, and our sources and sinks against its own.

One module per measure, each with ``measure(run) -> Iterator[Figure]``. The order is that of the report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.figures import Figure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES: Final = ("sink", "spread", "encode", "batch_read", "small_read", "segments", "audit")


@dataclass(frozen=True)
class SparkRun:
    """What a measure is given. ``scale``: 1 for the size that the figures are of."""

    spark: SparkSession
    scale: float
    scratch: Path
    say: Callable[[str], None]
    rounds: int | None = None
    """How often each is measured; None: as the measure thinks right."""

    def scaled(self, count: int) -> int:
        return max(int(count * self.scale), 1)


Measure = Callable[[SparkRun], Iterator[Figure]]


def load(name: str) -> Measure:
    measure: Measure = import_module(f"benchmarks.spark.{name}").measure
    return measure
