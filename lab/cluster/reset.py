"""Resets the broker to the state after its first start.

Only the topics of the command line exist afterwards, with the records of --seed. There are no groups, and no
transactional ids except the one that writes these records. Quotas, credentials, tokens and ACLs are those of the first
start.

    await reset(cluster, forget=control.faults.clear)

All nodes are killed first: their connections are reset, and no request that was sent before the reset can reach the new
state. The cluster metadata log is not deleted, so that no producer id and no topic id is ever issued twice. The cluster
keeps its id, unless a new one is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.cluster.restarting import all_killed, start_together
from storage.directory import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, LogDirectory
from storage.files import remove

if TYPE_CHECKING:
    from broker.cluster.cluster import Cluster
    from broker.cluster.runtime import NodeRuntime
    from broker.metadata.values import Topic

_CHECKPOINTS: Final = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS)


async def reset(
    cluster: Cluster,
    forget: Callable[[], object] = lambda: None,
    remember: Callable[[], object] = lambda: None,
    *,
    new_cluster_id: bool = False,
) -> None:
    """Reset the broker. Returns when all nodes handle requests again, on the same ports.

    With ``new_cluster_id`` the cluster gets another id, so that clients find another cluster at the same addresses.
    ``forget`` is called when all nodes are dead, ``remember`` at the end (see `all_killed`). Raises ``StartError`` if a
    node cannot start, or is killed during the reset; the other nodes run then. Raises ``BrokerEnding`` if the broker is
    stopping.
    """
    async with cluster.lifecycle.call_on_all_nodes(), all_killed(cluster, forget, remember):
        await _reset(cluster, new_cluster_id)


async def _reset(cluster: Cluster, new_cluster_id: bool) -> None:
    # Delete the topics before the controller notes the loss of the nodes: deleted partitions need no election.
    topics = await _delete_topics(cluster)
    await cluster.all_terminated()
    # A request of a dead node's client may have created a topic meanwhile.
    topics += await _delete_topics(cluster)
    cluster.startup_topics.are_due = True
    await cluster.metadata.update_features(cluster.first_features)
    await cluster.metadata.client_control.restore(cluster.first_clients)
    for runtime in cluster.nodes.values():
        _forget_logs(runtime.data_dir, topics)
    if new_cluster_id:
        directories = {node_id: runtime.data_dir for node_id, runtime in cluster.nodes.items()}
        cluster.metadata.take_new_cluster_id(directories)
    await cluster.clock.reset()
    for runtime in cluster.nodes.values():
        runtime.skew(0)

    async def register(runtimes: list[NodeRuntime]) -> None:
        for runtime in runtimes:
            await cluster.metadata.cluster_control.join(cluster.introduce(runtime))

    await start_together(cluster, tuple(cluster.nodes), register)
    if cluster.settings.seed:
        from broker.cluster.startup_seed import write_seed

        await write_seed(cluster, is_new=True)


async def _delete_topics(cluster: Cluster) -> list[Topic]:
    """Delete all topics and return them. Repeat until no topic is left: a pending creation may commit meanwhile."""
    deleted: list[Topic] = []
    await cluster.metadata.auto_topic_creation.settled()
    while topics := list(cluster.metadata.topics.values()):
        await cluster.metadata.replication_control.delete_topics([topic.topic_id for topic in topics])
        deleted += topics
    return deleted


def _forget_logs(data_dir: Path, topics: list[Topic]) -> None:
    """Rename these topics' directories, which the next start removes in a thread, and remove the checkpoints."""
    names = {topic.name for topic in topics}
    directory = LogDirectory(data_dir)
    try:
        for (topic, index), _ in directory.partition_directories():
            if topic in names:
                directory.mark_for_deletion(topic, index)
        for name in _CHECKPOINTS:
            remove(data_dir / name)
    finally:
        directory.close(clean=False)
