"""Share sessions (KIP-932): the partitions that a member of a share group fetches from this node. Pure.

The first ShareFetch of a member (epoch 0) creates its session, later ones add and remove partitions. The client numbers its
ShareFetch and ShareAcknowledge requests with session epochs. A session belongs to the connection of its first request, and
ends with that connection. Kafka's classes are ShareSessionCache, ShareSession and ShareSessionContext.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import Final
from uuid import UUID

from protocol.errors import NONE, ErrorCode
from protocol.messages.share_fetch import PartitionData
from protocol.named_tuple import NamedTuple
from protocol.slotted import slotted

INITIAL_EPOCH: Final = 0
"""Epoch of a ShareFetch that creates a session."""
FINAL_EPOCH: Final = -1
"""Epoch of a ShareFetch or ShareAcknowledge that ends the session."""
SESSION_EPOCH_MAX: Final = 2**31 - 1

PartitionKey = tuple[UUID | None, int]
"""(topic id, partition)."""


class SessionKey(NamedTuple):
    """A member of a share group. Two clients with the same member id share one session."""

    group_id: str
    member_id: str


@slotted(eq=False)
class CachedSharePartition:
    """A partition of a share session."""

    topic: str | None
    """Topic name; None if no topic had the id when the partition was added."""
    topic_id: UUID | None
    index: int
    must_respond: bool = False
    """Whether the next response has the partition even without records: it is new, or the last response had an error."""

    @property
    def key(self) -> PartitionKey:
        return (self.topic_id, self.index)


Answers = list[tuple[CachedSharePartition, PartitionData]]


@slotted(eq=False)
class ShareSession:
    """The share session of one member. ``epoch`` is the session epoch that the client's next request must have."""

    key: SessionKey
    connection_id: int
    partitions: dict[PartitionKey, CachedSharePartition]
    epoch: int = 1

    def update(self, asked: Iterable[CachedSharePartition], forgotten: Iterable[PartitionKey]) -> None:
        for each in asked:
            if each.key not in self.partitions:
                each.must_respond = True
                self.partitions[each.key] = each
        for key in forgotten:
            self.partitions.pop(key, None)

    def advance(self) -> int:
        self.epoch = self.epoch + 1 if self.epoch < SESSION_EPOCH_MAX else 1
        return self.epoch

    def select(self, answers: Answers) -> Answers:
        """Return the partition responses that must be sent. A partition with records moves to the end of the session."""
        selected = [(cached, answer) for cached, answer in answers if _must_send(cached, answer)]
        for cached, answer in selected:
            cached.must_respond = answer.error_code != NONE
            if answer.records and self.partitions.pop(cached.key, None) is not None:
                self.partitions[cached.key] = cached
        return selected


def _must_send(cached: CachedSharePartition, answer: PartitionData) -> bool:
    return bool(answer.records) or cached.must_respond or answer.error_code != NONE


@slotted(frozen=True)
class Opened:
    """The partitions of one ShareFetch, and the session of its response."""

    partitions: Sequence[CachedSharePartition]
    session: ShareSession | None = None
    """None for the first and the last request of a session, whose responses include all partitions."""
    expected_epoch: int = 0

    @property
    def error(self) -> ErrorCode:
        """INVALID_SHARE_SESSION_EPOCH if another request of the session has arrived since this one, else NONE."""
        if self.session is not None and self.session.epoch != self.expected_epoch:
            return ErrorCode.invalid_share_session_epoch
        return NONE

    def preview(self, answers: Answers) -> Answers:
        """The partition responses that `answer` would return, for the client's quota. Changes nothing."""
        if self.error is not NONE:
            return []
        return answers if self.session is None else [each for each in answers if _must_send(*each)]

    def answer(self, answers: Answers) -> Answers:
        """Return the partition responses to send; none with an `error`."""
        if self.error is not NONE:
            return []
        return answers if self.session is None else self.session.select(answers)


@slotted(eq=False)
class ShareSessionCache:
    """The share sessions of one node, at most ``sessions_max`` of them (``group.share.max.share.sessions``)."""

    sessions_max: int
    sessions: dict[SessionKey, ShareSession] = field(default_factory=dict)
    _of_connection: dict[int, ShareSession] = field(default_factory=dict)
    """Connection id -> the latest session that a request on the connection has created. It may have ended since."""
    _members: Counter[str] = field(default_factory=Counter)
    """Group id -> number of sessions."""

    def open(
        self,
        key: SessionKey,
        epoch: int,
        asked: Sequence[CachedSharePartition],
        forgotten: Iterable[PartitionKey],
        *,
        has_acknowledgements: bool,
        connection_id: int,
    ) -> Opened | ErrorCode:
        """Begin a ShareFetch. Returns its partitions and session, or the top-level error of the response."""
        session = self.sessions.get(key)
        if epoch == INITIAL_EPOCH:
            if has_acknowledgements:
                return ErrorCode.invalid_request
            self.remove(key)
            return self._create(key, asked, connection_id)
        if session is None:
            return ErrorCode.share_session_not_found
        if epoch == FINAL_EPOCH:
            return Opened(())
        if session.epoch != epoch:
            return ErrorCode.invalid_share_session_epoch
        session.update(asked, forgotten)
        return Opened(list(session.partitions.values()), session, session.advance())

    def _create(
        self, key: SessionKey, asked: Sequence[CachedSharePartition], connection_id: int
    ) -> Opened | ErrorCode:
        partitions = {each.key: each for each in asked}
        if len(partitions) < len(asked):
            return ErrorCode.unknown_server_error  # as in Kafka, for a partition that occurs twice
        if len(self.sessions) >= self.sessions_max:
            return ErrorCode.share_session_limit_reached
        self.sessions[key] = self._of_connection[connection_id] = ShareSession(key, connection_id, partitions)
        self._members[key.group_id] += 1
        return Opened(asked)

    def acknowledge(self, key: SessionKey, epoch: int) -> ErrorCode:
        """Begin a ShareAcknowledge, which counts in the same session epochs. Returns the top-level error, or NONE."""
        if epoch == INITIAL_EPOCH:
            return ErrorCode.invalid_share_session_epoch
        session = self.sessions.get(key)
        if session is None:
            return ErrorCode.share_session_not_found
        if epoch == FINAL_EPOCH:
            return NONE
        if session.epoch != epoch:
            return ErrorCode.invalid_share_session_epoch
        session.advance()
        return NONE

    def remove(self, key: SessionKey) -> ShareSession | None:
        session = self.sessions.pop(key, None)
        if session is not None:
            self._members[key.group_id] -= 1
            if not self._members[key.group_id]:
                del self._members[key.group_id]
        return session

    def remove_all(self) -> None:
        self.sessions.clear()
        self._members.clear()

    def has_members(self, group_id: str) -> bool:
        """Whether the group has sessions on this node."""
        return group_id in self._members

    def partitions_of(self, group_id: str, member_id: str) -> Iterator[tuple[str, int]]:
        """The (topic, partition) pairs of a member's session; none if there is no such session."""
        session = self.sessions.get(SessionKey(group_id, member_id))
        for each in session.partitions.values() if session is not None else ():
            if each.topic is not None:
                yield each.topic, each.index

    def of_connection(self, connection_id: int) -> ShareSession | None:
        """Remove a closed connection. Returns the latest session that it has created, which may have ended; None if none."""
        return self._of_connection.pop(connection_id, None)

    def is_current(self, session: ShareSession) -> bool:
        return self.sessions.get(session.key) is session
