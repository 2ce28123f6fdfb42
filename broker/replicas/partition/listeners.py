"""Listeners for what happens to the partitions of a node: flushing, retention, compaction, failed disks (`ReplicaManager`).

No timer walks over all partitions, since there may be ten thousand of them. Each listener remembers from its callbacks
which partitions it must come back to, and when.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

# The partition that a listener is told of: the class itself stands above this module.
P = TypeVar("P")


class PartitionListener(Generic[P]):
    """Told by `ReplicaManager`, on the loop. Each call is quick: long work goes to a thread (`in_background`)."""

    def start(self) -> None:
        """Clients are served from now on: timers may be set. Events may come before."""

    def opened(self, partition: P) -> None:
        """A partition's log was opened; this is the first callback of a partition."""

    def appended(self, partition: P) -> None:
        """There is something that is not yet fsynced: told at the first append since ``flushed_offset`` was the end."""

    def rolled(self, partition: P) -> None:
        """A new segment has begun; those before it will not change any more."""

    def log_start_moved(self, partition: P) -> None:
        """DeleteRecords, retention or the leader moved the log start."""

    def truncated(self, partition: P) -> None:
        """A follower has cut off, or dropped, what its leader does not have."""

    def high_watermark_updated(self, partition: P) -> None:
        """The high watermark of a partition with several replicas has moved since it was checkpointed: told once."""

    def configured(self, partition: P) -> None:
        """Its settings have changed (``log.config``)."""

    def reconfigured(self) -> None:
        """The broker's settings have changed; ``configured`` comes for each partition."""

    def removed(self, partition: P) -> None:
        """It was deleted or cannot be used any more: touch nothing of it again."""

    def abandon(self) -> None:
        """The node is killed: start nothing new, put nothing in place. What runs in a thread gives up by itself."""

    async def close(self) -> None:
        """The broker stops: start nothing new, and return when nothing of it runs any more."""


class PartitionListeners(PartitionListener[P]):
    """Tells all listeners, in the order in which they were added."""

    def __init__(self) -> None:
        self.members: list[PartitionListener[P]] = []

    def start(self) -> None:
        self._tell(lambda member: member.start())

    def opened(self, partition: P) -> None:
        self._tell(lambda member: member.opened(partition))

    def appended(self, partition: P) -> None:
        self._tell(lambda member: member.appended(partition))

    def rolled(self, partition: P) -> None:
        self._tell(lambda member: member.rolled(partition))

    def log_start_moved(self, partition: P) -> None:
        self._tell(lambda member: member.log_start_moved(partition))

    def truncated(self, partition: P) -> None:
        self._tell(lambda member: member.truncated(partition))

    def high_watermark_updated(self, partition: P) -> None:
        self._tell(lambda member: member.high_watermark_updated(partition))

    def configured(self, partition: P) -> None:
        self._tell(lambda member: member.configured(partition))

    def reconfigured(self) -> None:
        self._tell(lambda member: member.reconfigured())

    def removed(self, partition: P) -> None:
        self._tell(lambda member: member.removed(partition))

    def abandon(self) -> None:
        self._tell(lambda member: member.abandon())

    async def close(self) -> None:
        for member in reversed(self.members):
            await member.close()

    def _tell(self, what: Callable[[PartitionListener[P]], None]) -> None:
        for member in self.members:
            what(member)
