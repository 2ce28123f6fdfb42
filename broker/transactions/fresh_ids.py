"""A producer id for requests that cannot go on without one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.metadata.cluster import ClusterMetadata


async def fresh_producer_id(metadata: ClusterMetadata, node_id: int) -> int | None:
    """A producer id: at once, or once the node's next block is durable; None if the controller has no block.

    Other requests may have come meanwhile, so what it is for is decided again from the beginning. Without an id the client
    gets COORDINATOR_LOAD_IN_PROGRESS, as on Kafka.
    """
    allocated: int | Awaitable[int] = metadata.allocate_producer_id(node_id)
    if isinstance(allocated, int):
        return allocated
    try:
        return await allocated
    except (Exception, asyncio.CancelledError):
        return None
