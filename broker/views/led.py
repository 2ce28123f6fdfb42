"""Which partition is led where: what all views of a cluster of ours begin with."""

from __future__ import annotations

from broker.cluster import Cluster
from broker.replicas.partition import Partition


def led(cluster: Cluster, topic: str, index: int) -> Partition | None:
    """The leader's replica of a partition; None while no running node leads it, or its files cannot be used."""
    known = cluster.metadata.topic(topic)
    state = known.partition(index) if known is not None else None
    node = cluster.running(state.leader) if state is not None else None
    if node is None:
        return None
    partition = node.replicas.leader(topic, index)
    return partition if isinstance(partition, Partition) and partition.offline is None else None


def first_open_offset(partition: Partition, producer_id: int) -> int | None:
    """Where the open transaction of a producer begins in a partition."""
    entry = partition.log.producers.entries.get(producer_id)
    if entry is None or entry.current_txn_first_offset < 0:
        return None
    return entry.current_txn_first_offset
