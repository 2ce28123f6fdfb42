"""The shards of a coordinator that serve requests, found by their partition.

Each request of a client begins with this look; what is out of the ordinary is the runtime's
(`broker.coordinator_runtime.runtime`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator_runtime.shard import CoordinatorShard

if TYPE_CHECKING:
    from broker.replicas.manager import ReplicaManager


class ServingShards:
    """All shards by partition, and which of them serve."""

    __slots__ = ("_replicas", "_topic", "by_partition", "ended")

    def __init__(self, topic: str, replicas: ReplicaManager) -> None:
        self._topic = topic
        self._replicas = replicas
        self.by_partition: dict[int, CoordinatorShard] = {}
        """Also those that are being loaded."""
        self.ended = False
        """The node has stopped."""

    def find(self, index: int) -> CoordinatorShard | None:
        """The shard of a partition that has been loaded and is still led here."""
        known = self.by_partition.get(index)
        if known is None or self.ended or known.refusal is not None or not known.is_current():
            return None
        return known if self._replicas.opened_leader(self._topic, index) is known.partition else None
