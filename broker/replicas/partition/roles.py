"""The interfaces of a partition's leader and follower role, which `broker.replicas.replication` implements."""

from __future__ import annotations

from typing import Protocol


class LeaderRole(Protocol):
    """Role of the leader of a partition with several replicas: it tracks the followers."""

    epoch_start_offset: int
    """Log end at the start of this leader's epoch. While the high watermark is below it, the previous leader's may
    have been higher (KIP-207)."""

    @property
    def low_watermark(self) -> int:
        """Smallest log start offset of the replicas."""
        ...

    def appended(self) -> None:
        """Wake the followers, so that they fetch the records that were appended."""
        ...

    def committable(self, end_offset: int) -> int:
        """The offset, at most ``end_offset``, that all replicas have reached that are in the ISR or about to join it."""
        ...

    def committed(self) -> None:
        """Complete waiting requests and inform followers after the high watermark moved."""
        ...

    def wake(self) -> None:
        """Respond to the followers whose Fetch waits at this leader."""
        ...


class FollowerRole(Protocol):
    """Role of a follower: it fetches from the leader."""

    def pull(self) -> None:
        """Fetch now, unless a fetch is in progress or impossible."""
        ...
