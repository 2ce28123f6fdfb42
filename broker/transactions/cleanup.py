"""The coordinator's periodic jobs: abort transactions that have timed out, and remove expired transactional ids.

Kafka schedules them as ``transaction-abort`` and ``transactionalId-expiration``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from broker.clock import Clock, Domain, Periodic, Timer
from broker.coordinator_runtime.runtime import CoordinatorRuntime
from broker.logging import get_logger
from broker.loop.coroutines import start_in_background
from broker.transactions import decisions
from broker.transactions.deadlines import first_expiry_ms, first_timeout_ms
from broker.transactions.entry import Entry
from broker.transactions.records import tombstone_batch
from broker.transactions.shard import TransactionShard
from broker.transactions.transaction import Answer, TransactionState
from protocol.errors import NONE

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.loop.life import NodeLife

Abort = Callable[[TransactionShard, Entry, int | None], Awaitable[Answer | None]]
FreshId = Callable[[], Awaitable[int | None]]

log_events = get_logger()


class Cleanup:
    """The two periodic jobs: abort transactions after their timeout, and remove expired transactional ids."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        life: NodeLife,
        runtime: CoordinatorRuntime[TransactionShard],
        abort: Abort,
        fresh_id: FreshId,
    ) -> None:
        self._config = config
        self._clock = clock
        self._life = life
        self._runtime = runtime
        self._abort = abort
        self._fresh_id = fresh_id
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
        """Abort transactions that are open longer than their producer's timeout. The epoch bump fences the producer."""
        for shard in self._runtime.open():
            for transactional_id in tuple(shard.open_ids):
                start_in_background(self._abort_if_timed_out(shard, transactional_id), self._life)

    async def _abort_if_timed_out(self, shard: TransactionShard, transactional_id: str) -> None:
        """Abort one transaction if it has timed out. After an error the next round of the job tries again."""
        fresh: int | None = None
        while True:
            entry = shard.entries.get(transactional_id)
            if entry is None or not shard.is_current():
                return
            now_ms = self._clock.now_for(entry.txn.start_ms, Domain.TRANSACTIONS)
            if not decisions.is_timed_out(entry.txn, entry.pending, now_ms):
                return
            if fresh is None:
                log_events.info("transaction timed out", transactional_id=transactional_id)
            if await self._abort(shard, entry, fresh) is not None:
                return
            fresh = await self._fresh_id()
            if fresh is None:
                return

    def remove_expired(self) -> None:
        """Remove each transactional id that was idle for ``transactional.id.expiration.ms``, by writing a tombstone."""
        expiration_ms = self._config.transactional_id_expiration_ms
        for shard in self._runtime.open():
            for transactional_id, entry in tuple(shard.entries.items()):
                now_ms = self._clock.now_for(entry.txn.last_update_ms, Domain.IDS)
                if decisions.is_expired(entry.txn, entry.pending, now_ms, expiration_ms):
                    expiry = _expire(shard, transactional_id, entry, self._clock.now_ms())
                    start_in_background(expiry, self._life)


async def _expire(shard: TransactionShard, transactional_id: str, entry: Entry, now_ms: int) -> None:
    entry.pending = TransactionState.DEAD
    error = await shard.write(tombstone_batch(transactional_id, now_ms), transactional_id)
    entry.pending = None
    if error is NONE:
        shard.entries.pop(transactional_id, None)
