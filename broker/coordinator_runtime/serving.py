"""Lookup of the shard that serves a partition.

Each request of a client begins with this lookup. If no shard is found, the runtime determines the error or loads the shard
(`broker.coordinator_runtime.runtime`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator_runtime.shard import CoordinatorShard

if TYPE_CHECKING:
    from broker.replicas.manager import ReplicaManager


class ServingShards:
    """The shards of a coordinator by partition, with a fast lookup of the shards that serve requests."""

    __slots__ = ("_replicas", "_topic", "by_partition", "ended")

    def __init__(self, topic: str, replicas: ReplicaManager) -> None:
        self._topic = topic
        self._replicas = replicas
        self.by_partition: dict[int, CoordinatorShard] = {}
        """All shards, including those that are loading."""
        self.ended = False
        """Whether the node has stopped."""

    def find(self, index: int) -> CoordinatorShard | None:
        """Return the shard of a partition if it is loaded and this node still leads it, otherwise None."""
        known = self.by_partition.get(index)
        if known is None or self.ended or known.refusal is not None or not known.is_current():
            return None
        return known if self._replicas.opened_leader(self._topic, index) is known.partition else None
