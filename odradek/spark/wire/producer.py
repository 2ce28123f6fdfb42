"""Who writes, and where to."""

from __future__ import annotations

from typing import NamedTuple

Partition = tuple[str, int]


class ProducerId(NamedTuple):
    """Who writes: the id and epoch that InitProducerId gave to a transactional id."""

    producer_id: int
    epoch: int


class InitializedProducers(dict[str, ProducerId]):
    """By transactional id. ``uncertain``: ids for which an answer was lost and the request repeated, so that the epoch may
    have been raised more than once, and a request that is still on its way may raise it again."""

    uncertain: set[str]

    def __init__(self) -> None:
        super().__init__()
        self.uncertain = set()


class TransactionState(NamedTuple):
    """What a coordinator knows of a transactional id: ``state`` in Kafka's words (``"Ongoing"``, ``"CompleteCommit"``, …),
    since when its transaction is open (ms since 1970, -1 if none is), and what is in it."""

    producer: ProducerId
    state: str
    started_at_ms: int
    partitions: tuple[Partition, ...]
