"""Reports replicas with failed files to the controller, which elects another leader (KIP-858)."""

from __future__ import annotations

from collections.abc import Callable

from broker.logging import get_logger
from broker.metadata import ApiError, ClusterMetadata
from broker.replicas.partition import Partition
from broker.replicas.partition.listeners import PartitionListener

log = get_logger()


class FailedReplicaListener(PartitionListener[Partition]):
    """Calls ``tell`` with each partition whose files have failed on a node. Used only in larger clusters."""

    def __init__(self, tell: Callable[[Partition], None]) -> None:
        self._tell = tell

    def removed(self, partition: Partition) -> None:
        if partition.offline is not None:
            self._tell(partition)


async def report_failed_replica(metadata: ClusterMetadata, node_id: int, partition: Partition) -> None:
    """Remove the node's replica from the ISR, and elect another leader if this replica was the leader."""
    try:
        await metadata.replication_control.lose_replica(
            partition.topic, partition.topic_id, partition.index, node_id
        )
    except ApiError as refusal:
        log.error(
            "removing a failed replica from the metadata failed",
            node_id=node_id,
            topic=partition.topic,
            partition=partition.index,
            reason=str(refusal),
        )
