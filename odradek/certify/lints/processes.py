"""Which connections belong to one process, as far as a trace tells."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from odradek.certify.exchanges import Exchange

LIFE: Final = frozenset({"Fetch", "Heartbeat", "ConsumerGroupHeartbeat"})
GOES_ON: Final = 3
"""So many reads and heartbeats after an error show that the process lives on."""


class Works:
    """Who reads what a producer writes.

    An id that sends positions of a partition is in one process with the connection that had fetched that partition before.
    Of a single id it is every connection so far.
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
        """The consumers whose positions its transactions have had."""
        return frozenset(self._of_id.get(transactional_id, ()))

    def readers_of(self, transactional_id: str) -> frozenset[str]:
        """The connections that are in its process, or may be."""
        return frozenset(self._seen if len(self._of_id) < 2 else self._of_id[transactional_id])
