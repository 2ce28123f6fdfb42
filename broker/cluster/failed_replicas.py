"""A replica's files fail while other nodes have the same data: the controller elects another leader (KIP-858)."""

from __future__ import annotations

from collections.abc import Callable

from broker.replicas.partition import Partition
from broker.replicas.partition.listeners import PartitionListener


class FailedReplicaListener(PartitionListener[Partition]):
    """Tells the controller of partitions whose files cannot be used any more. A broker of one node has no need of it."""

    def __init__(self, tell: Callable[[str, int], None]) -> None:
        self._tell = tell

    def removed(self, partition: Partition) -> None:
        if partition.offline is not None:
            self._tell(partition.topic, partition.index)
