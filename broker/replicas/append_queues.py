"""Batches whose records the broker must read before the append keep their place before later batches (ADR 10).

Kafka validates under the partition's lock: the next append waits. Here reading takes many turns of the loop, and the
partition goes on with everything else; only what clients append to it waits. Sequences, verification and the state of
transactions are looked at when the batch is appended, in that one turn, as Kafka does after the validation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.logging import get_logger
from broker.loop.coroutines import Waiter
from broker.loop.slices import Slices
from protocol.errors import ErrorCode
from storage.steps import Steps
from storage.validation import LIMITS, BatchLimits, Checked, Invalid

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.replicas.partition import Partition

log = get_logger()


def limits_of(config: BrokerConfig) -> BatchLimits:
    return BatchLimits(
        records_max=config.batch_records_max,
        decompressed_bytes_max=config.batch_decompressed_bytes_max,
        reads_all=config.produce_reads_records,
    )


class AppendQueues:
    """One queue for each partition of this node that has a batch being read; a connection has at most one request there."""

    def __init__(
        self,
        slices: Slices | None = None,
        limits: BatchLimits = LIMITS,
        alive: Callable[[], bool] = lambda: True,
    ) -> None:
        """``alive`` tells whether the node is: what was read for a dead one is not appended."""
        self.limits = limits
        self._slices = slices or Slices()
        self._alive = alive
        self._queues: dict[Partition, deque[Waiter[None]]] = {}
        self._emptied: set[Partition] = set()
        """The partitions whose next batches `leave` lets in at the moment."""

    def is_free(self, partition: Partition) -> bool:
        """May a batch be appended at once that needs no reading?"""
        return partition not in self._queues

    async def turn(
        self, partition: Partition, checked: Checked | Invalid | Steps[Checked | Invalid]
    ) -> Checked | Invalid:
        """What the steps find, once they are done and all that came before to this partition is appended.

        The caller appends at once, and then calls `leave`.
        """
        queue = self._queues.setdefault(partition, deque())
        place: Waiter[None] = Waiter()
        queue.append(place)
        if not isinstance(checked, Checked | Invalid):
            checked = await self._read(partition, checked)
        if queue[0] is not place:
            await place
        return checked

    async def _read(self, partition: Partition, steps: Steps[Checked | Invalid]) -> Checked | Invalid:
        try:
            return await self._slices.run(steps)
        except Exception:
            log.exception("a batch could not be read", topic=partition.topic, partition=partition.index)
            return Invalid(ErrorCode.unknown_server_error, "the batch could not be read")

    def leave(self, partition: Partition) -> None:
        """The batch whose turn it was is appended, or refused: the next one's turn. A dead node appends nothing more."""
        queue = self._queues[partition]
        queue.popleft()
        if partition in self._emptied:
            return  # a call further down goes on with the next one: many that are ready cost no depth
        self._emptied.add(partition)
        while queue and self._alive():
            first = queue[0]
            first.wake(None)
            if queue and queue[0] is first:
                break  # its records are still being read
        self._emptied.discard(partition)
        if not queue and self._queues.get(partition) is queue:
            del self._queues[partition]
