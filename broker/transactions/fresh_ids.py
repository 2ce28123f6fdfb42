"""Allocation of a new producer id for InitProducerId and for an exhausted epoch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.metadata.cluster import ClusterMetadata


async def fresh_producer_id(metadata: ClusterMetadata, node_id: int) -> int | None:
    """Return a new producer id, waiting for the node's next block if needed; None if the controller allocated no block.

    Other requests may be handled during the wait, so the caller must decide again. Without a producer id the client gets
    COORDINATOR_LOAD_IN_PROGRESS, as on Kafka.
    """
    allocated: int | Awaitable[int] = metadata.allocate_producer_id(node_id)
    if isinstance(allocated, int):
        return allocated
    try:
        return await allocated
    except (Exception, asyncio.CancelledError):
        return None
