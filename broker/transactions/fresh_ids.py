"""Allocation of a producer id for the requests that need one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.metadata.cluster import ClusterMetadata


async def fresh_producer_id(metadata: ClusterMetadata, node_id: int) -> int | None:
    """Return a producer id, waiting for the node's next block if needed; None if the controller could not allocate a block.

    Other requests may have been handled during the wait, so the caller decides again from the beginning. Without an id the
    client gets COORDINATOR_LOAD_IN_PROGRESS, as on Kafka.
    """
    allocated: int | Awaitable[int] = metadata.allocate_producer_id(node_id)
    if isinstance(allocated, int):
        return allocated
    try:
        return await allocated
    except (Exception, asyncio.CancelledError):
        return None
