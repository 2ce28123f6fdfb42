"""Finds the leader's replica of a partition among the nodes of this process."""

from __future__ import annotations

from collections.abc import Iterator

from broker.cluster import Cluster
from broker.node import Node
from broker.replicas.partition import Partition


def led(cluster: Cluster, topic: str, index: int) -> Partition | None:
    """The leader's replica of a partition; None if no running node leads it, or if its files cannot be used."""
    known = cluster.metadata.topic(topic)
    state = known.partition(index) if known is not None else None
    node = cluster.running(state.leader) if state is not None else None
    if node is None:
        return None
    partition = node.replicas.leader(topic, index)
    return partition if isinstance(partition, Partition) and partition.offline is None else None


def led_partitions(cluster: Cluster) -> Iterator[Partition]:
    """The leaders' replicas of all partitions that were accessed so far and have a running leader."""
    for node in cluster.running_nodes():
        for partition in node.replicas.opened():
            if partition.leader_id == node.node_id and partition.offline is None:
                yield partition


def any_running(cluster: Cluster) -> Node | None:
    """A running node; None if there is none."""
    return next(iter(cluster.running_nodes()), None)


def node_id_of(node: Node | None) -> int | None:
    return None if node is None else node.node_id


def first_open_offset(partition: Partition, producer_id: int) -> int | None:
    """First offset of a producer's open transaction in a partition; None if the producer has none there."""
    entry = partition.log.producers.entries.get(producer_id)
    if entry is None or entry.current_txn_first_offset < 0:
        return None
    return entry.current_txn_first_offset
