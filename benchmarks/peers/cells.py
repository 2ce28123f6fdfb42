"""The parameters of a measure (a `Cell` is one target in one round) and its results (one `Sample` for each row)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from benchmarks.targets import Running, Target


@dataclass(frozen=True)
class Volumes:
    """The durations and sizes of the loads in a run, or in a short trial that only tests that everything works."""

    warm_s: float
    first_warm_s: float
    """Seconds of warm-up before a measure's first round, in which Kafka's JVM compiles its hot code."""
    measured_s: float
    pushed_bytes: int
    """Maximum number of bytes that one round of large Produces writes."""
    read_bytes: int
    """Size of the topic that consumers read once a round."""
    share_records: int
    """Number of records in each topic that a share consumer reads once a round."""
    recovered_bytes: int
    java_records: int
    ids: int
    partitions: int
    idle: int
    rest_s: float
    """Seconds from the first record until the memory of the idle broker is read."""


FULL: Final = Volumes(
    warm_s=1,
    first_warm_s=15,
    measured_s=3,
    pushed_bytes=500_000_000,
    read_bytes=1_000_000_000,
    share_records=1_000_000,
    recovered_bytes=1_500_000_000,
    java_records=500_000,
    ids=10_000,
    partitions=1_000,
    idle=500,
    rest_s=5,
)
QUICK: Final = Volumes(
    warm_s=0.2,
    first_warm_s=0.1,
    measured_s=0.2,
    pushed_bytes=20_000_000,
    read_bytes=10_000_000,
    share_records=10_000,
    recovered_bytes=10_000_000,
    java_records=1_000,
    ids=100,
    partitions=20,
    idle=20,
    rest_s=0.1,
)


@dataclass(frozen=True)
class Row:
    """One row of the comparison's table: a figure that is measured for each broker."""

    name: str
    title: str
    unit: str
    higher_is_better: bool = True
    cpu_unit: str = "us"
    """Unit of the broker's CPU time, by default per operation."""


@dataclass(frozen=True)
class Sample:
    """The result of one round for one row and one target."""

    value: float
    other_cpu: float
    cpu: float | None = None
    """The broker's CPU time, in the ``cpu_unit`` of the row."""
    memory_mib: float | None = None
    note: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One target (a broker) in one round of one measure: the arguments of `Measure.take`."""

    target: Target
    running: Running | None
    """The running target; None if the measure starts its targets itself."""
    volumes: Volumes
    round: int
    """Number of the round. Round 0 is the warm-up and does not count."""
    scratch: Path
    label: str
    """A text that no other cell of the run has, for the names of the cell's topic, ids and directory."""

    @property
    def warm_s(self) -> float:
        """Seconds of warm-up. Only Kafka's JVM needs the longer time, because it compiles its hot code."""
        first = self.round == 0 and self.target.name == "kafka"
        return self.volumes.first_warm_s if first else self.volumes.warm_s

    @property
    def measured_s(self) -> float:
        return self.volumes.measured_s if self.round else self.volumes.warm_s

    @property
    def broker(self) -> Running:
        assert self.running is not None
        return self.running


@dataclass(frozen=True)
class Measure:
    """A load and the rows that it measures. ``take`` runs the load in one cell and returns a sample per row."""

    group: str
    rows: tuple[Row, ...]
    targets: tuple[str, ...]
    take: Callable[[Cell], Sequence[Sample]]
    starts_targets: bool = False
    """Whether the measure starts and stops its targets itself, in each round."""


Outcome = dict[str, Any]
"""The result of a client: operations, bytes, wall_s, broker_cpu_s, other_cpu, and further fields of some measures."""


def done(outcome: Outcome) -> float:
    return float(outcome["operations"])


def per_second(outcome: Outcome) -> Sample:
    notes = ("p50_ms", "p99_ms", "retries")
    return Sample(
        done(outcome) / outcome["wall_s"],
        outcome["other_cpu"],
        cpu=outcome["broker_cpu_s"] / max(done(outcome), 1) * 1e6,
        memory_mib=outcome.get("memory_mib"),
        note={name: outcome[name] for name in notes if outcome.get(name)},
    )


def megabytes_per_second(outcome: Outcome) -> Sample:
    return Sample(
        outcome["bytes"] / outcome["wall_s"] / 1e6,
        outcome["other_cpu"],
        cpu=outcome["broker_cpu_s"] / max(outcome["bytes"] / 1e9, 1e-9),
        memory_mib=outcome.get("memory_mib"),
    )


def seconds(outcome: Outcome) -> Sample:
    return replace(per_second(outcome), value=outcome["wall_s"])


def middle_ms(outcome: Outcome) -> Sample:
    return replace(per_second(outcome), value=outcome["p50_ms"])
