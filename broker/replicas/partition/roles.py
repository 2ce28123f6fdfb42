"""What a partition with several replicas has its leader's and its follower's side for (`broker.replicas.replication`)."""

from __future__ import annotations

from typing import Protocol


class LeaderRole(Protocol):
    """The side of a partition that leads: it knows the followers."""

    epoch_start_offset: int
    """Where this leader's epoch begins: below it nothing is known to be committed but what a follower confirms."""

    @property
    def low_watermark(self) -> int:
        """The log start of the replica that has deleted least."""
        ...

    def appended(self) -> None:
        """There is more for the followers."""
        ...

    def committable(self, end_offset: int) -> int:
        """What every replica that counts has, of the log up to ``end_offset``."""
        ...

    def committed(self) -> None:
        """The high watermark has moved."""
        ...

    def wake(self) -> None:
        """Answer the followers whose Fetch waits here."""
        ...


class FollowerRole(Protocol):
    """The side of a partition that follows: it fetches."""

    def pull(self) -> None:
        """Fetch now, if nothing keeps it from fetching."""
        ...
