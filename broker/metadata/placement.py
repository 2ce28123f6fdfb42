"""Placement of replicas on brokers: Kafka's striped placement, which alternates racks (``StripedReplicaPlacer``)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Protocol, TypeVar

from protocol.named_tuple import NamedTuple

T = TypeVar("T")


class UsableBroker(NamedTuple):
    """A broker that may get replicas."""

    node_id: int
    rack: str | None = None
    fenced: bool = False
    """Whether the broker is fenced. It then leads no new partition, and other brokers of its rack get replicas first."""


class Shuffling(Protocol):
    """The method of `random.Random` that the placement uses."""

    def sample(self, population: Sequence[T], k: int) -> list[T]: ...


class Unplaceable(Exception):
    """The replicas cannot be placed, for example on too few brokers. The message is Kafka's."""


def place(
    brokers: Sequence[UsableBroker], count: int, replication_factor: int, random: Shuffling
) -> list[tuple[int, ...]]:
    """Return the replicas of each of ``count`` partitions. Leaders are spread over live brokers, replicas over racks."""
    if replication_factor <= 0:
        raise Unplaceable(
            f"Invalid replication factor {replication_factor}: the replication factor must be positive."
        )
    live = [broker for broker in brokers if not broker.fenced]
    if not live:
        raise Unplaceable("All brokers are currently fenced, or have all their log directories cordoned.")
    if replication_factor > len(brokers):
        raise Unplaceable(
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(brokers)} broker(s) are registered or some brokers have all their log directories cordoned."
        )
    if len(brokers) == 1:
        return [(live[0].node_id,)] * count
    fenced = [broker for broker in brokers if broker.fenced]
    placed = []
    order: list[UsableBroker] = []
    for index in range(count):
        turn = index % len(live)
        if turn == 0:
            # Each round has a new order, so that different pairs of brokers are neighbours.
            order = _ordered(live, random)
        placed.append(_replicas(order, fenced, turn, replication_factor))
    return placed


def _ordered(brokers: Sequence[UsableBroker], random: Shuffling) -> list[UsableBroker]:
    """Shuffle the brokers so that neighbours are in different racks as far as possible."""
    shuffled = random.sample(list(brokers), len(brokers))
    by_rack: dict[str | None, list[UsableBroker]] = {}
    for broker in shuffled:
        by_rack.setdefault(broker.rack, []).append(broker)
    if len(by_rack) == 1:
        return shuffled
    rounds = zip_longest(*by_rack.values())
    return [broker for one_of_each in rounds for broker in one_of_each if broker is not None]


def _replicas(
    order: Sequence[UsableBroker], fenced: Sequence[UsableBroker], turn: int, count: int
) -> tuple[int, ...]:
    """Return the ids of ``count`` brokers for one partition, the leader ``order[turn]`` first.

    The candidates are the live brokers from ``order[turn]`` on, then the ``fenced`` brokers. Each further replica
    is on the first candidate in a rack without a replica, or if there is none, on the first candidate without a
    replica.
    """
    ring = [*(order[(turn + step) % len(order)] for step in range(len(order))), *fenced]
    chosen = ring[:1]
    while len(chosen) < count:
        left = [broker for broker in ring if broker not in chosen]
        taken = {broker.rack for broker in chosen}
        chosen.append(next((one for one in left if one.rack not in taken), left[0]))
    return tuple(broker.node_id for broker in chosen)
