"""What the coordinator does of itself: it aborts transactions that are open for too long and forgets idle ids.

Kafka schedules these as ``transaction-abort`` and ``transactionalId-expiration``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker.clock import Clock, Domain, Periodic, Timer
from broker.coordinator_runtime.runtime import CoordinatorRuntime
from broker.logging import get_logger
from broker.transactions import state as rules
from broker.transactions.callback_errors import Done
from broker.transactions.deadlines import first_expiry_ms, first_timeout_ms
from broker.transactions.shard import Entry, TransactionShard
from broker.transactions.transaction import TransactionState
from protocol.errors import NONE, ErrorCode
from protocol.named_tuple import NamedTuple

if TYPE_CHECKING:
    from broker.config import BrokerConfig

log_events = get_logger()


class Abort(NamedTuple):
    """An open transaction that the coordinator itself ends."""

    shard: TransactionShard
    entry: Entry
    then: Done
    """Hears the outcome."""
    again: Callable[[int], object]
    """Decides anew with a producer id, where the epochs are used up and ``fresh_producer_id`` is None."""
    fresh_producer_id: int | None


class Cleanup:
    """Both jobs, for all ids that this node coordinates."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        runtime: CoordinatorRuntime[TransactionShard],
        abort: Callable[[Abort], object],
    ) -> None:
        self._config = config
        self._clock = clock
        self._runtime = runtime
        self._abort = abort
        self._timers: list[Timer] = []

    def start(self) -> None:
        config, clock, runtime = self._config, self._clock, self._runtime
        abort_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        remove_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms

        def first_timeout() -> int | None:
            return first_timeout_ms(runtime.open(), clock)

        def first_expiry() -> int | None:
            return first_expiry_ms(runtime.open(), clock, config.transactional_id_expiration_ms)

        self._timers = [
            Periodic(clock, abort_ms, self.abort_timed_out, Domain.TRANSACTIONS, first_timeout),
            Periodic(clock, remove_ms, self.remove_expired, Domain.IDS, first_expiry),
        ]

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()

    def abort_timed_out(self) -> None:
        """Abort what has been open for longer than its producer allowed; the epoch fences the producer."""
        for shard in self._runtime.open():
            for transactional_id in tuple(shard.open_ids):
                self._abort_if_timed_out(shard, transactional_id)

    def _abort_if_timed_out(
        self, shard: TransactionShard, transactional_id: str, fresh_producer_id: int | None = None
    ) -> None:
        entry = shard.entries.get(transactional_id)
        if entry is None or not shard.is_current():
            return
        now_ms = self._clock.now_for(entry.txn.start_ms, Domain.TRANSACTIONS)
        if not rules.is_timed_out(entry.txn, entry.pending, now_ms):
            return
        if fresh_producer_id is None:
            log_events.info("transaction timed out", transactional_id=transactional_id)
        again = partial(self._abort_if_timed_out, shard, transactional_id)
        # Whatever is in the way, the next round looks again.
        self._abort(Abort(shard, entry, lambda outcome: None, again, fresh_producer_id))

    def remove_expired(self) -> None:
        """Forget ids that have been idle for ``transactional.id.expiration.ms``, with a tombstone each."""
        expiration_ms = self._config.transactional_id_expiration_ms
        for shard in self._runtime.open():
            for transactional_id, entry in tuple(shard.entries.items()):
                now_ms = self._clock.now_for(entry.txn.last_update_ms, Domain.IDS)
                if rules.is_expired(entry.txn, entry.pending, now_ms, expiration_ms):
                    _expire(shard, transactional_id, entry, self._clock.now_ms())


def _expire(shard: TransactionShard, transactional_id: str, entry: Entry, now_ms: int) -> None:
    entry.pending = TransactionState.DEAD

    def appended(error: ErrorCode) -> None:
        entry.pending = None
        if error is NONE:
            shard.entries.pop(transactional_id, None)

    shard.forget(transactional_id, now_ms, appended)
