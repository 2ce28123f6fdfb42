"""The plan of a run's kills, drawn from the seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

EARLIEST, LATEST = 0.08, 0.75
"""Shares of the flights before which and after which no process is killed.

Before ``EARLIEST`` there is nothing to lose; after ``LATEST`` the run may end before the kill.
"""
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
"""Steps of the sink (``odradek.spark.sink.points``) at which the driver may be killed, each with a description."""


@dataclass(frozen=True, slots=True)
class Kills:
    """The number of kills of each process."""

    driver: int = 2
    worker: int = 2
    producer: int = 2
    broker: int = 2

    @property
    def total(self) -> int:
        return self.driver + self.worker + self.producer + self.broker


@dataclass(slots=True)
class Plan:
    """The kills of a run that are still to be carried out.

    ``driver``, ``worker`` and ``producer`` are ascending shares of the flights, after which a process is killed.
    ``sink_points``: a step of the sink, and the number of times that the driver reaches it before it is killed;
    these kills come before those in ``driver``. ``broker_points``: a crash point, and the number of times that the
    broker reaches it.
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
        """The names of the processes that have not been killed as often as planned, separated by commas."""
        names = {"driver": [*self.driver, *self.sink_points], "worker": self.worker}
        names |= {"producer": self.producer, "broker": self.broker_points}
        return ", ".join(name for name, list_ in names.items() if list_)


def draw(
    rng: random.Random, kills: Kills, batches: int, transactions: int, ahead: int, has_points: bool
) -> Plan:
    """Draw a plan for a run of about ``batches`` micro-batches and ``transactions`` transactions of the producer.

    ``ahead``: number of transactions that are committed before the job begins; nothing is killed before these have ended.
    ``has_points``: whether the sink is ``odradek.exactly_once``, which has steps.
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
