"""What the coordinator does of itself: it aborts transactions that are open for too long and forgets idle ids.

Kafka schedules these as ``transaction-abort`` and ``transactionalId-expiration``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broker.clock import Clock, Domain, Periodic, Timer
from broker.logging import get_logger
from broker.transactions import state as rules
from broker.transactions.answering import Done
from broker.transactions.deadlines import first_expiry_ms, first_timeout_ms
from broker.transactions.home import Entry, Home
from broker.transactions.homes import Homes
from broker.transactions.state import State
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.config import BrokerConfig

log_events = get_logger()


class Abort(NamedTuple):
    """An open transaction that the coordinator itself ends."""

    home: Home
    entry: Entry
    then: Done
    """Hears the outcome."""
    again: Callable[[int], object]
    """Decides anew with a producer id, where the epochs are used up and ``fresh_producer_id`` is None."""
    fresh_producer_id: int | None


class Cleanup:
    """Both jobs, for all ids that this node coordinates."""

    def __init__(
        self, config: BrokerConfig, clock: Clock, homes: Homes, abort: Callable[[Abort], object]
    ) -> None:
        self._config = config
        self._clock = clock
        self._homes = homes
        self._abort = abort
        self._timers: list[Timer] = []

    def start(self) -> None:
        config, clock, homes = self._config, self._clock, self._homes
        abort_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        remove_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms

        def first_timeout() -> int | None:
            return first_timeout_ms(homes.open(), clock)

        def first_expiry() -> int | None:
            return first_expiry_ms(homes.open(), clock, config.transactional_id_expiration_ms)

        self._timers = [
            Periodic(clock, abort_ms, self.abort_timed_out, Domain.TRANSACTIONS, first_timeout),
            Periodic(clock, remove_ms, self.remove_expired, Domain.IDS, first_expiry),
        ]

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()

    def abort_timed_out(self) -> None:
        """Abort what has been open for longer than its producer allowed; the epoch fences the producer."""
        for home in self._homes.open():
            for transactional_id in tuple(home.open_ids):
                self._abort_if_timed_out(home, transactional_id)

    def _abort_if_timed_out(
        self, home: Home, transactional_id: str, fresh_producer_id: int | None = None
    ) -> None:
        entry = home.entries.get(transactional_id)
        if entry is None or not home.is_current:
            return
        now_ms = self._clock.now_for(entry.txn.start_ms, Domain.TRANSACTIONS)
        if not rules.is_timed_out(entry.txn, entry.pending, now_ms):
            return
        if fresh_producer_id is None:
            log_events.info("transaction timed out", transactional_id=transactional_id)
        again = partial(self._abort_if_timed_out, home, transactional_id)
        # Whatever is in the way, the next round looks again.
        self._abort(Abort(home, entry, lambda outcome: None, again, fresh_producer_id))

    def remove_expired(self) -> None:
        """Forget ids that have been idle for ``transactional.id.expiration.ms``, with a tombstone each."""
        expiration_ms = self._config.transactional_id_expiration_ms
        for home in self._homes.open():
            for transactional_id, entry in tuple(home.entries.items()):
                now_ms = self._clock.now_for(entry.txn.last_update_ms, Domain.IDS)
                if rules.is_expired(entry.txn, entry.pending, now_ms, expiration_ms):
                    _expire(home, transactional_id, entry, self._clock.now_ms())


def _expire(home: Home, transactional_id: str, entry: Entry, now_ms: int) -> None:
    entry.pending = State.DEAD

    def appended(error: ErrorCode) -> None:
        entry.pending = None
        if error is ErrorCode.none:
            home.entries.pop(transactional_id, None)

    home.forget(transactional_id, now_ms, appended)
