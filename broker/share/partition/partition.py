"""One share partition (KIP-932) as a state machine, as Kafka's SharePartition. Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from broker.share.state import StoredState

from .values import Acknowledged, Acquired, Change, DeadLetters, DeliverySettings, Fetched, InFlight, Limits


class SharePartition:
    """The records of a topic partition that one share group has in flight, from the start offset to the end offset."""

    __slots__ = ("delivery_complete_count", "end_offset", "start_offset", "state_epoch")

    def __init__(self) -> None:
        self.start_offset = 0
        self.end_offset = 0
        """Last offset that was acquired; the next offset to fetch if nothing is in flight."""
        self.state_epoch = 0
        self.delivery_complete_count = 0
        """Number of records in flight that are acknowledged or archived."""

    def load(self, stored: StoredState, settings: DeliverySettings) -> Change | None:
        """Take over the stored state, whose start offset must be set.

        Return a change if records were being written to the dead-letter queue: it needs no write and no commit. Raises
        ValueError if the batches are below the start offset.
        """
        raise NotImplementedError

    def next_fetch_offset(self) -> int:
        """The offset from which to read the log: the first record that is available again, or the first new one."""
        raise NotImplementedError

    def can_acquire(self, record_locks_max: int) -> bool:
        """Whether there are records to deliver again, or room for new ones."""
        raise NotImplementedError

    def acquire(
        self, member_id: str, fetched: Fetched, limits: Limits, settings: DeliverySettings, now_ms: int
    ) -> list[Acquired]:
        """Acquire records for a member until the lock duration has passed."""
        raise NotImplementedError

    def acknowledge(
        self, member_id: str, batches: Sequence[Acknowledged], settings: DeliverySettings, now_ms: int
    ) -> Change:
        """Change the state of records that the member has acquired: all batches or none. Raises Refused."""
        raise NotImplementedError

    def release(self, member_id: str, settings: DeliverySettings) -> Change | None:
        """Release all records that the member has acquired, because its share session ends."""
        raise NotImplementedError

    def expire(self, now_ms: int, settings: DeliverySettings) -> Change | None:
        """Release the records whose lock has run out. They are available at once, whatever becomes of the write."""
        raise NotImplementedError

    def next_expiry_ms(self) -> int | None:
        """When the first lock runs out."""
        raise NotImplementedError

    def archive(self, letters: Sequence[DeadLetters]) -> Change | None:
        """Archive records after the attempt to write them to the dead-letter queue, successful or not."""
        raise NotImplementedError

    def commit(self, change: Change) -> bool:
        """End the transition of a change that is written. Return whether the start offset has moved."""
        raise NotImplementedError

    def roll_back(self, change: Change) -> bool:
        """Undo a change that could not be written. Records whose lock has run out meanwhile become available.

        Return whether the start offset has moved: locks that have run out end also without the write.
        """
        raise NotImplementedError

    def advance_start(self, log_start_offset: int) -> None:
        """Move the start offset to the log start offset, and archive available records below it."""
        raise NotImplementedError

    def describe(self, offset: int) -> InFlight | None:
        """The state of one record. None if the record is not in flight."""
        raise NotImplementedError

    def in_flight(self) -> Iterator[InFlight]:
        """The records in flight by ascending offset, adjacent records of one batch with the same state as one."""
        raise NotImplementedError
