"""Which brokers hold a partition: Kafka's striped placement, racks in turn (``StripedReplicaPlacer``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Protocol, TypeVar

T = TypeVar("T")

Racks = Mapping[int, str | None]
"""The rack of each broker."""


class Shuffling(Protocol):
    """Of a generator of random numbers (`random.Random`) what a placement needs."""

    def sample(self, population: Sequence[T], k: int) -> list[T]: ...


class Unplaceable(Exception):
    """There are not as many brokers as replicas; in Kafka's words."""


def place(
    brokers: Sequence[int],
    count: int,
    replication_factor: int,
    random: Shuffling,
    racks: Racks | None = None,
) -> list[tuple[int, ...]]:
    """The replicas of ``count`` partitions: leaders spread over all brokers, replicas over racks."""
    if replication_factor <= 0:
        raise Unplaceable(
            f"Invalid replication factor {replication_factor}: the replication factor must be positive."
        )
    if replication_factor > len(brokers):
        raise Unplaceable(
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(brokers)} broker(s) are registered or some brokers have all their log directories cordoned."
        )
    if len(brokers) == 1:
        return [tuple(brokers)] * count
    racks = racks or {}
    placed = []
    order: list[int] = []
    for index in range(count):
        turn = index % len(brokers)
        if turn == 0:
            # A new order after each round, so that no two brokers stand next to each other in every partition.
            order = _ordered(brokers, racks, random)
        placed.append(_replicas(order, turn, replication_factor, racks))
    return placed


def _ordered(brokers: Sequence[int], racks: Racks, random: Shuffling) -> list[int]:
    """All brokers in a new order in which neighbours stand in different racks, as far as there are such."""
    shuffled = random.sample(list(brokers), len(brokers))
    by_rack: dict[str | None, list[int]] = {}
    for node_id in shuffled:
        by_rack.setdefault(racks.get(node_id), []).append(node_id)
    if len(by_rack) == 1:
        return shuffled
    rounds = zip_longest(*by_rack.values())
    return [node_id for one_of_each in rounds for node_id in one_of_each if node_id is not None]


def _replicas(order: Sequence[int], turn: int, count: int, racks: Racks) -> tuple[int, ...]:
    """The leader whose turn it is, and those behind it: first from racks that have none yet, then from any."""
    ring = [order[(turn + step) % len(order)] for step in range(len(order))]
    chosen = ring[:1]
    while len(chosen) < count:
        left = [node_id for node_id in ring if node_id not in chosen]
        taken = {racks.get(node_id) for node_id in chosen}
        chosen.append(next((one for one in left if racks.get(one) not in taken), left[0]))
    return tuple(chosen)
