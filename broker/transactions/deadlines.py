"""Time of the next work for the coordinator's periodic jobs: a clock that is advanced can skip rounds without work."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from broker.clock import Clock, Domain
from protocol.records.transaction_log import TIMEOUT_NEVER_MS

if TYPE_CHECKING:
    from broker.transactions.shard import TransactionShard


def first_timeout_ms(shards: Collection[TransactionShard], clock: Clock) -> int | None:
    """Time at which the first open transaction will time out, as of now; None if no open transaction can time out."""
    waits = (
        txn.start_ms + txn.timeout_ms + 1 - clock.now_for(txn.start_ms, Domain.TRANSACTIONS)
        for shard in shards
        for txn in (shard.entries[open_id].txn for open_id in shard.open_ids)
        if txn.timeout_ms != TIMEOUT_NEVER_MS
    )
    wait_ms = min(waits, default=None)
    return None if wait_ms is None else clock.now_ms(Domain.TRANSACTIONS) + wait_ms


def first_expiry_ms(shards: Collection[TransactionShard], clock: Clock, expiration_ms: int) -> int | None:
    """Time at which the first transactional id will expire, as of now; None if there are no ids."""
    waits = (
        txn.last_update_ms + expiration_ms - clock.now_for(txn.last_update_ms, Domain.IDS)
        for shard in shards
        for txn in (entry.txn for entry in shard.entries.values())
    )
    wait_ms = min(waits, default=None)
    return None if wait_ms is None else clock.now_ms(Domain.IDS) + wait_ms
