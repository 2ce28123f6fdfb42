"""Advance the broker's clocks during a run, where a real cluster would wait for the timeouts of a dead instance."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from odradek.certify.jobs.job import Job
from odradek.certify.runs.cluster import Cluster
from odradek.certify.runs.idleness import Idleness
from odradek.certify.runs.observation import Observation
from odradek.certify.services.service import Services
from odradek.words import Domain

LEFT_S: Final = 0.5
"""A transaction with no request for this many seconds is abandoned if, for instance, an instance has died too."""
EXPIRES: Final = "8d"
"""A duration longer than transactional.id.expiration.ms."""
_CHECKS_MS: Final = 11_000
"""Interval at which a coordinator checks for timed-out transactions (ten seconds), and a margin."""
_TRANSACTION_MS: Final = 60_000


class Timekeeping:
    """The control of the broker's clocks in one run.

    ``expelled`` returns the number of members that a fault has rejected as unknown. ``note`` is called for each advance.
    """

    def __init__(
        self,
        cluster: Cluster,
        job: Job,
        expelled: Callable[[], int],
        note: Callable[[str], object],
        now_s: Callable[[], float] = time.monotonic,
        services: Services | None = None,
    ) -> None:
        self._services = services
        self._moves_time, self._broker, self._job = cluster.moves_time, cluster.handle, job
        self._observation = Observation(cluster.handle)
        self._expelled, self._note = expelled, note
        self._sessions_over = self._transactions_over = 0
        """``_sessions_over``: number of dead instances and rejected members when sessions were last timed out.

        ``_transactions_over``: number of dead instances when transactions were last timed out.
        """
        self._waits_seen: set[int] = set()
        self._idleness, self._deliveries = Idleness(now_s), Idleness(now_s)
        self._ended_once: set[tuple[str, int]] = set()
        self._delivered_seen = 0
        """Trace number of the last delivery of a share group when its locks were last timed out."""
        self.was_moved = False

    # -- automatic advances ----------------------------------------------------------------------------------------

    def keep(self) -> None:
        """Advance a clock past the timeouts of dead instances if another instance waits for them. The caller polls this.

        A member that died, or was rejected as unknown, stays in the group until its session times out. Joining members wait
        for it. If no instance replaces the member, the others wait for its partitions. Offsets of its open transaction stay
        pending until the transaction times out, unless a producer with the same id is initialised first. A client that
        calls InitProducerId only when it has a record to write can only wait for the timeout (KIP-447).
        """
        if not self._moves_time:
            return
        dead = self._dead
        if self._gone > self._sessions_over and (
            self._is_join_waiting() or self._are_partitions_waited_for() or self._is_share_group_idle()
        ):
            self._sessions_over = self._gone
            self.time_out_sessions()
        if dead > self._transactions_over and self._are_offsets_waited_for():
            self._transactions_over = dead
            self.time_out_transactions()

    def ends_rest(self) -> bool:
        """Advance a clock to the next timeout, as real time would while the job is idle.

        Returns False if no timeout is pending.

        After the session timeout the group reassigns the partitions of a dead member, even if no instance replaces
        it, or if only a client inside a living process died (a thread of Kafka Streams). After the transaction
        timeout the coordinator aborts an open transaction.
        """
        if not self._moves_time:
            return False
        gone = self._gone
        # If the group leader died while joining, the others wait for its assignment.
        waits = self._observation.unanswered("JoinGroup") | self._observation.unanswered("SyncGroup")
        if gone > self._sessions_over or waits - self._waits_seen:
            self._sessions_over = gone
            self._waits_seen |= waits
            self.time_out_sessions()
            return True
        delivered = self._observation.newest_delivery()
        if delivered > self._delivered_seen:  # a lost response may have left records locked
            self._delivered_seen = delivered
            self.expire_locks()
            return True
        return self.ends_open_transactions(are_left=True)  # an idle job continues no transaction

    def ends_open_transactions(self, *, are_left: bool = False) -> bool:
        """Advance the clock so that the coordinator aborts transactions that a finished job left open.

        Returns False if no transaction is open, or if each open transaction was already open at an earlier
        advance. Unless ``are_left``, also returns False if the job may still continue one of the transactions.
        """
        if not self._moves_time:
            return False
        left = {
            (each.transactional_id, each.producer_epoch) for each in self._observation.open_transactions()
        }
        if left <= self._ended_once or not (are_left or self._is_nothing_carried_on()):
            return False
        self._ended_once |= left
        self.time_out_transactions()
        return True

    @property
    def owes_nothing(self) -> bool:
        """Whether no timeout is pending: of a dead member, of a join that waits, or of an open transaction."""
        waits = self._observation.unanswered("JoinGroup") | self._observation.unanswered("SyncGroup")
        is_over = self._gone <= self._sessions_over
        return is_over and not waits and not self._observation.open_transactions()

    # -- immediate advances ----------------------------------------------------------------------------------------

    def time_out_transactions(self) -> None:
        longest_ms = max(
            (each.timeout_ms for each in self._observation.open_transactions()), default=_TRANSACTION_MS
        )
        self._advance("transactions", longest_ms + _CHECKS_MS)

    def expire_locks(self) -> None:
        """Advance the clock past the locks of records that share groups have delivered, if there are any."""
        if self._moves_time and self._observation.newest_delivery():
            self._advance("groups", 1000 + self._observation.lock_ms())

    def time_out_sessions(self) -> None:
        self._advance("groups", 1000 + self._observation.session_timeout_ms())

    def expire_ids(self) -> None:
        self._broker.clock.advance(EXPIRES, only=["ids"])
        self._is_moved()
        self._note(f"the clock of transactional ids is advanced by {EXPIRES}")

    def _advance(self, domain: Domain, by_ms: int) -> None:
        self._broker.clock.advance(by_ms, only=[domain])
        self._is_moved()
        self._note(f"the clock of {domain} is advanced by {by_ms} ms")

    def _is_moved(self) -> None:
        self.was_moved = True
        if self._services is not None:
            self._services.follow(self._broker.clock)

    # -- reasons to advance ----------------------------------------------------------------------------------------

    @property
    def _dead(self) -> int:
        return len(self._job.exits) + self._job.kills

    @property
    def _gone(self) -> int:
        return self._dead + self._expelled()

    def _is_join_waiting(self) -> bool:
        return bool(self._observation.unanswered("JoinGroup"))

    def _are_partitions_waited_for(self) -> bool:
        """Whether instances wait for the partitions of a dead instance: none replaces it, and the others are idle."""
        return self._job.given_up > 0 and self._is_nothing_carried_on()

    def _is_share_group_idle(self) -> bool:
        """Whether a share group delivers nothing now: a dead member keeps its partitions until its session times out."""
        delivered = self._observation.newest_delivery()
        return delivered > 0 and self._deliveries.lasts_s(delivered) > LEFT_S

    def _are_offsets_waited_for(self) -> bool:
        """Whether a consumer keeps retrying OffsetFetch because of a transaction that no request continues."""
        return self._observation.are_offsets_pending() and self._is_nothing_carried_on()

    def _is_nothing_carried_on(self) -> bool:
        return self._idleness.lasts_s(self._observation.newest_in_transaction()) > LEFT_S
