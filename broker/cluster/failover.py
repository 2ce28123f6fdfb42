"""Files of a replica that fail while other nodes have the same data: somebody else leads (KIP-858)."""

from __future__ import annotations

from collections.abc import Callable

from broker.partition import Partition
from broker.upkeep.events import Upkeep


class Failover(Upkeep):
    """Tells the controller of partitions whose files cannot be used any more. A broker of one node has no need of it."""

    def __init__(self, tell: Callable[[str, int], None]) -> None:
        self._tell = tell

    def gone(self, partition: Partition) -> None:
        if partition.offline is not None:
            self._tell(partition.topic, partition.index)
