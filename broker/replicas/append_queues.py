"""Batches whose records the broker must read before the append keep their place before later batches (ADR 10).

Kafka validates under the partition's lock: the next append waits. Here reading takes many turns of the loop, and the
partition goes on with everything else; only what clients append to it waits. Sequences, verification and the state of
transactions are looked at when the batch is appended, in that one turn, as Kafka does after the validation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
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


class _Place:
    __slots__ = ("found", "turn")

    def __init__(self) -> None:
        self.turn: Waiter[Checked | Invalid] = Waiter()
        self.found: Checked | Invalid | None = None


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
        self._queues: dict[Partition, deque[_Place]] = {}

    def is_free(self, partition: Partition) -> bool:
        """May a batch be appended at once that needs no reading?"""
        return partition not in self._queues

    def add(
        self, partition: Partition, checked: Checked | Invalid | Steps[Checked | Invalid]
    ) -> Waiter[Checked | Invalid]:
        """A place in the queue: the waiter gets what the steps have found, once they are done and all that was added before
        for this partition is appended. Who awaits it appends in the turn in which it is woken.
        """
        place = _Place()
        self._queues.setdefault(partition, deque()).append(place)
        if isinstance(checked, Checked | Invalid):
            self._found(partition, place, checked)
        else:
            self._slices.start(checked, partial(self._found, partition, place))
        return place.turn

    def _found(self, partition: Partition, place: _Place, found: Checked | Invalid | Exception) -> None:
        if isinstance(found, Exception):
            log.error(
                "a batch could not be read", topic=partition.topic, partition=partition.index, exc_info=found
            )
            found = Invalid(ErrorCode.unknown_server_error, "the batch could not be read")
        place.found = found
        queue = self._queues.get(partition)
        while queue and queue[0].found is not None:
            first = queue.popleft()
            assert first.found is not None
            if self._alive():
                first.turn.wake(first.found)
        # What was appended may have let others in, and these have emptied the queue, and begun the next one.
        if not queue and self._queues.get(partition) is queue:
            del self._queues[partition]
