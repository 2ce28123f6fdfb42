"""The partitions of fetch sessions (KIP-227): a later Fetch of a session has only the changes. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import UUID

SESSIONS_MAX: Final = 1000
"""Largest number of sessions per node: the default of max.incremental.fetch.session.cache.slots."""
PARTITIONS_MAX: Final = 10_000
"""Largest number of partitions of a fetch session that are remembered."""
FULL: Final = (0, -1)
"""Session epochs of a Fetch that has all partitions. Epoch -1 also ends the session."""
NO_SESSION: Final = 0

TopicKey = str | UUID


class PassedSessions:
    """The partitions of the fetch sessions of one node, from the requests that were forwarded."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[int, dict[tuple[TopicKey, int], None]] = OrderedDict()

    def passed(self, request: Any, session_id: int) -> None:
        """Record the partitions of a forwarded Fetch, whose successful response had this session id."""
        if session_id == NO_SESSION:
            self._sessions.pop(request.session_id, None)
            return
        partitions = {} if request.session_epoch in FULL else self._sessions.get(session_id, {})
        for topic, indexes in _named(request.topics, lambda each: [one.partition for one in each.partitions]):
            for index in indexes:
                if len(partitions) < PARTITIONS_MAX:
                    partitions[topic, index] = None
        for topic, indexes in _named(request.forgotten_topics_data, lambda each: each.partitions):
            for index in indexes:
                partitions.pop((topic, index), None)
        self._sessions[session_id] = partitions
        self._sessions.move_to_end(session_id)
        if len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)

    def partitions(self, session_id: int) -> Iterable[tuple[TopicKey, int]]:
        """The partitions of a fetch session; empty if the session began before sessions were tracked."""
        return tuple(self._sessions.get(session_id, ()))


def _named(
    topics: Iterable[Any], indexes: Callable[[Any], Iterable[int]]
) -> Iterable[tuple[TopicKey, Iterable[int]]]:
    for each in topics:
        yield each.topic or each.topic_id, indexes(each)
