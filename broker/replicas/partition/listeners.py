"""Listener interface for events of a node's partitions. Flushing, retention, compaction and failed disks use it.

No timer iterates over all partitions, since there may be ten thousand of them. Instead, each listener remembers from its
callbacks which partitions it has to handle, and when.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

# The type of the partition. `Partition` itself is defined above this module, which may not import it.
P = TypeVar("P")


class PartitionListener(Generic[P]):
    """A listener for the events of a node's partitions. Its methods are called on the event loop.

    A callback must be fast: long work runs in a thread (`in_background`).
    """

    def start(self) -> None:
        """Called when the node begins to serve clients. Timers may be set from then on. Other callbacks may be called
        earlier.
        """

    def opened(self, partition: P) -> None:
        """Called when the partition's log was opened, before the other callbacks of the partition."""

    def appended(self, partition: P) -> None:
        """Called at the first append after everything was fsynced: the log has records that are not fsynced."""

    def rolled(self, partition: P) -> None:
        """Called when a new active segment was created. Earlier segments do not change any more."""

    def log_start_moved(self, partition: P) -> None:
        """Called when DeleteRecords, retention or the leader moved the log start."""

    def truncated(self, partition: P) -> None:
        """Called when a follower truncated its log, because the leader lacks the records, or deleted the whole log."""

    def high_watermark_updated(self, partition: P) -> None:
        """Called when the high watermark of a partition with several replicas moved, and not again until the value is
        checkpointed.
        """

    def configured(self, partition: P) -> None:
        """Called when the settings of the partition's log (``log.config``) changed."""

    def reconfigured(self) -> None:
        """Called when the broker's settings changed. `configured` is called for each partition as well."""

    def removed(self, partition: P) -> None:
        """Called when the partition was deleted, moved to other nodes or went offline. Do not use its files any more."""

    def abandon(self) -> None:
        """Called when the node is killed: start no work and replace no file. Work in a thread ends by itself."""

    async def close(self) -> None:
        """Called when the node stops: start no work, and return when all running work has ended."""


class PartitionListeners(PartitionListener[P]):
    """Calls all listeners, in the order in which they were added."""

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
