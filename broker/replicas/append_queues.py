"""Queues that keep the order of appends to a partition, while the broker reads the records of an earlier batch (ADR 10).

Kafka validates records under the partition's lock, so the next append waits. Here reading the records takes many turns of
the event loop, and only client appends to the same partition wait. Sequences, verification guard and transaction state are
checked in the turn in which the batch is appended, after the records were validated, as in Kafka.
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
    """The queues of one node: one for each partition with a batch that is being read, or that waits for an earlier batch.

    A connection has at most one request in a queue.
    """

    def __init__(
        self,
        slices: Slices | None = None,
        limits: BatchLimits = LIMITS,
        alive: Callable[[], bool] = lambda: True,
    ) -> None:
        """``alive`` returns whether the node accepts appends. If it does not, no batch in a queue is appended."""
        self.limits = limits
        self._slices = slices or Slices()
        self._alive = alive
        self._queues: dict[Partition, deque[Waiter[None]]] = {}
        self._emptied: set[Partition] = set()
        """Partitions for which a call of `leave` is waking the batches in the queue, one after the other. Waking a
        batch may call `leave` again: that inner call wakes none."""

    def is_free(self, partition: Partition) -> bool:
        """Whether the partition's queue is empty, so that a batch whose records need not be read may be appended at once."""
        return partition not in self._queues

    async def turn(
        self, partition: Partition, checked: Checked | Invalid | Steps[Checked | Invalid]
    ) -> Checked | Invalid:
        """Read the batch's records if ``checked`` is a generator that does so, wait until all earlier batches of the
        partition are appended or refused, and return the result of the check.

        The caller then appends without suspending, and calls `leave`.
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
        """Remove the batch at the head of the queue, which was appended or refused. Then wake the next batches
        whose records have been read, unless the node accepts no more appends."""
        queue = self._queues[partition]
        queue.popleft()
        if partition in self._emptied:
            return  # an outer call of this method wakes the next batch: no recursion, however many are ready
        self._emptied.add(partition)
        while queue and self._alive():
            first = queue[0]
            first.wake(None)
            if queue and queue[0] is first:
                break  # this batch is still being read
        self._emptied.discard(partition)
        if not queue and self._queues.get(partition) is queue:
            del self._queues[partition]
