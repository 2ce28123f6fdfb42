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
