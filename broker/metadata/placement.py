"""Which brokers hold a partition: Kafka's striped placement, without racks (``StripedReplicaPlacer``)."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random


class Unplaceable(Exception):
    """There are not as many brokers as replicas; in Kafka's words."""


def place(
    brokers: Sequence[int], count: int, replication_factor: int, random: Random
) -> list[tuple[int, ...]]:
    """The replicas of ``count`` partitions, leaders spread over all brokers."""
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
    placed = []
    order: list[int] = []
    for index in range(count):
        turn = index % len(brokers)
        if turn == 0:
            # A new order after each round, so that no two brokers stand next to each other in every partition.
            order = random.sample(list(brokers), len(brokers))
        placed.append(tuple(order[(turn + replica) % len(order)] for replica in range(replication_factor)))
    return placed
