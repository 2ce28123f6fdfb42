"""Requests for the transactions that coordinators report, and for the producers that leaders report (KIP-664)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from protocol.errors import ErrorCode
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    PartitionResponse,
    ProducerState,
    TopicRequest,
)
from protocol.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from protocol.messages.list_transactions import ListTransactionsRequest
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tools.client.cluster import TRANSACTION, Cluster
from tools.client.errors import Kind, ToolError, check

STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""State names by their number in the transaction log (Kafka's ``TransactionState``)."""
ENDED: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


@dataclass(frozen=True, slots=True)
class Transaction:
    """The state of one transactional id, as reported by its coordinator."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    coordinator: int
    timeout_ms: int
    start_ms: int | None
    """Start of the transaction; None if none is open."""
    partitions: tuple[tuple[str, int], ...]

    @property
    def is_open(self) -> bool:
        return self.state not in ENDED


def list_transactions(
    cluster: Cluster,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    missing: list[str] | None = None,
) -> list[Transaction]:
    """The transactional ids of all coordinators, sorted. An empty ``states`` or ``producer_ids`` matches all.

    ``missing`` as in ``Cluster.of_all``.
    """
    found = cluster.of_all(lambda node_id: transactions_of(cluster, node_id, states, producer_ids), missing)
    return sorted(found, key=lambda each: each.transactional_id)


def transactions_of(
    cluster: Cluster, node_id: int, states: Sequence[str] = (), producer_ids: Sequence[int] = ()
) -> list[Transaction]:
    """The transactional ids that one node coordinates. Raises ``KafkaError`` while the node is loading them."""
    request = ListTransactionsRequest(
        state_filters=states,
        producer_id_filters=producer_ids,
        duration_filter=-1,
        transactional_id_pattern=None,
    )
    response = cluster.ask_node(node_id, "list_transactions", request)
    check(response.error_code, f"the transactions of node {node_id}")
    if response.unknown_state_filters:
        raise ToolError(f"unknown state: {response.unknown_state_filters[0]} (known: {', '.join(STATES)})")
    return _described(cluster, node_id, [each.transactional_id for each in response.transaction_states])


def describe_transaction(cluster: Cluster, transactional_id: str) -> Transaction:
    """The state of one transactional id. Raises ``KafkaError`` if its coordinator does not know it."""

    def ask() -> Transaction:
        node_id = cluster.coordinator(TRANSACTION, transactional_id)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        response = cluster.ask_node(node_id, "describe_transactions", request)
        (found,) = response.transaction_states
        name: tuple[Kind, str] = "transactional id", transactional_id
        check(found.error_code, f"transactional id {transactional_id}", named=name)
        return described_transaction(node_id, found)

    return cluster.retrying(ask)


def _described(cluster: Cluster, node_id: int, ids: Sequence[str]) -> list[Transaction]:
    if not ids:
        return []
    request = DescribeTransactionsRequest(transactional_ids=ids)
    response = cluster.ask_node(node_id, "describe_transactions", request)
    # An id may have expired since the listing.
    return [
        described_transaction(node_id, each) for each in response.transaction_states if each.error_code == 0
    ]


def described_transaction(node_id: int, state: TransactionState) -> Transaction:
    """Convert an entry of a DescribeTransactions response."""
    start = state.transaction_start_time_ms
    return Transaction(
        state.transactional_id,
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        node_id,
        state.transaction_timeout_ms,
        # The coordinator keeps the start time of a completed transaction.
        start if start >= 0 and state.transaction_state not in ENDED else None,
        tuple((topic.topic, partition) for topic in state.topics for partition in sorted(topic.partitions)),
    )


def describe_producers(cluster: Cluster, topic: str, partition: int) -> list[ProducerState]:
    """The producers in the leader's producer state. ``current_txn_start_offset`` is -1 without an open transaction."""

    def ask() -> list[ProducerState]:
        wanted = TopicRequest(name=topic, partition_indexes=[partition])
        request = DescribeProducersRequest(topics=[wanted])
        response = cluster.ask_leader(topic, partition, "describe_producers", request)
        found: PartitionResponse = response.topics[0].partitions[0]
        check(found.error_code, f"{topic}-{partition}", found.error_message)
        return sorted(found.active_producers, key=lambda each: each.producer_id)

    return cluster.retrying(ask)


def write_marker(
    cluster: Cluster, topic: str, partition: int, producer: ProducerState, *, committed: bool
) -> None:
    """End a producer's transaction in one partition, bypassing the coordinator, as `kafka-transactions.sh abort` does."""
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=committed,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=max(0, producer.coordinator_epoch),
    )
    name = "COMMIT" if committed else "ABORT"

    def ask() -> None:
        request = WriteTxnMarkersRequest(markers=[marker])
        response = cluster.ask_leader(topic, partition, "write_txn_markers", request)
        (written,) = response.markers[0].topics[0].partitions
        check(written.error_code, f"the {name} marker in {topic}-{partition}")

    cluster.retrying(ask)


def transaction_state(number: int) -> str:
    """Kafka's name of a state in the transaction log."""
    return STATES[number] if 0 <= number < len(STATES) else f"state {number}"


def unknown_id(code: int) -> bool:
    """Whether the error means that the coordinator does not know the transactional id, or has expired it."""
    return code == ErrorCode.transactional_id_not_found
