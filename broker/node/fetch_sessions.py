"""Fetch sessions (KIP-227): a client names its partitions once, and then receives only those that changed.

A session is a list of partitions, each with the client's latest parameters for it and the values last sent to the client.
The client numbers its requests with session epochs. A request with a wrong epoch means that client and broker disagree about
the session, and the client must create a new one.

The code is pure: ``now_ms`` and the source of session ids are arguments. The rules are those of Kafka's FetchManager,
FetchSession and FetchSessionCacheShard, with one shard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Final
from uuid import UUID

from protocol.errors import NONE, ErrorCode
from protocol.messages.fetch import PartitionData
from protocol.slotted import slotted

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
"""Epoch of a full fetch that also creates a session, if possible."""
FINAL_EPOCH: Final = -1
"""Epoch of a full fetch without a session. A Fetch below version 7 always has this epoch."""
SESSION_EPOCH_MAX: Final = 2**31 - 1
SESSION_IDLE_MS_MAX: Final = 120_000
"""Milliseconds. Any new session may evict the least recently used one if it was idle for longer than this.

A session is young if its creation and its last use are at most this far apart. A consumer's young session is
evicted only for a follower's session, a follower's young session for no session.
"""

Key = tuple[UUID | str, int]
"""Key of a partition in a session: (topic id, or topic name in Fetch versions below 13; partition)."""


@slotted(eq=False)
class CachedPartition:
    """A partition of a fetch: the client's parameters, and the values last sent to the client."""

    topic: str | None
    """Topic name; None while no topic has the id."""
    topic_id: UUID | None
    """Topic id; None in versions below 13."""
    index: int
    offset: int = 0
    max_bytes: int = 0
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    high_watermark_told: int = -1
    log_start_told: int = -1

    @property
    def key(self) -> Key:
        return (self.topic_id or self.topic or "", self.index)

    def ask_as(self, newer: CachedPartition) -> None:
        """Replace the parameters by those of the client's newest request. The values last sent to the client stay."""
        self.offset = newer.offset
        self.max_bytes = newer.max_bytes
        self.leader_epoch = newer.leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch

    def tell(self, answer: PartitionData) -> bool:
        """Store the values of the partition response ``answer``. Returns whether it must be sent to the client.

        False if the client already has all values. As in Kafka's CachedPartition, the last stable offset is not
        stored, so a response in which only the last stable offset differs is not sent.
        """
        news = (
            bool(answer.records)
            or answer.error_code != NONE
            or answer.high_watermark != self.high_watermark_told
            or answer.log_start_offset != self.log_start_told
            or answer.preferred_read_replica != -1
            or answer.diverging_epoch.epoch >= 0
        )
        # After an error, the next response without one must be sent even if no offset moved.
        self.high_watermark_told = answer.high_watermark if answer.error_code == NONE else -1
        self.log_start_told = answer.log_start_offset
        return news


Answers = list[tuple[CachedPartition, PartitionData]]


@slotted(eq=False)
class Session:
    """The fetch session of one client. ``epoch`` is the session epoch that the client's next request must have."""

    session_id: int
    follower: bool
    uses_topic_ids: bool
    partitions: dict[Key, CachedPartition]
    created_ms: int
    used_ms: int
    epoch: int = 1

    @property
    def value(self) -> tuple[bool, int]:
        """Rank for eviction: a new session can evict a session with a lower rank.

        A follower's session ranks above a consumer's, a session with more partitions above one with fewer.
        """
        return (self.follower, len(self.partitions))

    def update(self, asked: Mapping[Key, CachedPartition], forgotten: Sequence[Key]) -> None:
        for key, wanted in asked.items():
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = wanted
            else:
                known.ask_as(wanted)
        for key in forgotten:
            self.partitions.pop(key, None)

    def select(self, answers: Answers) -> Answers:
        """Return the partition responses that differ from what was last sent to the client.

        A partition with records moves to the end, so that all partitions get their turn.
        """
        news: Answers = []
        for wanted, answer in answers:
            key = wanted.key
            if self.partitions.get(key) is wanted and wanted.tell(answer):
                news.append((wanted, answer))
                if answer.records:
                    self.partitions[key] = self.partitions.pop(key)
        return news


