"""What looks after partitions while nobody asks: flushing, retention, compaction. Each is told what happens to them.

Nothing looks at all partitions now and then: there may be ten thousand of them. Whoever looks after something
remembers, from what it is told here, which partitions it must come back to, and when.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.partition import Partition


class Upkeep:
    """Told by `Replicas`, on the loop. All of it is quick; long work goes to a thread (`Replicas.in_background`)."""

    def start(self) -> None:
        """Clients are served from now on: timers may be set. Events may come before."""

    def opened(self, partition: Partition) -> None:
        """A partition's log was opened; nothing is told of it before."""

    def written(self, partition: Partition) -> None:
        """There is something that is not yet fsynced: told at the first append since ``flushed_offset`` was the end."""

    def rolled(self, partition: Partition) -> None:
        """A new segment has begun; those before it will not change any more."""

    def log_start_moved(self, partition: Partition) -> None:
        """Somebody deleted records."""

    def truncated(self, partition: Partition) -> None:
        """A follower has cut off, or dropped, what its leader does not have."""

    def committed(self, partition: Partition) -> None:
        """The high watermark of a partition with several replicas has moved since ``unchecked`` was last False."""

    def configured(self, partition: Partition) -> None:
        """Its settings have changed (``log.config``)."""

    def gone(self, partition: Partition) -> None:
        """It was deleted or cannot be used any more: touch nothing of it again."""

    def abandon(self) -> None:
        """The node is killed: start nothing new, put nothing in place. What runs in a thread gives up by itself."""

    async def close(self) -> None:
        """The broker stops: start nothing new, and return when nothing of it runs any more."""


class Everybody(Upkeep):
    """Tells all who look after partitions, in the order in which they were added."""

    def __init__(self) -> None:
        self.members: list[Upkeep] = []

    def start(self) -> None:
        self._tell(lambda member: member.start())

    def opened(self, partition: Partition) -> None:
        self._tell(lambda member: member.opened(partition))

    def written(self, partition: Partition) -> None:
        self._tell(lambda member: member.written(partition))

    def rolled(self, partition: Partition) -> None:
        self._tell(lambda member: member.rolled(partition))

    def log_start_moved(self, partition: Partition) -> None:
        self._tell(lambda member: member.log_start_moved(partition))

    def truncated(self, partition: Partition) -> None:
        self._tell(lambda member: member.truncated(partition))

    def committed(self, partition: Partition) -> None:
        self._tell(lambda member: member.committed(partition))

    def configured(self, partition: Partition) -> None:
        self._tell(lambda member: member.configured(partition))

    def gone(self, partition: Partition) -> None:
        self._tell(lambda member: member.gone(partition))

    def abandon(self) -> None:
        self._tell(lambda member: member.abandon())

    async def close(self) -> None:
        for member in reversed(self.members):
            await member.close()

    def _tell(self, what: Callable[[Upkeep], None]) -> None:
        for member in self.members:
            what(member)
