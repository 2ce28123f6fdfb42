"""The partitions of fetch sessions (KIP-227) and share sessions (KIP-932): later requests have only the changes. Pure."""

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
FINAL_EPOCH: Final = -1
"""Epoch of a ShareFetch that ends the share session."""

TopicKey = str | UUID
SessionKey = int | tuple[str, str]
"""Id of a fetch session; group id and member id of a share session."""


class PassedSessions:
    """The partitions of the fetch sessions and share sessions of one node, from the requests that were forwarded."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[SessionKey, dict[tuple[TopicKey, int], None]] = OrderedDict()

    def passed(self, request: Any, session_id: int) -> None:
        """Record the partitions of a forwarded Fetch, whose successful response had this session id."""
        if session_id == NO_SESSION:
            self._sessions.pop(request.session_id, None)
            return
        added = _named(request.topics, lambda each: [one.partition for one in each.partitions])
        self._update(session_id, added, request, is_full=request.session_epoch in FULL)

    def passed_share_fetch(self, request: Any) -> None:
        """Record the partitions of a forwarded ShareFetch, whose response had no error."""
        key = (request.group_id or "", request.member_id or "")
        if request.share_session_epoch == FINAL_EPOCH:
            self._sessions.pop(key, None)
            return
        added = [(each.topic_id, [one.partition_index for one in each.partitions]) for each in request.topics]
        self._update(key, added, request, is_full=request.share_session_epoch in FULL)

    def _update(
        self,
        key: SessionKey,
        added: Iterable[tuple[TopicKey, Iterable[int]]],
        request: Any,
        *,
        is_full: bool,
    ) -> None:
        partitions = {} if is_full else self._sessions.get(key, {})
        for topic, indexes in added:
            for index in indexes:
                if len(partitions) < PARTITIONS_MAX:
                    partitions[topic, index] = None
        for each in request.forgotten_topics_data:
            for index in each.partitions:
                partitions.pop((getattr(each, "topic", None) or each.topic_id, index), None)
        self._sessions[key] = partitions
        self._sessions.move_to_end(key)
        if len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)

    def partitions(self, key: SessionKey) -> Iterable[tuple[TopicKey, int]]:
        """The partitions of a session; empty if the session began before sessions were tracked."""
        return tuple(self._sessions.get(key, ()))


def _named(
    topics: Iterable[Any], indexes: Callable[[Any], Iterable[int]]
) -> Iterable[tuple[TopicKey, Iterable[int]]]:
    for each in topics:
        yield each.topic or each.topic_id, indexes(each)
