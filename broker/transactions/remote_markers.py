"""WriteTxnMarkers to the other nodes: one request under way to each, and all that waits for a node goes in the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker.metadata.topics import by_topic
from broker.peers.senders import marker_sender
from broker.transactions.shard import Entry, TransactionShard
from broker.transactions.transaction import TopicPartition
from protocol.batch import EndTxnMarker
from protocol.errors import ErrorCode
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from broker.peers import Peers

API_KEY: Final = 27
API_VERSION: Final = 2
"""Carries the transaction version (KIP-1228)."""
PARTITIONS_PER_REQUEST_MAX: Final = 1000
"""A node that was away for long is not asked for everything in one turn of its loop."""


class PendingCompleteTxn:
    """A decided transaction and the partitions that have no marker yet."""

    __slots__ = (
        "cancelled",
        "entry",
        "epoch",
        "marker",
        "producer_id",
        "remaining",
        "shard",
        "then",
        "transaction_version",
    )

    def __init__(
        self,
        shard: TransactionShard,
        entry: Entry,
        producer_id: int,
        epoch: int,
        marker: EndTxnMarker,
        transaction_version: int,
        remaining: set[TopicPartition],
    ) -> None:
        self.shard = shard
        self.entry = entry
        self.producer_id = producer_id
        self.epoch = epoch
        self.marker = marker
        self.transaction_version = transaction_version
        self.remaining = remaining
        self.cancelled = False
        self.then: Callable[[PendingCompleteTxn], object] = _nothing
        """Called once the last marker is committed."""

    def is_wanted(self) -> bool:
        """Is it still this node's, in this epoch, to finish it?"""
        return not self.cancelled and self.shard.is_current()


Errors = dict[TopicPartition, ErrorCode]
Batch = dict[PendingCompleteTxn, list[TopicPartition]]
Told = Callable[[PendingCompleteTxn, Errors], object]


class TransactionMarkerChannel:
    """Collects the markers for each node; ``told`` gets the result of each marker that was sent."""

    def __init__(self, node_id: int, peers: Peers, told: Told) -> None:
        self._client_id = marker_sender(node_id)
        self._peers = peers
        self._told = told
        self._waiting: dict[int, dict[PendingCompleteTxn, set[TopicPartition]]] = {}
        """Bounded by the transactions that are open: each is here once, with its partitions."""
        self._under_way: set[int] = set()

    def add(self, node_id: int, completion: PendingCompleteTxn, key: TopicPartition) -> None:
        """Have a marker sent, with the next ``flush``."""
        self._waiting.setdefault(node_id, {}).setdefault(completion, set()).add(key)

    def flush(self) -> None:
        for node_id in tuple(self._waiting):
            if node_id not in self._under_way:
                self._send(node_id)

    def _send(self, node_id: int) -> None:
        waiting = self._waiting.pop(node_id)
        batch: Batch = {}
        rest: dict[PendingCompleteTxn, set[TopicPartition]] = {}
        room = PARTITIONS_PER_REQUEST_MAX
        producer_ids: set[int] = set()
        given_up: list[tuple[PendingCompleteTxn, set[TopicPartition]]] = []
        for completion, keys in waiting.items():
            if not completion.is_wanted():
                given_up.append((completion, keys))
                continue
            # The answer tells producer ids apart, and nothing else.
            if completion.producer_id in producer_ids or not room:
                rest[completion] = keys
                continue
            producer_ids.add(completion.producer_id)
            ordered = sorted(keys)
            batch[completion] = ordered[:room]
            if ordered[room:]:
                rest[completion] = set(ordered[room:])
            room -= len(batch[completion])
        if rest:
            self._waiting[node_id] = rest
        if batch:
            self._under_way.add(node_id)
            then = partial(self._answered, node_id, batch)
            self._peers.send(node_id, self._client_id, API_KEY, API_VERSION, _request(batch), then)
        for completion, keys in given_up:
            self._told(completion, dict.fromkeys(keys, ErrorCode.not_coordinator))

    def _answered(self, node_id: int, batch: Batch, response: Any) -> None:
        self._under_way.discard(node_id)
        found = dict(_errors(response)) if response is not None else None
        for completion, keys in batch.items():
            if found is None:
                errors = dict.fromkeys(keys, ErrorCode.network_exception)
            else:
                missing = ErrorCode.unknown_server_error
                errors = {key: found.get((completion.producer_id, key), missing) for key in keys}
            self._told(completion, errors)
        self.flush()

    def clear(self) -> None:
        self._waiting.clear()


def _request(batch: Batch) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=completion.producer_id,
                producer_epoch=completion.epoch,
                transaction_result=completion.marker.committed,
                topics=_topics(keys),
                coordinator_epoch=completion.marker.coordinator_epoch,
                transaction_version=completion.transaction_version,
            )
            for completion, keys in batch.items()
        ]
    )


def _topics(keys: list[TopicPartition]) -> list[WritableTxnMarkerTopic]:
    return [
        WritableTxnMarkerTopic(name=name, partition_indexes=each) for name, each in by_topic(keys).items()
    ]


def _errors(response: Any) -> Iterator[tuple[tuple[int, TopicPartition], ErrorCode]]:
    for marker in response.markers:
        for topic in marker.topics:
            for partition in topic.partitions:
                key = (topic.name, partition.partition_index)
                yield (marker.producer_id, key), ErrorCode(partition.error_code)


def _nothing(_: PendingCompleteTxn) -> None:
    """The last marker is all that was wanted."""
