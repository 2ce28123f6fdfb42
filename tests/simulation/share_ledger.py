"""What the members of a share group acknowledged and what they got, and the checks of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from broker.share.state import TERMINAL, RecordState, StoredState
from tests.simulation.ledger import Broken


class Place(NamedTuple):
    """A partition of one incarnation of a topic."""

    topic: str
    topic_id: UUID
    partition: int


class Delivery(NamedTuple):
    """One record that a member has acquired."""

    delivery_count: int
    sent: int
    """Number of the ShareFetch request."""
    acquired_ms: int
    """Time at which the request was sent, in the clock domain of groups: the lock does not begin before."""
    is_control: bool


@dataclass(slots=True)
class OfPartition:
    """The acknowledgements and deliveries of one partition, by offset."""

    accepted: dict[int, int] = field(default_factory=dict)
    """Number of the first request that was sent after the response to the acknowledgement."""
    rejected: set[int] = field(default_factory=set)
    """Rejected, and the response had no error."""
    maybe_accepted: set[int] = field(default_factory=set)
    """The request was not refused: it was carried out, or its outcome is not known."""
    maybe_rejected: set[int] = field(default_factory=set)
    delivered: set[int] = field(default_factory=set)
    """Acquired, as a member's response says."""
    acquired: Counter[int] = field(default_factory=Counter)
    """How often a leader has acquired the record for a member, which may not have got the response."""
    not_in_queue: set[int] = field(default_factory=set)
    """Dead letters that could not be written, as the broker's log says."""
    log_start: int = 0
    """The highest log start at which a leader has served the group. The records below it were deleted, and the start
    offset may have passed them, even if a crash has undone the deletion: then acknowledgements of them are ignored,
    without an error, and their states are not stored any more. As in Kafka."""


class ShareLedger:
    """The members of one group write it, and the checks at the end of a run read it."""

    def __init__(
        self, group_id: str, *, delivery_count_limit: int, lock_ms: int, dead_letter_topic: str
    ) -> None:
        self.group_id = group_id
        self.lock_ms = lock_ms
        self.delivery_count_limit = delivery_count_limit
        self.dead_letter_topic = dead_letter_topic
        """Empty if the group has no dead-letter queue."""
        self.places: dict[Place, OfPartition] = {}
        self.resets = False
        """Whether an administrator moves the start offsets: then records are delivered again, or never."""
        self._requests = 0

    def at(self, place: Place) -> OfPartition:
        return self.places.setdefault(place, OfPartition())

    def next_request(self) -> int:
        self._requests += 1
        return self._requests

    def delivered(self, place: Place, offset: int, delivery: Delivery) -> None:
        """Note a delivery. Raises ``Broken`` if the record had been accepted when the request was sent."""
        known = self.at(place)
        if not 1 <= delivery.delivery_count <= self.delivery_count_limit:
            raise Broken(
                f"{self.group_id}: {place} {offset} is delivered with the count {delivery.delivery_count}, "
                f"the limit is {self.delivery_count_limit}"
            )
        was_accepted = known.accepted.get(offset, delivery.sent + 1) <= delivery.sent
        if was_accepted and offset >= known.log_start and not self.resets:
            raise Broken(f"{self.group_id}: {place} {offset} is delivered again, although it was accepted")
        known.delivered.add(offset)

    def accepted(self, place: Place, offsets: Iterable[int]) -> None:
        following = self._requests + 1
        for offset in offsets:
            self.at(place).accepted.setdefault(offset, following)

    # ---- at the end

    def check(
        self, place: Place, stored: StoredState, visible: Collection[int], aborted: Collection[int]
    ) -> None:
        """Compare with the state at the share coordinator.

        ``visible``: the offsets that the group may get, from the log start on. ``aborted``: the offsets of aborted
        transactions, for a group that reads committed records only.
        """
        known = self.at(place)
        leaked = sorted(known.delivered.intersection(aborted))
        if leaked:
            raise Broken(f"{self.group_id}: {place}: records of aborted transactions are delivered: {leaked}")
        if self.resets:
            return
        states = {
            offset: each.state
            for each in stored.batches
            for offset in range(max(each.first_offset, stored.start_offset), each.last_offset + 1)
        }
        for offset in visible:
            if offset < known.log_start:
                continue
            passed = offset < stored.start_offset
            state = states.get(offset, RecordState.AVAILABLE)
            at_limit = known.acquired[offset] >= self.delivery_count_limit
            accepted, rejected = offset in known.maybe_accepted, offset in known.maybe_rejected
            if offset in known.accepted and not passed and state != RecordState.ACKNOWLEDGED:
                raise Broken(f"{self.group_id}: {place} {offset} was accepted, and its state is {state!r}")
            if state == RecordState.ACKNOWLEDGED and not accepted:
                raise Broken(f"{self.group_id}: {place} {offset} is acknowledged, but nobody has accepted it")
            if (passed or state in TERMINAL) and not (accepted or rejected or at_limit):
                raise Broken(
                    f"{self.group_id}: {place} {offset} is skipped; it was acquired {known.acquired[offset]} times"
                )

    def check_dead_letters(self, place: Place, queued: Collection[int]) -> None:
        """``queued``: the offsets in the dead-letter queue."""
        known = self.at(place)
        missing = known.rejected - set(queued) - known.not_in_queue
        lost = sorted(offset for offset in missing if offset >= known.log_start)
        if lost:
            raise Broken(f"{self.group_id}: {place}: rejected, but not in the dead-letter queue: {lost}")
        for offset in queued:
            if offset not in known.maybe_rejected and known.acquired[offset] < self.delivery_count_limit:
                raise Broken(
                    f"{self.group_id}: {place} {offset} is in the dead-letter queue, but it was acquired only "
                    f"{known.acquired[offset]} times, and nobody has rejected it"
                )
