"""Disk failures of a node: a power loss, and damage in files.

    await lose_power(cluster, 2)
    await damage(cluster, 2, "orders", 0, offset=5, how="flip")

A node's power loss does not affect the cluster metadata: the controller keeps running, and syncs each change before it is
visible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from broker.cluster.errors import NoSuchNode
from broker.cluster.in_words import nodes_in_words
from broker.cluster.runtime import DEAD, NodeRuntime, NodeState
from storage.damage import FoundBatch, find_batch, flip, tear

if TYPE_CHECKING:
    from broker.cluster.cluster import Cluster

How = Literal["flip", "tear"]
_DOES: Final = {"flip": flip, "tear": tear}


class NoSuchBatch(Exception):
    """The batch to be damaged does not exist. The message names what is missing: partition, replica or offset."""


async def lose_power(cluster: Cluster, node_id: int) -> None:
    """Kill a running node, and truncate its logs to the bytes that were synced. Returns when the files are truncated.

    Raises ``NoSuchNode`` if the node is not running.
    """
    async with cluster.lifecycle.call():
        runtime = _node(cluster, node_id)
        if runtime.state is not NodeState.RUNNING:
            raise NoSuchNode(f"node {node_id} is {runtime.state.value}, not running")
        runtime.note_power_loss()
        cluster.kill_node(node_id)
        await cluster.settled()
        await runtime.await_termination()


async def damage(
    cluster: Cluster, node_id: int, topic: str, partition: int, *, offset: int, how: How
) -> FoundBatch:
    """Damage the batch that contains an offset, in the files of a stopped or killed node.

    ``how`` is ``flip`` (change one byte of the batch) or ``tear`` (cut the file in the middle of the batch). Raises
    ``NoSuchNode`` if the node is not stopped or killed, ``NoSuchBatch`` if no batch contains the offset, and
    ``StorageError`` if the file cannot be read or changed.
    """
    async with cluster.lifecycle.call():
        runtime = _node(cluster, node_id)
        _expect_dead(runtime)
        await runtime.await_termination()
        runtime = cluster.nodes[node_id]
        _expect_dead(runtime)  # the node may have been started meanwhile
        found = _find(cluster, runtime, topic, partition, offset)
        _DOES[how](found)
        return found


def _find(cluster: Cluster, runtime: NodeRuntime, topic: str, partition: int, offset: int) -> FoundBatch:
    node_id = runtime.node_id
    known = cluster.metadata.topic(topic)
    state = known.partition(partition) if known is not None else None
    if state is None:
        raise NoSuchBatch(f"there is no partition {topic}-{partition}")
    if node_id not in state.replicas:
        raise NoSuchBatch(f"node {node_id} has no replica of {topic}-{partition}")
    found = find_batch(runtime.data_dir / f"{topic}-{partition}", offset)
    if found is None:
        raise NoSuchBatch(
            f"the log of {topic}-{partition} on node {node_id} has no batch with offset {offset}"
        )
    return found


def _node(cluster: Cluster, node_id: int) -> NodeRuntime:
    runtime = cluster.nodes.get(node_id)
    if runtime is None:
        raise NoSuchNode(f"there is no node {node_id}: {nodes_in_words(cluster.nodes)}")
    return runtime


def _expect_dead(runtime: NodeRuntime) -> None:
    if runtime.state not in DEAD:
        raise NoSuchNode(f"node {runtime.node_id} is {runtime.state.value}: stop or kill it first")
