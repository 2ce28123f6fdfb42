"""When a transaction times out, and when a transactional id expires."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from broker.transactions.deadlines import first_timeout_ms
from broker.transactions.decisions import is_expired, is_timed_out
from broker.transactions.entry import Entry
from broker.transactions.shard import TransactionShard
from broker.transactions.transaction import Transaction, TransactionState
from protocol.records.transaction_log import TIMEOUT_NEVER_MS
from tests.support.clock import FakeClock

SETTLED = [TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT]


def known(state: TransactionState, **more) -> Transaction:
    fields = {"timeout_ms": 60, "start_ms": 1_000, "last_update_ms": 5_000}
    return Transaction("tx", 7, epoch=1, state=state, **{**fields, **more})


@pytest.mark.parametrize(("now_ms", "is_over"), [(1_059, False), (1_060, False), (1_061, True)])
def test_the_timeout_counts_from_the_first_partition_and_not_from_the_last_update(now_ms, is_over):
    assert is_timed_out(known(TransactionState.ONGOING), None, now_ms) is is_over


@pytest.mark.parametrize(
    "state", [state for state in TransactionState if state is not TransactionState.ONGOING]
)
def test_only_an_open_transaction_times_out(state):
    assert not is_timed_out(known(state), None, 10**12)


@pytest.mark.parametrize("pending", list(TransactionState))
def test_nothing_times_out_while_an_append_is_under_way(pending):
    assert not is_timed_out(known(TransactionState.ONGOING), pending, 10**12)


def test_a_two_phase_commit_never_times_out():
    assert TIMEOUT_NEVER_MS == 2**31 - 1
    assert not is_timed_out(known(TransactionState.ONGOING, timeout_ms=TIMEOUT_NEVER_MS), None, 10**13)


def test_a_clock_that_is_advanced_skips_the_rounds_of_a_two_phase_commit():
    """After 25 days each check of the timeouts would otherwise have work, every ten seconds."""
    txns = [known(TransactionState.ONGOING, timeout_ms=timeout_ms) for timeout_ms in (TIMEOUT_NEVER_MS, 60)]
    shards = [
        cast(TransactionShard, SimpleNamespace(open_ids=["tx"], entries={"tx": Entry(txn)})) for txn in txns
    ]
    assert first_timeout_ms(shards[:1], FakeClock()) is None
    assert first_timeout_ms(shards, FakeClock()) == 1_061


@pytest.mark.parametrize("state", SETTLED)
@pytest.mark.parametrize(("now_ms", "is_over"), [(5_099, False), (5_100, True), (5_101, True)])
def test_an_id_expires_after_its_last_update(state, now_ms, is_over):
    assert is_expired(known(state), None, now_ms, 100) is is_over


@pytest.mark.parametrize("state", [state for state in TransactionState if state not in SETTLED])
def test_an_id_in_a_transaction_does_not_expire(state):
    assert not is_expired(known(state), None, 10**12, 100)


@pytest.mark.parametrize("pending", list(TransactionState))
@pytest.mark.parametrize("state", SETTLED)
def test_nothing_expires_while_an_append_is_under_way(state, pending):
    assert not is_expired(known(state), pending, 10**12, 100)
