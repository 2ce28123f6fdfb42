"""Sends WriteTxnMarkers to other nodes: one request is in flight to each node, waiting markers go in the next request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from broker.loop.coroutines import Waiter, start_in_background
from broker.metadata.topics import by_topic
from broker.peers.senders import marker_sender
from broker.transactions.entry import PendingCompleteTxn
from broker.transactions.transaction import TopicPartition
from protocol.errors import ErrorCode
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from broker.loop.life import NodeLife
    from broker.peers import Peers

API_KEY: Final = 27
API_VERSION: Final = 2
"""First version of WriteTxnMarkers with the transaction version (KIP-1228)."""
PARTITIONS_PER_REQUEST_MAX: Final = 1000
"""Maximum number of partitions in one request: a larger request, to a node that was unavailable for long, would block
that node's event loop."""


MarkersToSend = dict[PendingCompleteTxn, dict[TopicPartition, Waiter[ErrorCode]]]
"""Transaction that is being completed -> partition -> the waiter for the result of the partition's marker."""


class TransactionMarkerChannel:
    """Queues markers by the node that leads their partition. One request is in flight to each node."""

    def __init__(self, peers: Peers, life: NodeLife) -> None:
        self._client_id = marker_sender(peers.node_id)
        self._peers = peers
        self._life = life
        self._waiting: dict[int, MarkersToSend] = {}
        """Node id -> markers. Bounded by the transactions in PrepareX: each is listed once, with its partitions."""
        self._under_way: set[int] = set()

    def add(self, node_id: int, completion: PendingCompleteTxn, key: TopicPartition) -> Waiter[ErrorCode]:
        """Queue a marker for the next ``flush``. Returns a waiter for the error code of the marker."""
        written: Waiter[ErrorCode] = Waiter()
        self._waiting.setdefault(node_id, {}).setdefault(completion, {})[key] = written
        return written

    def flush(self) -> None:
        for node_id in tuple(self._waiting):
            if node_id not in self._under_way:
                start_in_background(self._send_all(node_id), self._life)

    async def _send_all(self, node_id: int) -> None:
        """Send one request after the other to the node while markers wait for it."""
        self._under_way.add(node_id)
        try:
            while node_id in self._waiting:
                batch = self._next_batch(node_id)
                if not batch:
                    continue
                response = await self._peers.send(
                    node_id, self._client_id, API_KEY, API_VERSION, _request(batch)
                )
                found = dict(_errors(response)) if response is not None else None
                for completion, markers in batch.items():
                    for key, written in markers.items():
                        if found is None:
                            written.wake(ErrorCode.network_exception)
                        else:
                            missing = ErrorCode.unknown_server_error
                            written.wake(found.get((completion.producer_id, key), missing))
        finally:
            self._under_way.discard(node_id)

    def _next_batch(self, node_id: int) -> MarkersToSend:
        """Remove and return the markers for the next request to a node, without markers that are no longer needed."""
        batch: MarkersToSend = {}
        rest: MarkersToSend = {}
        room = PARTITIONS_PER_REQUEST_MAX
        producer_ids: set[int] = set()
        given_up: list[Waiter[ErrorCode]] = []
        for completion, markers in self._waiting.pop(node_id).items():
            if not completion.is_wanted():
                given_up += markers.values()
                continue
            # The response tells markers apart by producer id only, so a request has each producer id once.
            if completion.producer_id in producer_ids or not room:
                rest[completion] = markers
                continue
            producer_ids.add(completion.producer_id)
            ordered = sorted(markers)
            batch[completion] = {key: markers[key] for key in ordered[:room]}
            if ordered[room:]:
                rest[completion] = {key: markers[key] for key in ordered[room:]}
            room -= len(batch[completion])
        if rest:
            self._waiting[node_id] = rest
        for written in given_up:
            written.wake(ErrorCode.not_coordinator)
        return batch

    def clear(self) -> None:
        self._waiting.clear()


def _request(batch: MarkersToSend) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=completion.producer_id,
                producer_epoch=completion.epoch,
                transaction_result=completion.marker.committed,
                topics=_topics(markers),
                coordinator_epoch=completion.marker.coordinator_epoch,
                transaction_version=completion.transaction_version,
            )
            for completion, markers in batch.items()
        ]
    )


def _topics(keys: Iterable[TopicPartition]) -> list[WritableTxnMarkerTopic]:
    return [
        WritableTxnMarkerTopic(name=name, partition_indexes=each) for name, each in by_topic(keys).items()
    ]


def _errors(response: Any) -> Iterator[tuple[tuple[int, TopicPartition], ErrorCode]]:
    for marker in response.markers:
        for topic in marker.topics:
            for partition in topic.partitions:
                key = (topic.name, partition.partition_index)
                yield (marker.producer_id, key), ErrorCode(partition.error_code)
