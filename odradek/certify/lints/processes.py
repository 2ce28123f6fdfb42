"""Assign connections to processes, as far as a trace allows."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from odradek.certify.exchanges import Exchange

LIFE: Final = frozenset({"Fetch", "Heartbeat", "ConsumerGroupHeartbeat"})
GOES_ON: Final = 3
"""Number of fetches and heartbeats after an error which show that the process continues."""


class ConnectionMap:
    """For each transactional id, the connections of the consumers in the same process as its producer.

    A transactional id that commits offsets of a partition is in one process with the connection that last fetched that
    partition. If there is only one id, all connections seen so far belong to that id.
    """

    def __init__(self) -> None:
        self._readers: dict[tuple[str, int], str] = {}
        self._of_id: defaultdict[str, set[str]] = defaultdict(set)
        self._members: dict[str, str] = {}
        self._seen: set[str] = set()

    def see(self, exchange: Exchange) -> None:
        self._seen.add(exchange.peer)
        if exchange.api == "Fetch":
            for topic in exchange.request.get("topics") or ():
                for each in topic["partitions"]:
                    self._readers[topic.get("topic_name") or topic.get("topic"), each["partition"]] = (
                        exchange.peer
                    )
        elif exchange.api in LIFE and exchange.request.get("member_id"):
            self._members[exchange.request["member_id"]] = exchange.peer
        elif exchange.transactional_id:
            self._link(exchange)

    def _link(self, exchange: Exchange) -> None:
        found = self._of_id[exchange.transactional_id or ""]
        if exchange.api == "TxnOffsetCommit":
            for topic in exchange.request.get("topics") or ():
                for each in topic["partitions"]:
                    reader = self._readers.get(
                        (topic.get("name") or topic.get("topic_name"), each["partition_index"])
                    )
                    found |= {reader} if reader else set()
            member = self._members.get(exchange.request.get("member_id") or "")
            found |= {member} if member else set()

    def linked_to(self, transactional_id: str) -> frozenset[str]:
        """The connections of the consumers whose offsets the transactions of this id have contained."""
        return frozenset(self._of_id.get(transactional_id, ()))

    def readers_of(self, transactional_id: str) -> frozenset[str]:
        """The connections that belong, or may belong, to the process of this id."""
        return frozenset(self._seen if len(self._of_id) < 2 else self._of_id[transactional_id])
