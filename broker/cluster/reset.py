"""Back to the state after the first start: no topics but those of the command line, no groups, no transactional ids.

Quotas, credentials, tokens and ACLs are those of then.

    await reset(cluster, forget=control.faults.clear)

All nodes die first, as by a kill: their connections are reset, and no request that a client sent before can reach the new
state. The cluster metadata log stays, so that neither producer ids nor topic ids are ever issued twice.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.cluster.runtime import NodeState
from storage.directory import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, LogDirectory
from storage.files import remove

if TYPE_CHECKING:
    from broker.cluster.cluster import Cluster
    from broker.metadata.values import Topic

_CHECKPOINTS: Final = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS)


async def reset(cluster: Cluster, forget: Callable[[], object] = lambda: None) -> None:
    """Return once all nodes serve clients again, on their ports. ``StartError`` if a node cannot start.

    ``forget`` is called when all nodes are dead: rules that would act on the start have to go before it.
    """
    async with cluster.reset_lock:
        for runtime in tuple(cluster.nodes.values()):
            if runtime.state in (NodeState.STARTING, NodeState.RUNNING, NodeState.STOPPING):
                cluster.kill_node(runtime.node_id)
        forget()
        # Before the controller has noted the loss of the nodes: partitions that are gone need no other leader.
        topics = await _delete_topics(cluster)
        await cluster.settled()
        for runtime in cluster.nodes.values():
            await runtime.await_termination()
        # What a dead node's client had asked for may have been created meanwhile.
        topics += await _delete_topics(cluster)
        await cluster.metadata.update_features(cluster.first_features)
        await cluster.metadata.client_control.restore(cluster.first_clients)
        for runtime in cluster.nodes.values():
            _forget_logs(runtime.data_dir, topics)
        await cluster.clock.reset()
        for runtime in cluster.nodes.values():
            runtime.skew(0)
        for node_id in tuple(cluster.nodes):
            await cluster.start_node(node_id)
        await cluster.create_startup_topics()


async def _delete_topics(cluster: Cluster) -> list[Topic]:
    """Delete all topics, and return them. A commit comes after those that were under way, so it is looked again."""
    deleted: list[Topic] = []
    await cluster.metadata.auto_topic_creation.settled()
    while topics := list(cluster.metadata.topics.values()):
        await cluster.metadata.delete_topics([topic.topic_id for topic in topics])
        deleted += topics
    return deleted


def _forget_logs(data_dir: Path, topics: list[Topic]) -> None:
    """The partitions' directories are renamed, and the next start removes them in a thread."""
    ids = {topic.name: topic.topic_id.hex for topic in topics}
    directory = LogDirectory(data_dir)
    try:
        for (topic, index), _ in directory.partition_directories():
            if topic in ids:
                directory.mark_for_deletion(topic, index, ids[topic])
        for name in _CHECKPOINTS:
            remove(data_dir / name)
    finally:
        directory.close(clean=False)
