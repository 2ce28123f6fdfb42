"""The blocks of producer ids of all nodes (Kafka's ``ProducerIdControlManager``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from broker.metadata.changes import record_for_producer_ids
from broker.metadata.image import Image
from broker.metadata.producer_ids import BLOCK_SIZE, PRODUCER_ID_MAX, ProducerIds, ProducerIdsExhausted
from protocol.records.cluster_metadata import MetadataRecord

Commit = Callable[[Sequence[MetadataRecord]], Coroutine[Any, Any, None]]
"""Coroutine function that commits records. When it returns, they are durable, and the image contains them."""


class ProducerIdControlManager:
    """Allocates producer ids for each node, from blocks that the metadata log assigns to the node."""

    def __init__(self, image: Image, commit: Commit) -> None:
        self._image = image
        self._commit = commit
        self._by_node: dict[int, ProducerIds] = {}
        self._claimed_to = 0

    def allocate(self, node_id: int) -> int | Awaitable[int]:
        """Return a new producer id, or an awaitable of one if the node has no block, or has used up its block.

        Nodes get blocks in the order in which they first need one, as in Kafka (``RPCProducerIdManager``).
        """
        return self._of(node_id).allocate()

    def forget(self, node_id: int) -> None:
        """Discard the rest of the node's block when the node restarts."""
        self._by_node.pop(node_id, None)

    def _of(self, node_id: int) -> ProducerIds:
        found = self._by_node.get(node_id)
        if found is None:
            found = self._by_node[node_id] = ProducerIds(partial(self._claim, node_id))
        return found

    async def _claim(self, node_id: int) -> int:
        # Two nodes may claim blocks at once, so blocks that are still being written count, too.
        first = max(self._image.next_producer_id, self._claimed_to)
        if first > PRODUCER_ID_MAX - BLOCK_SIZE:
            raise ProducerIdsExhausted
        self._claimed_to = first + BLOCK_SIZE
        broker = self._image.brokers[node_id]
        await self._commit([record_for_producer_ids(broker, first + BLOCK_SIZE)])
        return first
