"""How far a follower has come, as its leader knows it. Pure; Kafka's counterpart is ``Replica``."""

from __future__ import annotations

from typing import Final

from protocol.slotted import slotted

UNKNOWN: Final = -1


@slotted
class Progress:
    """All of it follows from the offsets that the follower asked for, and from when it did."""

    log_end_offset: int = UNKNOWN
    log_start_offset: int = UNKNOWN
    last_caught_up_ms: int = 0
    """When it last had all that the leader had."""
    last_fetch_ms: int = 0
    leader_end_at_last_fetch: int = UNKNOWN
    broker_epoch: int | None = None
    """Of the registration in which it last fetched; None: it has not, or could not be in sync then."""

    def note_fetch(
        self, fetch_offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int
    ) -> None:
        """It asked for what follows ``fetch_offset``, so it has all before.

        Who has now what the leader had at the question before was caught up then: a follower that is always one batch
        behind a busy leader is in sync.
        """
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self.leader_end_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.leader_end_at_last_fetch = leader_end_offset
        self.last_fetch_ms = now_ms

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_max_ms: int) -> bool:
        """Whether it has all, or had all not too long ago."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_max_ms

    def begin_epoch(self, leader_end_offset: int, now_ms: int, *, new_leader: bool, in_sync: bool) -> None:
        """A leader epoch begins. A new leader knows nothing yet, and gives those in sync their time."""
        self.last_caught_up_ms = now_ms if in_sync else 0
        if new_leader:
            self.log_end_offset = self.log_start_offset = self.leader_end_at_last_fetch = UNKNOWN
            self.last_fetch_ms = 0
            self.broker_epoch = None
        else:
            self.leader_end_at_last_fetch = leader_end_offset
            self.last_fetch_ms = now_ms if in_sync else 0
