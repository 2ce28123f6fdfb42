"""A cluster as its clients see it: who leads, who coordinates, and calls that are repeated until they are answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Self

from odradek.spark.wire.errors import WireError
from odradek.spark.wire.settings import ClientSettings

Partition = tuple[str, int]


class ProducerId(NamedTuple):
    """Who writes: the id and epoch that InitProducerId gave to a transactional id."""

    producer_id: int
    epoch: int


class InitializedProducers(dict[str, ProducerId]):
    """By transactional id. ``uncertain``: ids for which an answer was lost and the request repeated, so that the epoch may
    have been raised more than once."""

    uncertain: set[str]


class Cluster:
    """Connections to the brokers of a cluster, one per broker; not for several threads at once.

    Every call is repeated, with back-off, over lost connections, moved leaders and coordinators, and
    CONCURRENT_TRANSACTIONS, until ``delivery.timeout.ms`` has passed; then ``Retriable`` is raised.
    Requests stay below transaction version 2, so an epoch is unchanged by the end of a transaction.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings

    def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has. ``UnknownTopic`` if it does not exist (it is not created)."""
        raise NotImplementedError

    def init_producer_ids(
        self, transactional_ids: Sequence[str], transaction_timeout_ms: int
    ) -> InitializedProducers:
        """A new epoch for each id, all at once. Whoever had the id before is fenced, and what it left open is aborted
        before this returns (CONCURRENT_TRANSACTIONS is waited through). The first error is raised."""
        raise NotImplementedError

    def add_partitions(
        self, transactional_id: str, producer: ProducerId, partitions: Iterable[Partition]
    ) -> None:
        """AddPartitionsToTxn. Also a question: with partitions that are in the transaction it changes nothing, and raises
        ``Fenced`` if somebody newer owns the id or the transaction was aborted by its timeout."""
        raise NotImplementedError

    def end_transactions(
        self, open_ones: Sequence[tuple[str, ProducerId]], commit: bool
    ) -> dict[str, WireError | None]:
        """EndTxn for each (transactional id, producer), all at once; by id None, or what went wrong with it.

        Ending a second time in the same way succeeds as long as nobody has begun a new transaction of that id."""
        raise NotImplementedError

    def fetch_offsets(self, group: str, partitions: Iterable[Partition]) -> dict[Partition, tuple[int, str]]:
        """Committed offset and metadata of each partition, (-1, "") when there is none; offsets in open transactions are
        waited for (``require_stable``, KIP-447)."""
        raise NotImplementedError

    def commit_offsets(
        self,
        transactional_id: str,
        producer: ProducerId,
        group: str,
        offsets: Mapping[Partition, tuple[int, str]],
    ) -> None:
        """AddOffsetsToTxn and TxnOffsetCommit of (offset, metadata) by partition; the caller ends the transaction.

        ``MetadataTooLarge`` if a metadata is too long for the broker."""
        raise NotImplementedError

    def close(self) -> None:
        """Close all connections; a second time does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
