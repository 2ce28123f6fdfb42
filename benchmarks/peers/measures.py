"""What is compared: a measure takes a load to one target and says what came of it; a row is one figure of that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.load import LoadFailed, load
from benchmarks.targets import Running, Target


@dataclass(frozen=True)
class Volumes:
    """How much of everything: a run's, or that of a trial which only shows that all of it works."""

    warm_s: float
    first_warm_s: float
    """Before a measure's first round. A young JVM compiles what it runs for several seconds."""
    measured_s: float
    bytes: int
    ids: int
    partitions: int
    idle: int


FULL: Final = Volumes(1, 5, 3, 2_000_000_000, 10_000, 1_000, 500)
QUICK: Final = Volumes(0.2, 0.1, 0.2, 20_000_000, 100, 20, 20)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    title: str
    unit: str
    higher_is_better: bool = True


@dataclass(frozen=True)
class Sample:
    """What one round gave for one row and one target."""

    value: float
    other_cpu: float
    cpu: float | None = None
    """The broker's CPU time per operation, in microseconds, or per gigabyte, in seconds."""
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


PRODUCERS: Final = ("odradek", "kafka", "kfake", "mock", "null")
STORES: Final = ("odradek", "kafka", "kfake")


def raw(cell: Cell, measure: str, **told: object) -> dict[str, Any]:
    """A rate by the compiled client, over the time that the volumes say."""
    volumes = cell.volumes
    warm_s, measured_s = volumes.warm_s, volumes.measured_s
    if cell.round == 0:
        warm_s, measured_s = volumes.first_warm_s, volumes.warm_s
    outcome = load(
        measure,
        cell.broker.bootstrap,
        cell.broker.pid,
        topic=cell.label,
        warm=f"{warm_s}s",
        measure=f"{measured_s}s",
        **told,
    )
    if not outcome["operations"]:
        raise LoadFailed(f"{measure}: nothing was done in {measured_s} s")
    return outcome


def per_second(outcome: dict[str, Any]) -> Sample:
    operations = outcome["operations"]
    return Sample(
        operations / outcome["wall_s"],
        outcome["other_cpu"],
        cpu=outcome["broker_cpu_s"] / operations * 1e6,
        memory_mib=outcome["memory_mib"],
        note={name: outcome[name] for name in ("p50_ms", "p99_ms", "retries")},
    )


def megabytes_per_second(outcome: dict[str, Any]) -> Sample:
    return Sample(
        outcome["bytes"] / outcome["wall_s"] / 1e6,
        outcome["other_cpu"],
        cpu=outcome["broker_cpu_s"] / (outcome["bytes"] / 1e9),
        memory_mib=outcome["memory_mib"],
    )


def seconds(outcome: dict[str, Any]) -> Sample:
    return Sample(
        outcome["wall_s"],
        outcome["other_cpu"],
        cpu=outcome["broker_cpu_s"] / outcome["operations"] * 1e6,
        memory_mib=outcome["memory_mib"],
        note={"retries": outcome["retries"]},
    )


def small(connections: int) -> Callable[[Cell], Sequence[Sample]]:
    return lambda cell: [per_second(raw(cell, "small", connections=connections))]


def large(cell: Cell) -> Sequence[Sample]:
    return [megabytes_per_second(raw(cell, "large", bytes=cell.volumes.bytes))]


def transactions(producers: int) -> Callable[[Cell], Sequence[Sample]]:
    return lambda cell: [per_second(raw(cell, "transactions", connections=producers))]


def ids(cell: Cell) -> Sequence[Sample]:
    return [seconds(raw(cell, "ids", connections=16, count=cell.volumes.ids))]


def partitions(cell: Cell) -> Sequence[Sample]:
    return [seconds(raw(cell, "partitions", count=cell.volumes.partitions))]


def idle(cell: Cell) -> Sequence[Sample]:
    return [seconds(raw(cell, "idle", count=cell.volumes.idle))]


MEASURES: Final = (
    Measure(
        "requests",
        (Row("requests-64", "64 connections, one small Produce in flight on each", "requests/s"),),
        PRODUCERS,
        small(64),
    ),
    Measure(
        "requests",
        (Row("requests-1", "one request in flight, raw", "requests/s"),),
        PRODUCERS,
        small(1),
    ),
    Measure(
        "produce",
        (Row("produce-raw", "produce, raw client, batches of 1 MB", "MB/s"),),
        PRODUCERS,
        large,
    ),
    Measure(
        "transactions",
        (Row("transactions-raw-1", "transactions, raw client, 1 producer", "commits/s"),),
        PRODUCERS,
        transactions(1),
    ),
    Measure(
        "transactions",
        (Row("transactions-raw-16", "transactions, raw client, 16 producers", "commits/s"),),
        PRODUCERS,
        transactions(16),
    ),
    Measure(
        "scale",
        (Row("ids", "10,000 transactional ids initialised over 16 connections", "s", False),),
        STORES,
        ids,
    ),
    Measure(
        "scale",
        (Row("partitions", "1,000 partitions created, until each has taken a record", "s", False),),
        STORES,
        partitions,
    ),
    Measure(
        "scale",
        (Row("idle", "500 connections opened, with ApiVersions", "s", False),),
        STORES,
        idle,
    ),
)
ROWS: Final = {row.name: row for measure in MEASURES for row in measure.rows}
GROUPS: Final = tuple(dict.fromkeys(measure.group for measure in MEASURES))