@slotted(frozen=True)
class Opened:
    """The partitions to read for one Fetch, and the session for its response."""

    wanted: Sequence[CachedPartition]
    session: Session | None = None
    expected_epoch: int = 0
    create: Callable[[Answers, int], int] | None = None

    def answer(self, answers: Answers, now_ms: int) -> tuple[ErrorCode, int, Answers]:
        """Return (top-level error, session id, partitions to send). Call this after all partitions were read."""
        if self.session is not None:
            # Another Fetch of the session may have arrived on another connection while this one waited.
            if self.session.epoch != self.expected_epoch:
                return ErrorCode.invalid_fetch_session_epoch, self.session.session_id, []
            return NONE, self.session.session_id, self.session.select(answers)
        session_id = self.create(answers, now_ms) if self.create is not None else NO_SESSION
        return NONE, session_id, answers

    def answer_nothing(self) -> tuple[ErrorCode, int]:
        """Return (top-level error, session id) for a throttled response.

        The response has no partitions, and the client repeats its Fetch.
        """
        if self.session is None:
            return NONE, NO_SESSION
        if self.session.epoch != self.expected_epoch:
            return ErrorCode.invalid_fetch_session_epoch, self.session.session_id
        return NONE, self.session.session_id


@slotted(eq=False)
class FetchSessionCache:
    """The sessions of one node, at most ``slots`` of them (``max.incremental.fetch.session.cache.slots``)."""

    slots: int
    draw_id: Callable[[], int]
    """Function that returns a random session id from 1 to 2**31 - 1."""
    by_id: dict[int, Session] = field(default_factory=dict)
    """Sessions by id, in the order of their last use."""

    def open(
        self,
        session_id: int,
        session_epoch: int,
        asked: Mapping[Key, CachedPartition],
        forgotten: Sequence[Key] = (),
        *,
        uses_topic_ids: bool,
        follower: bool = False,
        now_ms: int,
    ) -> Opened | ErrorCode:
        """Begin a Fetch: update its session with the partitions ``asked`` and ``forgotten``.

        Returns the partitions to read, with the session; or the top-level error of the response.
        """
        if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self.by_id.pop(session_id, None)
            create = None
            if session_epoch == INITIAL_EPOCH:
                create = partial(self._create, uses_topic_ids, follower)
            return Opened(list(asked.values()), create=create)
        session = self.by_id.get(session_id)
        if session is None:
            return ErrorCode.fetch_session_id_not_found
        if session.epoch != session_epoch:
            return ErrorCode.invalid_fetch_session_epoch
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.fetch_session_topic_id_error
        session.update(asked, forgotten)
        if not session.partitions:
            del self.by_id[session_id]
            return Opened(list(asked.values()))
        session.epoch = session.epoch + 1 if session.epoch < SESSION_EPOCH_MAX else 1
        session.used_ms = now_ms
        self.by_id[session_id] = self.by_id.pop(session_id)
        return Opened(list(session.partitions.values()), session, session.epoch)

    def _create(self, uses_topic_ids: bool, follower: bool, answers: Answers, now_ms: int) -> int:
        if len(self.by_id) >= self.slots and not self._make_room((follower, len(answers)), now_ms):
            return NO_SESSION
        session_id = self.draw_id()
        while session_id in self.by_id:
            session_id = self.draw_id()
        for wanted, answer in answers:
            wanted.high_watermark_told = answer.high_watermark
            wanted.log_start_told = answer.log_start_offset
        partitions = {wanted.key: wanted for wanted, _ in answers}
        self.by_id[session_id] = Session(session_id, follower, uses_topic_ids, partitions, now_ms, now_ms)
        return session_id

    def _make_room(self, value: tuple[bool, int], now_ms: int) -> bool:
        """Evict a session to make room for a new session with the rank ``value`` (`Session.value`).

        Evicts a session that has been idle for long, else the one with the lowest rank if its rank is below
        ``value``. Returns False if no session may be evicted.
        """
        if not self.by_id:
            return False
        oldest = next(iter(self.by_id.values()))
        if now_ms - oldest.used_ms > SESSION_IDLE_MS_MAX:
            del self.by_id[oldest.session_id]
            return True
        follower = value[0]
        candidates = [
            session
            for session in self.by_id.values()
            # A follower's new session may evict a consumer's young session. A follower's young session is never
            # evicted.
            if session.used_ms - session.created_ms > SESSION_IDLE_MS_MAX
            or (follower and not session.follower)
        ]
        cheapest = min(candidates, key=lambda session: (session.value, session.session_id), default=None)
        if cheapest is None or value <= cheapest.value:
            return False
        del self.by_id[cheapest.session_id]
        return True
