"""How far a follower has replicated the log, as the leader knows it (Kafka: ``Replica``). Pure."""

from __future__ import annotations

from typing import Final

from protocol.slotted import slotted

UNKNOWN: Final = -1


@slotted
class Progress:
    """State of one follower, derived from the offsets and times of its fetches."""

    log_end_offset: int = UNKNOWN
    log_start_offset: int = UNKNOWN
    last_caught_up_ms: int = 0
    """Last time at which the follower had everything up to the leader's log end."""
    last_fetch_ms: int = 0
    leader_end_at_last_fetch: int = UNKNOWN
    broker_epoch: int | None = None
    """Broker epoch of the follower at its last fetch; None before the first fetch, or if the follower could not be
    in the ISR then."""

    def note_fetch(
        self, fetch_offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int
    ) -> None:
        """Record a fetch: the follower has everything before ``fetch_offset``.

        If ``fetch_offset`` is at least the leader's log end at the previous fetch, the follower was caught up at
        the time of the previous fetch. So a follower that is always one batch behind a busy leader counts as
        caught up.
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
        """Whether the follower is at the leader's log end, or was there within the last ``lag_max_ms``."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_max_ms

    def begin_epoch(self, leader_end_offset: int, now_ms: int, *, new_leader: bool, in_sync: bool) -> None:
        """Reset for a new leader epoch. With ``new_leader`` the follower's offsets are unknown until it fetches.

        A follower in the ISR (``in_sync``) counts as caught up now, so that it has ``replica.lag.time.max.ms`` to
        fetch.
        """
        self.last_caught_up_ms = now_ms if in_sync else 0
        if new_leader:
            self.log_end_offset = self.log_start_offset = self.leader_end_at_last_fetch = UNKNOWN
            self.last_fetch_ms = 0
            self.broker_epoch = None
        else:
            self.leader_end_at_last_fetch = leader_end_offset
            self.last_fetch_ms = now_ms if in_sync else 0
