"""Who moves the broker's clocks in a run, and when: where a real cluster would wait for what a dead instance has left."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from odradek.certify.jobs.job import Job
from odradek.certify.runs.cluster import Cluster
from odradek.certify.runs.idleness import Idleness
from odradek.certify.runs.observation import Observation
from odradek.words import Domain

LEFT_S: Final = 0.5
"""A transaction that no request carries on for so long was left, if there is reason to think so."""
EXPIRES: Final = "8d"
"""Longer than transactional.id.expiration.ms."""
_CHECKS_MS: Final = 11_000
"""A coordinator looks for transactions that have timed out every ten seconds."""
_TRANSACTION_MS: Final = 60_000


class Timekeeping:
    """The clocks of one run.

    ``expelled``: how many members a fault has told that they are none. ``note`` takes a sentence for each move.
    """

    def __init__(
        self,
        cluster: Cluster,
        job: Job,
        expelled: Callable[[], int],
        note: Callable[[str], object],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._moves_time, self._broker, self._job = cluster.moves_time, cluster.handle, job
        self._observation = Observation(cluster.handle)
        self._expelled, self._note = expelled, note
        self._sessions_over = self._transactions_over = 0
        """How many instances were gone when the clocks were moved for them."""
        self._waits_seen: set[int] = set()
        self._idleness = Idleness(now_s)
        self._ended_once: set[tuple[str, int]] = set()
        self.was_moved = False

    # -- by themselves ---------------------------------------------------------------------------------------------

    def keep(self) -> None:
        """What a dead instance leaves behind lasts until a time-out; the clock goes there once another one waits for it.

        A member that died, or was told that it is none, is one until its session times out: who joins waits for it, and the
        other members wait for its partitions where none will come in its place. Offsets of its open transaction are pending
        until that times out, unless a producer with the same id comes first: a client whose producer starts with the first
        record only has to wait for them (KIP-447). To be called all the time.
        """
        if not self._moves_time:
            return
        dead = self._dead
        if self._gone > self._sessions_over and (
            self._is_join_waiting() or self._are_partitions_waited_for()
        ):
            self._sessions_over = self._gone
            self.time_out_sessions()
        if dead > self._transactions_over and self._are_offsets_waited_for():
            self._transactions_over = dead
            self.time_out_transactions()

    def ends_rest(self) -> bool:
        """The job asks for nothing more: the clocks go on to what a cluster would do of itself. False if there is nothing.

        The group takes the partitions of a dead member from it, also where no other one comes, and where a client of a
        living process died or was closed without a word (Kafka Streams' threads do so); the coordinator ends transactions.
        """
        if not self._moves_time:
            return False
        gone = self._gone
        # A leader that died while it joined leads the generation: the others wait for its assignment.
        waits = self._observation.unanswered("JoinGroup") | self._observation.unanswered("SyncGroup")
        if gone > self._sessions_over or waits - self._waits_seen:
            self._sessions_over = gone
            self._waits_seen |= waits
            self.time_out_sessions()
            return True
        return self.ends_open_transactions(are_left=True)  # what asks for nothing carries none on

    def ends_open_transactions(self, *, are_left: bool = False) -> bool:
        """The job has done its work. What it left open the coordinator ends: the clock goes there.

        False if nothing is open, if it outlived its time-out, or if a request may carry it on (not where ``are_left``).
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
        """No time-out is ahead for which the clocks would be moved: none of a dead member, none of an open transaction."""
        waits = self._observation.unanswered("JoinGroup") | self._observation.unanswered("SyncGroup")
        is_over = self._gone <= self._sessions_over
        return is_over and not waits and not self._observation.open_transactions()

    # -- at once ---------------------------------------------------------------------------------------------------

    def time_out_transactions(self) -> None:
        longest_ms = max(
            (each.timeout_ms for each in self._observation.open_transactions()), default=_TRANSACTION_MS
        )
        self._advance("transactions", longest_ms + _CHECKS_MS)

    def time_out_sessions(self) -> None:
        self._advance("groups", 1000 + self._observation.session_timeout_ms())

    def expire_ids(self) -> None:
        self._broker.clock.advance(EXPIRES, only=["ids"])
        self.was_moved = True
        self._note(f"the clock of transactional ids is {EXPIRES} ahead")

    def _advance(self, domain: Domain, by_ms: int) -> None:
        self._broker.clock.advance(by_ms, only=[domain])
        self.was_moved = True
        self._note(f"the clock of {domain} is moved by {by_ms} ms")

    # -- what is waited for ----------------------------------------------------------------------------------------

    @property
    def _dead(self) -> int:
        return len(self._job.exits) + self._job.kills

    @property
    def _gone(self) -> int:
        return self._dead + self._expelled()

    def _is_join_waiting(self) -> bool:
        return bool(self._observation.unanswered("JoinGroup"))

    def _are_partitions_waited_for(self) -> bool:
        """Nothing starts in place of one that died, and the others have nothing to do."""
        return self._job.given_up > 0 and self._is_nothing_carried_on()

    def _are_offsets_waited_for(self) -> bool:
        """A consumer asks again and again for offsets of a transaction that no request carries on."""
        return self._observation.are_offsets_pending() and self._is_nothing_carried_on()

    def _is_nothing_carried_on(self) -> bool:
        return self._idleness.lasts_s(self._observation.newest_in_transaction()) > LEFT_S
