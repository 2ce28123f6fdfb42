"""A producer id for requests that cannot go on without one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from broker.transactions.callback_errors import Done, with_error_response
from broker.transactions.transaction import Answer
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.metadata.cluster import ClusterMetadata


def with_fresh_id(
    metadata: ClusterMetadata, node_id: int, again: Callable[[int], object], done: Done
) -> None:
    """Call ``again`` with a producer id: at once, or after the node's next block is durable.

    Other requests may have come meanwhile, so ``again`` decides from the beginning. ``done`` gets
    COORDINATOR_LOAD_IN_PROGRESS if the controller has no block, as on Kafka.
    """
    allocated: int | Awaitable[int] = metadata.allocate_producer_id(node_id)
    if isinstance(allocated, int):
        again(allocated)
        return

    def arrived(future: asyncio.Future[int]) -> None:
        if future.cancelled() or future.exception() is not None:
            done(Answer(ErrorCode.coordinator_load_in_progress))
        else:
            again(future.result())

    asyncio.ensure_future(allocated).add_done_callback(with_error_response(done, arrived))
