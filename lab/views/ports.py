"""What the page and its stream need of whatever stands behind the control port: a cluster of ours, or a proxied one."""

from __future__ import annotations

from typing import Protocol

from lab.explain.explanation import Explanation
from lab.views.forms import (
    BatchesPiece,
    ClusterSummary,
    GroupsSummary,
    PartitionsSummary,
    TransactionsSummary,
)
from protocol.slotted import slotted

HANGING = "Hanging"
"""The state of a transaction that is open in a partition, and that no coordinator will end."""
TRANSACTIONS_MAX = 200
PARTITIONS_MAX = 100
PARTITIONS_OF_ONE_MAX = 100
"""Named of one transaction, and looked at for what it holds up."""
OPEN_OF_PARTITION_MAX = 50
GROUPS_MAX = 50
OFFSETS_OF_GROUP_MAX = 200
BATCHES_MAX = 500
"""In one piece: of more than these the newest are shown."""
HELD_BATCHES_MAX = 20
"""Shown from the last stable offset on, where it lies before all of those."""


@slotted
class BatchPosition:
    """How far a viewer knows a partition. ``next_offset`` -1: not at all."""

    topic: str
    partition: int
    next_offset: int = -1
    log_start: int = -1
    last_stable: int = -1
    high_watermark: int = -1
    leader_epoch: int = -1


class UnknownName(LookupError):
    """There is no such topic or partition; the text says so, and what may have been meant."""


class Explaining(Protocol):
    """Why readers stop, why a group lags, what a transactional id waits for."""

    async def partitions(self, topic: str, index: int | None) -> list[Explanation]:
        """One partition of a topic, or all. ``UnknownName``."""
        ...

    async def group(self, group_id: str) -> list[Explanation]: ...

    async def transactional_id(self, transactional_id: str) -> list[Explanation]: ...

    async def everything(self) -> list[Explanation]:
        """What could be wrong anywhere, within bounds."""
        ...


class Views(Protocol):
    """Each call reads what is there now, in slices, and keeps nothing."""

    async def cluster(self) -> ClusterSummary: ...

    async def transactions(self) -> TransactionsSummary: ...

    async def partitions(self, topic: str | None, first: int, count: int) -> PartitionsSummary:
        """``count`` partitions, from the place ``first`` on: of one topic, or of all that are not internal."""
        ...

    async def groups(self) -> GroupsSummary: ...

    async def batches(self, position: BatchPosition) -> BatchesPiece | None:
        """What came since ``position``, which moves on; None if nothing changed, or the partition cannot be read now."""
        ...
