"""``python -m benchmarks.spark``: measure Spark with Odradek and with Apache Kafka, and our formats against Spark's.

There is one module per measure, each with ``measure(run) -> Iterator[Figure]``. The report has them in this order.
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
    """The arguments of a measure. ``scale``: 1 for the size for which the figures are recorded."""

    spark: SparkSession
    scale: float
    scratch: Path
    say: Callable[[str], None]
    rounds: int | None = None
    """Number of measurements; None for the measure's own default."""

    def scaled(self, count: int) -> int:
        return max(int(count * self.scale), 1)


Measure = Callable[[SparkRun], Iterator[Figure]]


def load(name: str) -> Measure:
    measure: Measure = import_module(f"benchmarks.spark.{name}").measure
    return measure
