"""Clients that look up a group's coordinator again and again, and send it no request for the group.

librdkafka with ``group.protocol=consumer`` does so with a broker that does not announce ConsumerGroupHeartbeat (KIP-848):
it tells its application nothing, and no request names the reason. One line in the log does. Pure.
"""

from __future__ import annotations

from typing import Final

LOOKUPS: Final = 3
"""So many lookups on one connection without a request for the group are told. Other clients send one after the first."""
GROUPS_MAX: Final = 1_000
"""Of the groups that were looked up last. Others are forgotten, and counted anew."""


class UnusedLookups:
    """Counts the lookups of each group, on the connection that asked last, since the last request for it."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, int]] = {}

    def looked_up(self, group_id: str, connection_id: int) -> bool:
        """Count a lookup; True when the log should tell of it, once for a connection until a request comes."""
        before, count = self._counts.pop(group_id, (connection_id, 0))
        count = count + 1 if before == connection_id else 1
        if len(self._counts) >= GROUPS_MAX:
            del self._counts[next(iter(self._counts))]
        self._counts[group_id] = connection_id, count
        return count == LOOKUPS

    def used(self, group_id: str) -> None:
        """A request for the group came."""
        self._counts.pop(group_id, None)
