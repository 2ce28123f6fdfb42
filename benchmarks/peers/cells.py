"""What a measure is given and what it hands back: a cell is one target in one round, a sample what came of it for a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from benchmarks.targets import Running, Target


@dataclass(frozen=True)
class Volumes:
    """How much of everything: a run's, or that of a trial which only shows that all of it works."""

    warm_s: float
    first_warm_s: float
    """Before a measure's first round: so long a JVM with half a core compiles what it runs."""
    measured_s: float
    pushed_bytes: int
    """The most that one round of large Produces writes."""
    read_bytes: int
    """The topic that readers read once a round."""
    recovered_bytes: int
    java_records: int
    ids: int
    partitions: int
    idle: int
    rest_s: float
    """From the first record to the look at memory at rest."""


FULL: Final = Volumes(
    warm_s=1,
    first_warm_s=15,
    measured_s=3,
    pushed_bytes=500_000_000,
    read_bytes=1_000_000_000,
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
    recovered_bytes=10_000_000,
    java_records=1_000,
    ids=100,
    partitions=20,
    idle=20,
    rest_s=0.1,
)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    title: str
    unit: str
    higher_is_better: bool = True
    cpu_unit: str = "us"
    """Of the broker's CPU time, for each operation unless it says another thing."""


@dataclass(frozen=True)
class Sample:
    """What one round gave for one row and one target."""

    value: float
    other_cpu: float
    cpu: float | None = None
    """The broker's CPU time, in the row's unit for it."""
    memory_mib: float | None = None
    note: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One target in one round of one measure."""

    target: Target
    running: Running | None
    """The started target, for measures of a group that starts them."""
    volumes: Volumes
    round: int
    """0 warms up, and does not count."""
    scratch: Path
    label: str
    """Differs in each cell: the name of its topic, its ids, its directory."""

    @property
    def warm_s(self) -> float:
        """How long to work before it counts. Only Kafka's JVM needs the longer time, for it compiles what it runs."""
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
    """``take`` returns a sample for each of the rows."""

    group: str
    rows: tuple[Row, ...]
    targets: tuple[str, ...]
    take: Callable[[Cell], Sequence[Sample]]
    starts_targets: bool = False
    """Whether it starts and ends its targets itself, in each round."""


Outcome = dict[str, Any]
"""What a client says: operations, bytes, wall_s, broker_cpu_s, other_cpu, and more where it has more to say."""


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
