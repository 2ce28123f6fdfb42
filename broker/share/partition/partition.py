"""One share partition (KIP-932) as a state machine, as Kafka's SharePartition. Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from broker.share.state import TERMINAL, Ending, RecordState, StateBatch, StoredState
from protocol.errors import ErrorCode
from protocol.named_tuple import NamedTuple

from .acquiring import Acquisition
from .in_flight import NO_MEMBER, InFlightBatch, InFlightState
from .locks import AcquisitionLock
from .records import InFlightRecords
from .values import (
    Acknowledged,
    Acquired,
    Change,
    DeadLetters,
    DeliverySettings,
    Fetched,
    InFlight,
    Limits,
    Refused,
)

REJECT: Final = 3
RENEW: Final = 4
_STATES: Final = (RecordState.ARCHIVED, RecordState.ACKNOWLEDGED, RecordState.AVAILABLE, RecordState.ARCHIVED)
"""The new state by AcknowledgeType: gap, accept, release, reject."""
_ENDINGS: Final = (Ending.GAP, Ending.ACCEPTED, Ending.RELEASED, Ending.REJECTED)
REJECTED: Final = "Offset rejected by client."
EXCEEDED: Final = "Offset delivery count exceeded the threshold."


class SharePartition(InFlightRecords):
    """The records of a topic partition that one share group has in flight, from the start offset to the end offset.

    The cost of a call depends on the records that it reads or changes, not on the number of records and members.
    """

    __slots__ = ("lock_timeouts", "state_epoch")

    def __init__(self) -> None:
        super().__init__()
        self.state_epoch = 0
        self.lock_timeouts = 0
        """Number of records whose lock has run out (Kafka's metric AcquisitionLockTimeoutPerSec)."""

    def load(self, stored: StoredState, settings: DeliverySettings) -> Change | None:
        """Take over the stored state, whose start offset must be set.

        Return a change if records were being written to the dead-letter queue: it needs no write and no commit. Raises
        ValueError if the batches are below the start offset.
        """
        self.state_epoch = stored.state_epoch
        self.restore(stored.start_offset, stored.batches)
        letters = []
        for first, last, state, count in stored.batches:
            if state == RecordState.ARCHIVING:
                message = EXCEEDED if count >= settings.delivery_count_limit else REJECTED
                letters.append(DeadLetters(first, last, count, message))
        return self._complete(Change(dead_letters=letters)) if letters else None

    # -- acquiring ----------------------------------------------------------------------------------------------

    def next_fetch_offset(self) -> int:
        """The offset from which to read the log: the first record that is available again, or the first new one."""
        if not self.batches or self.start_offset > self.batches[-1].last_offset:
            return self.end_offset
        offsets = self.batches.first_available(), self.first_gap()
        found = min((offset for offset in offsets if offset is not None), default=self.end_offset + 1)
        return max(found, self.start_offset)

    def can_acquire(self, record_locks_max: int) -> bool:
        """Whether there are records to deliver again, or room for new ones."""
        if self.next_fetch_offset() != self.end_offset + 1 or self.in_flight_count < record_locks_max:
            return True
        return self.make_room() and self.can_acquire(record_locks_max)

    def acquire(
        self, member_id: str, fetched: Fetched, limits: Limits, settings: DeliverySettings, now_ms: int
    ) -> list[Acquired]:
        """Acquire records for a member until the lock duration has passed."""
        if not fetched.batches or fetched.batches[-1][1] < self.start_offset:
            return []
        return Acquisition(self, member_id, fetched, limits, settings, now_ms).run()

    # -- acknowledging ------------------------------------------------------------------------------------------

    def acknowledge(
        self, member_id: str, batches: Sequence[Acknowledged], settings: DeliverySettings, now_ms: int
    ) -> Change:
        """Change the state of records that the member has acquired: all batches or none. Raises Refused.

        A renewed lock stays renewed also if a later batch is refused, as in Kafka.
        """
        change = Change()
        try:
            for batch in batches:
                if not all(0 <= each <= RENEW for each in batch.types):
                    raise _invalid_request(f"Invalid acknowledge type: {list(batch.types)}")
                if batch.last_offset >= self.start_offset:
                    by = _Acknowledgement(member_id, batch, settings, now_ms, change)
                    for found in self._acknowledgeable(batch.first_offset, batch.last_offset):
                        self._acknowledge(found, by)
        except Refused:
            self._undo(change)
            raise
        return self._complete(change)

    def _acknowledgeable(self, first_offset: int, last_offset: int) -> Sequence[InFlightBatch]:
        """The batches in flight, from the last one that does not begin above the first offset."""
        floor = self.batches.floor(first_offset)
        if floor < 0 and first_offset < self.start_offset:
            floor = self.batches.floor(self.start_offset)
        if floor < 0:
            raise _invalid("Batch record not found. The request batch offsets are not found in the cache.")
        found = self.batches.between(self.batches[floor].first_offset, last_offset)
        for offset, name in ((first_offset, "first"), (last_offset, "last")):
            if found[-1].last_offset < offset:
                raise _invalid_request(
                    f"Batch record not found. The {name} offset in request is past acquired records."
                )
        return [batch for batch in found if batch.last_offset >= self.start_offset]

    def _acknowledge(self, found: InFlightBatch, by: _Acknowledgement) -> None:
        """Acknowledge the offsets of a batch in flight that are in the request."""
        first_offset, last_offset, types = by.batch
        if found.offsets is None:
            if found.state.state is not RecordState.ACQUIRED:
                raise _invalid("The batch cannot be acknowledged. The batch is not in the acquired state.")
            if found.state.member_id != by.member_id:
                raise _invalid("Member is not the owner of batch record")
            is_whole = first_offset <= found.first_offset and found.last_offset <= last_offset
            if not is_whole or len(types) > 1 or found.first_offset < self.start_offset:
                self.batches.split(found)
        for state, first, last in found.states(max(first_offset, self.start_offset), last_offset):
            if state.state is not RecordState.ACQUIRED:
                raise _invalid("The offset cannot be acknowledged. The offset is not acquired.")
            if state.member_id != by.member_id:
                raise _invalid("Member is not the owner of offset")
            kind = types[first - first_offset] if len(types) > 1 else types[0]
            if kind == RENEW:
                self._renew(state, first, last, by)
            else:
                is_dead_letter = kind == REJECT and by.settings.dead_letter_topic
                new = RecordState.ARCHIVING if is_dead_letter else _STATES[kind]
                self._change(by.change, state, first, last, new, by.settings, _ENDINGS[kind])

    def _renew(self, state: InFlightState, first_offset: int, last_offset: int, by: _Acknowledgement) -> None:
        if not by.settings.renew_acknowledge:
            raise _invalid("Renewing acquisition locks is not enabled for the group.")
        self.unlock(state)
        expires_ms = by.now_ms + by.settings.record_lock_duration_ms
        state.lock = AcquisitionLock(by.member_id, first_offset, last_offset, expires_ms, 1)
        self.locks.add(state.lock)

    # -- the end of sessions and locks --------------------------------------------------------------------------

    def release(self, member_id: str, settings: DeliverySettings) -> Change | None:
        """Release all records that the member has acquired, because its share session ends."""
        change = Change()
        for lock in self.locks.of(member_id):
            for state, first, last in self._locked(lock):
                self._change(change, state, first, last, self._released(last), settings, Ending.SESSION_ENDED)
        return self._complete(change) if change.batches else None

    def expire(self, now_ms: int, settings: DeliverySettings) -> Change | None:
        """Release the records whose lock has run out. They are available at once, whatever becomes of the write."""
        change = Change()
        while (lock := self.locks.pop_expired(now_ms)) is not None:
            for state, first, last in self._locked(lock):
                self.lock_timeouts += last - first + 1
                new, ending = self._released(last), Ending.LOCK_EXPIRED
                self._change(change, state, first, last, new, settings, ending, at_once=True)
                self.unlock(state)
                if state.state is RecordState.AVAILABLE:
                    self.batches.set_available(first, last)
        return self._complete(change) if change.batches else None

    def next_expiry_ms(self) -> int | None:
        """When the first lock runs out."""
        return self.locks.next_expiry_ms()

    def _locked(self, lock: AcquisitionLock) -> Iterator[tuple[InFlightState, int, int]]:
        """The acquired records with a lock: state, first offset, last offset."""
        for batch in self.batches.overlapping(lock.first_offset, lock.last_offset):
            is_acquired = batch.offsets is None and batch.state.state is RecordState.ACQUIRED
            if is_acquired and batch.first_offset < self.start_offset <= batch.last_offset:
                # The records below the start offset are archived, the others are available again.
                self.batches.split(batch)
            for state, first, last in batch.states(lock.first_offset, lock.last_offset):
                if state.lock is lock and state.state is RecordState.ACQUIRED:
                    yield state, first, last

    def _released(self, last_offset: int) -> RecordState:
        return RecordState.ARCHIVED if last_offset < self.start_offset else RecordState.AVAILABLE

    # -- changes ------------------------------------------------------------------------------------------------

    def archive(self, letters: Sequence[DeadLetters]) -> Change | None:
        """Archive records after the attempt to write them to the dead-letter queue, successful or not.

        They are archived at once, also if the write fails.
        """
        change = Change()
        for first, last, count, _ in letters:
            if self.archive_range(first, last, RecordState.ARCHIVING):
                change.batches.append(StateBatch(first, last, RecordState.ARCHIVED, count))
        return self._complete(change) if change.batches else None

    def commit(self, change: Change) -> bool:
        """End the transition of a change that is written. Return whether the start offset has moved."""
        for state, (first, last, _, _) in zip(change.transitions, change.batches, strict=False):
            state.rollback = None
            self.unlock(state)
            if state.state is RecordState.AVAILABLE:
                self.batches.set_available(first, last)
        return self.move_start()

    def roll_back(self, change: Change) -> bool:
        """Undo a change that could not be written. Records whose lock has run out meanwhile become available.

        Return whether the start offset has moved: a change that has taken effect stays (see `Change`).
        """
        self._undo(change)
        return not change.transitions and self.move_start()

    def _undo(self, change: Change) -> None:
        for state, (first, last, written, _) in zip(change.transitions, change.batches, strict=False):
            assert state.rollback is not None
            member_id, delivery_count_limit = state.rollback
            state.rollback = None
            if state.is_final:
                continue
            if state.lock is None or not state.lock.has_expired:
                state.state, state.member_id = RecordState.ACQUIRED, member_id
            else:
                self.unlock(state)
                state.leave(RecordState.AVAILABLE, delivery_count_limit, False, Ending.LOCK_EXPIRED)
                if state.state is RecordState.AVAILABLE:
                    self.batches.set_available(first, last)
                    self.archive_range(first, min(last, self.start_offset - 1), RecordState.AVAILABLE)
            is_complete, was_complete = state.state in TERMINAL, written in TERMINAL
            self.delivery_complete_count += (is_complete - was_complete) * self.counted(first, last)

    def _change(
        self,
        change: Change,
        state: InFlightState,
        first_offset: int,
        last_offset: int,
        new: RecordState,
        settings: DeliverySettings,
        ending: Ending,
        *,
        at_once: bool = False,
    ) -> None:
        """Change the state of acquired records. Unless this takes effect at once, they keep the lock until it is written."""
        if not at_once:
            state.rollback = (state.member_id, settings.delivery_count_limit)
            change.transitions.append(state)
        state.leave(new, settings.delivery_count_limit, bool(settings.dead_letter_topic), ending)
        count = state.delivery_count
        change.batches.append(StateBatch(first_offset, last_offset, state.state, count))
        if state.state in TERMINAL:
            self.delivery_complete_count += self.counted(first_offset, last_offset)
        elif state.state is RecordState.ARCHIVING:
            message = REJECTED if new is RecordState.ARCHIVING else EXCEEDED
            change.dead_letters.append(DeadLetters(first_offset, last_offset, count, message))

    def _complete(self, change: Change) -> Change:
        change.stored = StoredState(
            state_epoch=self.state_epoch,
            start_offset=self.start_offset,
            delivery_complete_count=self.delivery_complete_count,
        )
        return change

    # -- views --------------------------------------------------------------------------------------------------

    def describe(self, offset: int) -> InFlight | None:
        """The state of one record. None if the record is not in flight."""
        return next(self._views(self.batches.states(offset, offset)), None)

    def in_flight(self) -> Iterator[InFlight]:
        """The records in flight by ascending offset, adjacent records of one batch with the same state as one."""
        for batch in self.batches:
            views = self._views(batch.states(batch.first_offset, batch.last_offset))
            for _, group in groupby(views, key=itemgetter(slice(2, None))):
                same = list(group)
                yield same[0]._replace(last_offset=same[-1].last_offset)

    def _views(self, states: Iterable[tuple[InFlightState, int, int]]) -> Iterator[InFlight]:
        for state, first, last in states:
            is_passed = state.is_done and last < self.start_offset
            is_acquired = state.state is RecordState.ACQUIRED
            if not is_passed:
                is_held = is_acquired or state.rollback is not None
                yield InFlight(
                    first,
                    last,
                    state.state,
                    state.delivery_count,
                    state.member_id if is_held else NO_MEMBER,
                    None if state.lock is None else state.lock.expires_ms,
                    state.rollback is not None,
                    NO_MEMBER if is_held else state.member_id,
                    None if is_acquired else state.ending,
                )


class _Acknowledgement(NamedTuple):
    """One acknowledgement batch of a request."""

    member_id: str
    batch: Acknowledged
    settings: DeliverySettings
    now_ms: int
    change: Change


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.invalid_record_state, message)


def _invalid_request(message: str) -> Refused:
    return Refused(ErrorCode.invalid_request, message)
