"""A cluster as its clients see it: who leads, who coordinates, and calls that are repeated until they are answered."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from odradek.spark.wire import transactions
from odradek.spark.wire.errors import ConnectionLost, TimedOut, WireError
from odradek.spark.wire.exchange import Exchange, Exchanges
from odradek.spark.wire.metadata import Metadata
from odradek.spark.wire.network import Network
from odradek.spark.wire.producer import InitializedProducers, Partition, ProducerId, TransactionState
from odradek.spark.wire.settings import ClientSettings


class Cluster:
    """Connections to the brokers of a cluster, one per broker; not for several threads at once.

    Every call is repeated, with back-off, over lost connections, moved leaders and coordinators, and
    CONCURRENT_TRANSACTIONS, until ``delivery.timeout.ms`` has passed; then ``Retriable`` is raised.
    Requests stay below transaction version 2, so an epoch is unchanged by the end of a transaction.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self.network = Network(settings)
        self._exchanges = Exchanges(settings, self.network)
        self.metadata = Metadata(settings, self.network, self._exchanges)

    def partitions_of(self, topic: str, *, anew: bool = False) -> int:
        """How many partitions a topic has. ``UnknownTopic`` if it does not exist for ``max.block.ms``, and the broker does
        not create it. ``anew``: asked again also when it is known."""
        return self.metadata.partitions_of(topic, anew=anew)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, bytes]:
        """The 16 bytes of each topic's id, zeros where the broker has no ids (KIP-516). A topic that does not exist for
        ``max.block.ms`` is left out; none is created."""
        return self.metadata.topic_ids(topics)

    def init_producer_ids(
        self, transactional_ids: Sequence[str], transaction_timeout_ms: int
    ) -> InitializedProducers:
        """A new epoch for each id, all at once. The earlier producer of an id is fenced, and what it left open is aborted
        before this returns (CONCURRENT_TRANSACTIONS is waited through). The first error is raised."""
        exchanges = {
            each: transactions.init_producer_id(each, transaction_timeout_ms) for each in transactional_ids
        }
        self._exchanges.run(list(exchanges.values()))
        producers = InitializedProducers()
        for transactional_id, exchange in exchanges.items():
            producers[transactional_id] = exchange.value()
            if exchange.uncertain:
                producers.uncertain.add(transactional_id)
        return producers

    def add_partitions(
        self, transactional_id: str, producer: ProducerId, partitions: Iterable[Partition]
    ) -> None:
        """AddPartitionsToTxn. Also a question: with partitions that are in the transaction it changes nothing, and raises
        ``Fenced`` if a newer epoch owns the id or the transaction was aborted by its timeout."""
        exchange = transactions.add_partitions(transactional_id, producer, partitions)
        self._exchanges.run([exchange])
        exchange.value()

    def check_transactions(
        self, open_ones: Sequence[tuple[str, ProducerId, Iterable[Partition]]]
    ) -> dict[str, WireError | None]:
        """``add_partitions`` as a question, for many at once: by id None, or what it would have raised."""
        exchanges = {
            transactional_id: transactions.add_partitions(transactional_id, producer, partitions)
            for transactional_id, producer, partitions in open_ones
        }
        return self._outcomes(exchanges)

    def list_transactions(self, prefix: str, states: Sequence[str] = ()) -> dict[str, str]:
        """The transactional ids that begin so and are in one of ``states`` (none: in any), as far as this client may
        describe them: state by id.

        Each broker is asked once; one that cannot be reached is passed over, since others have its work by now or will soon.
        ``Retriable`` while one of them still loads its part, ``UnsupportedVersion`` with brokers before Kafka 3.0."""
        found: dict[str, str] = {}
        for node_id in self.metadata.nodes():
            with contextlib.suppress(ConnectionLost, TimedOut):
                found |= transactions.list_transactions(self._exchanges, node_id, states)
        return {each: state for each, state in sorted(found.items()) if each.startswith(prefix)}

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionState | None]:
        """What their coordinators know of these ids, None where that is nothing. The first error is raised."""
        exchanges = {each: transactions.describe(each) for each in transactional_ids}
        self._exchanges.run(list(exchanges.values()))
        return {each: exchange.value() for each, exchange in exchanges.items()}

    def end_transactions(
        self, open_ones: Sequence[tuple[str, ProducerId]], commit: bool
    ) -> dict[str, WireError | None]:
        """EndTxn for each (transactional id, producer), all at once; by id None, or what went wrong with it.

        ``Retriable`` means that the outcome is unknown: it may have ended, or may still end.
        Ending a second time in the same way succeeds as long as no new transaction of that id has begun."""
        exchanges = {
            transactional_id: transactions.end_transaction(transactional_id, producer, commit)
            for transactional_id, producer in open_ones
        }
        return self._outcomes(exchanges)

    def _outcomes(self, exchanges: Mapping[str, Exchange]) -> dict[str, WireError | None]:
        self._exchanges.run(list(exchanges.values()))
        return {transactional_id: exchange.error for transactional_id, exchange in exchanges.items()}

    def fetch_offsets(
        self, group: str, partitions: Iterable[Partition] | None
    ) -> dict[Partition, tuple[int, str]]:
        """Committed offset and metadata of each partition, (-1, "") when there is none; ``partitions`` None: of all that
        the group has offsets of. Offsets in open transactions are waited for (``require_stable``, KIP-447)."""
        exchange = transactions.fetch_offsets(group, partitions)
        self._exchanges.run([exchange])
        committed: dict[Partition, tuple[int, str]] = exchange.value()
        return committed

    def commit_offsets(
        self,
        transactional_id: str,
        producer: ProducerId,
        group: str,
        offsets: Mapping[Partition, tuple[int, str]],
    ) -> None:
        """AddOffsetsToTxn and TxnOffsetCommit of (offset, metadata) by partition; the caller ends the transaction.

        ``MetadataTooLarge`` if a metadata is too long for the broker."""
        for exchange in (
            transactions.add_offsets(transactional_id, producer, group),
            transactions.commit_offsets(transactional_id, producer, group, offsets),
        ):
            self._exchanges.run([exchange])
            exchange.value()

    def close(self) -> None:
        """Close all connections; a second time does nothing."""
        self.network.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
