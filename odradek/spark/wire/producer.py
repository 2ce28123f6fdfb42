"""Producers, partitions, and states of transactions."""

from __future__ import annotations

from typing import NamedTuple

Partition = tuple[str, int]


class ProducerId(NamedTuple):
    """A producer id with its epoch, as InitProducerId returned them for a transactional id."""

    producer_id: int
    epoch: int


class InitializedProducers(dict[str, ProducerId]):
    """The result of InitProducerId requests: producers by transactional id.

    ``uncertain`` are ids for which a response was lost and the request repeated: the epoch may have been raised more than
    once, and a request that is still under way may raise it again.
    """

    uncertain: set[str]

    def __init__(self) -> None:
        super().__init__()
        self.uncertain = set()


class TransactionState(NamedTuple):
    """A transactional id as its coordinator describes it.

    ``state`` is Kafka's name (``"Ongoing"``, ``"CompleteCommit"``, …). ``started_at_ms``: the start of the open
    transaction, -1 if there is none; ``partitions``: the partitions of this transaction.
    """

    producer: ProducerId
    state: str
    started_at_ms: int
    partitions: tuple[Partition, ...]
