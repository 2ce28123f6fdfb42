"""What is killed when: drawn once, from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

EARLIEST, LATEST = 0.08, 0.75
"""Shares of the flights between which something may be killed: before the first there is little to lose, and who is killed
after the last might find nothing left to do."""
BROKER_POINTS: Final[Mapping[str, str]] = {
    "txn.marker.after": "between the markers and Complete",
    "txn.prepare.after": "between Prepare and the markers",
    "txn.prepare.before": "before Prepare",
}
SINK_POINTS: Final[Mapping[str, str]] = {
    "decision.made": "between the decision and the first EndTxn",
    "end.first": "between two EndTxn of a decided batch",
    "decision.written": "just before the decision",
    "end.all": "between the last EndTxn and Spark's commit log",
}
"""Where the sink may have the driver killed (``odradek.spark.sink.points``)."""


@dataclass(frozen=True, slots=True)
class Kills:
    """How many of each."""

    driver: int = 2
    worker: int = 2
    producer: int = 2
    broker: int = 2

    @property
    def total(self) -> int:
        return self.driver + self.worker + self.producer + self.broker


@dataclass(slots=True)
class Plan:
    """When each dies: ``driver``, ``worker`` and ``producer`` at shares of the flights, in order; the rest at a named point.

    Every other driver, beginning with the first, dies at a point of the sink's. ``broker_points`` are (point, passage).
    """

    driver: list[float] = field(default_factory=list)
    worker: list[float] = field(default_factory=list)
    producer: list[float] = field(default_factory=list)
    sink_points: list[tuple[str, int]] = field(default_factory=list)
    broker_points: list[tuple[str, int]] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return not (self.driver or self.worker or self.producer or self.sink_points or self.broker_points)

    def left(self) -> str:
        """What has not been killed as often as it should have been."""
        names = {"driver": [*self.driver, *self.sink_points], "worker": self.worker}
        names |= {"producer": self.producer, "broker": self.broker_points}
        return ", ".join(name for name, list_ in names.items() if list_)


def draw(
    rng: random.Random, kills: Kills, batches: int, transactions: int, ahead: int, has_points: bool
) -> Plan:
    """A plan for a run of about so many micro-batches and transactions of the producer's.

    ``ahead``: so many of the transactions are made before the job begins, and nothing is killed before their end.
    ``has_points``: the sink is ours, and knows the points.
    """
    ahead = min(ahead, transactions // 3)
    at_points = (kills.driver + 1) // 2 if has_points else 0
    points, broker_points = list(SINK_POINTS), list(BROKER_POINTS)
    rng.shuffle(points)
    rng.shuffle(broker_points)
    share = max(int(batches * LATEST / max(kills.driver, 1)), 2)
    passages = max(int((transactions - ahead) * LATEST / max(kills.broker, 1)), 3)
    return Plan(
        driver=_shares(rng, kills.driver - at_points, earliest=0.4 if at_points else EARLIEST),
        worker=_shares(rng, kills.worker),
        producer=_shares(rng, kills.producer, earliest=max(ahead / max(transactions, 1), EARLIEST)),
        sink_points=[(points[each % len(points)], rng.randint(2, share)) for each in range(at_points)],
        broker_points=[
            (
                broker_points[each % len(broker_points)],
                (0 if each else ahead) + rng.randint(passages // 2, passages),
            )
            for each in range(kills.broker)
        ],
    )


def _shares(rng: random.Random, count: int, earliest: float = EARLIEST) -> list[float]:
    return sorted(rng.uniform(earliest, LATEST) for _ in range(count))
