"""Back to the state after the first start: no topics but those of the command line, with the records of --seed; no groups,
no other transactional ids.

Quotas, credentials, tokens and ACLs are those of then.

    await reset(cluster, forget=control.faults.clear)

All nodes die first, as by a kill: their connections are reset, and no request that a client sent before can reach the new
state. The cluster metadata log stays, so that neither producer ids nor topic ids are ever issued twice.
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
) -> None:
    """Return once all nodes serve clients again, on their ports; `all_killed` says when the others are called.

    ``StartError`` if a node cannot start, or is killed on the way: the others run then. ``BrokerEnding``
    """
    async with cluster.lifecycle.call_on_all_nodes(), all_killed(cluster, forget, remember):
        await _reset(cluster)


async def _reset(cluster: Cluster) -> None:
    # Before the controller has noted the loss of the nodes: partitions that are gone need no other leader.
    topics = await _delete_topics(cluster)
    await cluster.all_terminated()
    # What a dead node's client had asked for may have been created meanwhile.
    topics += await _delete_topics(cluster)
    cluster.startup_topics.are_due = True
    await cluster.metadata.update_features(cluster.first_features)
    await cluster.metadata.client_control.restore(cluster.first_clients)
    for runtime in cluster.nodes.values():
        _forget_logs(runtime.data_dir, topics)
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
    """Delete all topics, and return them. A commit comes after those that were under way, so it is looked again."""
    deleted: list[Topic] = []
    await cluster.metadata.auto_topic_creation.settled()
    while topics := list(cluster.metadata.topics.values()):
        await cluster.metadata.replication_control.delete_topics([topic.topic_id for topic in topics])
        deleted += topics
    return deleted


def _forget_logs(data_dir: Path, topics: list[Topic]) -> None:
    """The partitions' directories are renamed, and the next start removes them in a thread."""
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
