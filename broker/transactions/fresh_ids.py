"""A producer id for those who cannot go on without one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from broker.transactions.state import Answer
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.metadata.cluster import ClusterMetadata


def with_fresh_id(
    metadata: ClusterMetadata,
    node_id: int,
    use: Callable[[int], object],
    failed: Callable[[Answer], object],
    then: Callable[[], object] | None = None,
) -> None:
    """Get a producer id for a node (at once, or after its block is durable), ``use`` it, and go on with ``then``."""

    def got(producer_id: int) -> None:
        use(producer_id)
        if then is not None:
            then()

    allocated: int | Awaitable[int] = metadata.allocate_producer_id(node_id)
    if isinstance(allocated, int):
        got(allocated)
        return

    def arrived(future: asyncio.Future[int]) -> None:
        if future.cancelled() or future.exception() is not None:
            failed(Answer(ErrorCode.coordinator_load_in_progress))
        else:
            got(future.result())

    asyncio.ensure_future(allocated).add_done_callback(arrived)
