"""A Kafka cluster: its leaders and coordinators, and requests that are repeated until they succeed or time out."""

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
    """A client of a cluster with one connection per broker. Not thread-safe.

    Every request is repeated, with back-off, after a lost connection, a moved leader or coordinator, and
    CONCURRENT_TRANSACTIONS, until ``delivery.timeout.ms`` has passed; then ``Retriable`` is raised.
    Requests stay below transaction version 2, so the end of a transaction does not change the epoch.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self.network = Network(settings)
        self._exchanges = Exchanges(settings, self.network)
        self.metadata = Metadata(settings, self.network, self._exchanges)

    def partitions_of(self, topic: str, *, refresh: bool = False) -> int:
        """Number of partitions of a topic. ``refresh``: send a Metadata request even if the number is cached.

        Raises ``UnknownTopic`` if the topic does not exist for ``max.block.ms`` and the broker does not create it.
        """
        return self.metadata.partitions_of(topic, refresh=refresh)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, bytes]:
        """The 16 bytes of each topic's id, zeros if the broker has no ids (KIP-516).

        A topic that does not exist for ``max.block.ms`` is left out. No topic is created.
        """
        return self.metadata.topic_ids(topics)

    def init_producer_ids(
        self, transactional_ids: Sequence[str], transaction_timeout_ms: int
    ) -> InitializedProducers:
        """Send InitProducerId for all ids at once. Raises the first error.

        The earlier producer of each id is fenced, and its open transaction has been aborted when the call returns
        (CONCURRENT_TRANSACTIONS is retried).
        """
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
        """Send AddPartitionsToTxn.

        With partitions that the transaction already has, the request changes nothing, but the call raises ``Fenced`` if a
        newer epoch owns the id or the transaction was aborted by its timeout.
        """
        exchange = transactions.add_partitions(transactional_id, producer, partitions)
        self._exchanges.run([exchange])
        exchange.value()

    def check_transactions(
        self, open_ones: Sequence[tuple[str, ProducerId, Iterable[Partition]]]
    ) -> dict[str, WireError | None]:
        """Check all transactions at once: each is open if ``add_partitions`` succeeds.

        Returns for each transactional id None, or the error that ``add_partitions`` would raise.
        """
        exchanges = {
            transactional_id: transactions.add_partitions(transactional_id, producer, partitions)
            for transactional_id, producer, partitions in open_ones
        }
        return self._outcomes(exchanges)

    def list_transactions(self, prefix: str, states: Sequence[str] = ()) -> dict[str, str]:
        """States of the transactional ids with this prefix that are in one of ``states`` (empty: any).

        Ids that this client may not describe are left out. Each broker gets one request. A broker that cannot be reached is
        skipped, because others coordinate its transactions now or will soon. Raises ``Retriable`` while a broker loads
        transactions, ``UnsupportedVersion`` before Kafka 3.0.
        """
        found: dict[str, str] = {}
        for node_id in self.metadata.nodes():
            with contextlib.suppress(ConnectionLost, TimedOut):
                found |= transactions.list_transactions(self._exchanges, node_id, states)
        return {each: state for each, state in sorted(found.items()) if each.startswith(prefix)}

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionState | None]:
        """The state of each transactional id at its coordinator, None if the id is unknown. Raises the first error."""
        exchanges = {each: transactions.describe(each) for each in transactional_ids}
        self._exchanges.run(list(exchanges.values()))
        return {each: exchange.value() for each, exchange in exchanges.items()}

    def end_transactions(
        self, open_ones: Sequence[tuple[str, ProducerId]], commit: bool
    ) -> dict[str, WireError | None]:
        """Send EndTxn for each (transactional id, producer), all at once. Returns for each id None, or the error.

        ``Retriable`` means that the outcome is unknown: the transaction may have ended, or may still end.
        A second EndTxn with the same outcome succeeds until a new transaction of the transactional id has begun.
        """
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
        """Committed offset and metadata of each partition, (-1, "") if there is none.

        ``partitions`` None: all partitions with an offset of the group. Waits until open transactions with offsets of
        these partitions have ended (``require_stable``, KIP-447).
        """
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
        """Send AddOffsetsToTxn and TxnOffsetCommit for (offset, metadata) by partition; the caller ends the transaction.

        Raises ``MetadataTooLarge`` if the metadata of an offset is too long for the broker."""
        for exchange in (
            transactions.add_offsets(transactional_id, producer, group),
            transactions.commit_offsets(transactional_id, producer, group, offsets),
        ):
            self._exchanges.run([exchange])
            exchange.value()

    def close(self) -> None:
        """Close all connections. May be called several times."""
        self.network.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
