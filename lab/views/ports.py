"""The interfaces that the web page and its event stream need, implemented for this process's nodes and for a proxy."""

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
"""State of a transaction that is open in a partition, and that no coordinator will end."""
TRANSACTIONS_MAX = 200
PARTITIONS_MAX = 100
PARTITIONS_OF_ONE_MAX = 100
"""Largest number of partitions of one transaction that are listed, and examined for waiting readers."""
OPEN_OF_PARTITION_MAX = 50
GROUPS_MAX = 50
OFFSETS_OF_GROUP_MAX = 200
RANGES_MAX = 100
"""Largest number of ranges in flight that are shown of one partition of a share group."""
BATCHES_MAX = 500
"""Largest number of batches in one `BatchesPiece`. If there are more, the newest are shown."""
HELD_BATCHES_MAX = 20
"""Largest number of batches shown after the last stable offset, if it is below the batches of a `BatchesPiece`."""


@slotted
class BatchPosition:
    """How far a viewer of the web page has read a partition. The fields are -1 before the first read."""

    topic: str
    partition: int
    next_offset: int = -1
    log_start: int = -1
    last_stable: int = -1
    high_watermark: int = -1
    leader_epoch: int = -1


class UnknownName(LookupError):
    """There is no such topic, partition or share group. The message says so, with the most similar name."""


class Explaining(Protocol):
    """The explanations of a cluster: why readers stop, why a group lags, what a transactional id waits for."""

    async def partitions(self, topic: str, index: int | None) -> list[Explanation]:
        """Explanations of one partition of a topic, or of all. Raises ``UnknownName`` if there is none."""
        ...

    async def group(self, group_id: str) -> list[Explanation]: ...

    async def record(self, group_id: str, topic: str, index: int, offset: int) -> list[Explanation]:
        """The state of one record in a share group. Raises ``UnknownName`` without such a partition or share group."""
        ...

    async def transactional_id(self, transactional_id: str) -> list[Explanation]: ...

    async def everything(self) -> list[Explanation]:
        """Explanations of everything that is wrong in the cluster, within bounds."""
        ...


class Views(Protocol):
    """The summaries for the web page. Each call reads the current state, in slices, and stores nothing."""

    async def cluster(self) -> ClusterSummary: ...

    async def transactions(self) -> TransactionsSummary: ...

    async def partitions(self, topic: str | None, first: int, count: int) -> PartitionsSummary:
        """``count`` partitions from index ``first`` on: of one topic, or of all topics that are not internal."""
        ...

    async def groups(self) -> GroupsSummary: ...

    async def batches(self, position: BatchPosition) -> BatchesPiece | None:
        """Return the batches since ``position``, and advance ``position``.

        None if nothing changed, or if the partition cannot be read now.
        """
        ...
