"""InitProducerId: the order of its checks, its response in every state, and the computation of epochs."""

from __future__ import annotations

from typing import Any

import pytest

from broker.transactions.decisions import abort_by_coordinator, complete, init_producer_id
from broker.transactions.transaction import (
    NEEDS_PRODUCER_ID,
    AbortFirst,
    Answer,
    Transaction,
    TransactionState,
    Transition,
)
from protocol.errors import ErrorCode

NOW = 1_000
ME = 7
BEFORE = 5
FRESH = 26
NONE = (-1, -1)
SETTLED = [TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT]
ALL_STORED = [
    *SETTLED,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
]


def known(state: TransactionState = TransactionState.EMPTY, epoch: int = 3, **more) -> Transaction:
    fields = {"previous_producer_id": ME, "timeout_ms": 60, "last_update_ms": 10, "client_version": 2}
    partitions = frozenset({("t", 0)}) if state not in SETTLED else frozenset()
    return Transaction("tx", ME, epoch=epoch, state=state, partitions=partitions, **{**fields, **more})


def ask(txn, given=NONE, pending=None, fresh=FRESH, timeout_ms=500):
    return init_producer_id(
        txn,
        pending,
        timeout_ms=timeout_ms,
        producer_id=given[0],
        epoch=given[1],
        now_ms=NOW,
        fresh_producer_id=fresh,
    )


CONCURRENT = Answer(ErrorCode.concurrent_transactions)
FENCED = Answer(ErrorCode.producer_fenced)


@pytest.mark.parametrize("given", [NONE, (ME, 3), (99, 3)])
@pytest.mark.parametrize("pending", list(TransactionState))
@pytest.mark.parametrize("state", ALL_STORED)
def test_while_an_append_is_under_way_every_request_has_to_be_repeated(state, pending, given):
    assert ask(known(state), given, pending) == CONCURRENT


@pytest.mark.parametrize("state", ALL_STORED)
@pytest.mark.parametrize(
    "given", [(99, 3), (99, 32766), (BEFORE, 3), (BEFORE, 32765)], ids=lambda given: f"{given[0]}/{given[1]}"
)
def test_the_producer_id_is_compared_before_the_state_is_looked_at(state, given):
    assert ask(known(state, previous_producer_id=BEFORE), given) == FENCED


@pytest.mark.parametrize("given", [NONE, (ME, 3), (ME, 2), (ME, 9), (BEFORE, 32766), (BEFORE, 32767)])
@pytest.mark.parametrize("state", [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT])
def test_a_decided_transaction_is_waited_for(state, given):
    assert ask(known(state, previous_producer_id=BEFORE), given) == CONCURRENT


@pytest.mark.parametrize("given", [NONE, (ME, 3), (ME, 2), (ME, 9), (BEFORE, 32766), (BEFORE, 32767)])
def test_an_open_transaction_is_aborted_first(given):
    assert ask(known(TransactionState.ONGOING, previous_producer_id=BEFORE), given) == AbortFirst(CONCURRENT)


def test_an_unused_id_accepts_any_producer_id_and_epoch():
    fresh = Transaction("tx", FRESH)
    for given in (NONE, (99, 17), (FRESH, 0)):
        decision = ask(fresh, given)
        assert isinstance(decision, Transition)
        assert decision.answer == Answer(ErrorCode.none, FRESH, 0)
        assert (decision.after.producer_id, decision.after.epoch, decision.after.last_epoch) == (FRESH, 0, -1)


# request epoch (None: not given), last epoch in memory -> new epoch, new last epoch; None: fenced
EPOCHS = [
    pytest.param(None, -1, (4, -1), id="not given: the next epoch, and the last one is forgotten"),
    pytest.param(None, 2, (4, -1), id="not given, a last epoch known"),
    pytest.param(3, -1, (4, 3), id="current: the next epoch, the old one is remembered"),
    pytest.param(3, 2, (4, 3), id="current, a last epoch known"),
    pytest.param(2, 2, (3, 2), id="the last one: a repeated request, no bump"),
    pytest.param(2, -1, None, id="older, no last epoch known"),
    pytest.param(1, 2, None, id="older than the last"),
    pytest.param(4, 2, None, id="newer"),
    pytest.param(32766, 2, None, id="newer by far"),
]


@pytest.mark.parametrize("state", SETTLED)
@pytest.mark.parametrize(("given", "last_epoch", "expected"), EPOCHS)
def test_the_epoch_that_is_given_decides_on_the_next_one(state, given, last_epoch, expected):
    txn = known(state, epoch=3, last_epoch=last_epoch, start_ms=44)
    decision = ask(txn, NONE if given is None else (ME, given))
    if expected is None:
        assert decision == FENCED
        return
    epoch, new_last = expected
    after = txn._replace(
        epoch=epoch,
        last_epoch=new_last,
        state=TransactionState.EMPTY,
        timeout_ms=500,
        start_ms=-1,
        last_update_ms=NOW,
    )
    assert decision == Transition(after, Answer(ErrorCode.none, ME, epoch))


@pytest.mark.parametrize("state", SETTLED)
@pytest.mark.parametrize("epoch", [32766, 32767])
@pytest.mark.parametrize("is_given", [True, False])
def test_a_used_up_producer_id_is_replaced(state, epoch, is_given):
    decision = ask(known(state, epoch=epoch, last_epoch=9), (ME, epoch) if is_given else NONE)
    assert isinstance(decision, Transition)
    after = decision.after
    assert decision.answer == Answer(ErrorCode.none, FRESH, 0)
    assert (after.producer_id, after.epoch, after.previous_producer_id) == (FRESH, 0, ME)
    assert after.last_epoch == (epoch if is_given else -1)
    assert (after.state, after.partitions, after.start_ms) == (TransactionState.EMPTY, frozenset(), -1)


@pytest.mark.parametrize("epoch", [32766, 32767])
@pytest.mark.parametrize("given", [3, 32765])
def test_a_used_up_producer_id_with_another_epoch_is_kafkas_illegal_state(epoch, given):
    assert ask(known(epoch=epoch), (ME, given)) == Answer(ErrorCode.unknown_server_error)


def test_epoch_32765_is_not_used_up():
    decision = ask(known(epoch=32765), fresh=None)
    assert isinstance(decision, Transition)
    assert decision.answer == Answer(ErrorCode.none, ME, 32766)


@pytest.mark.parametrize("given", [NONE, (ME, 32766)])
def test_a_producer_id_is_drawn_only_when_it_is_needed(given):
    assert ask(known(epoch=32766), given, fresh=None) is NEEDS_PRODUCER_ID


def test_a_repeated_rotation_gets_the_same_answer_without_a_bump():
    decision = ask(known(epoch=32766), (ME, 32766))
    assert isinstance(decision, Transition)
    again = ask(decision.after, (ME, 32766), fresh=99)
    assert isinstance(again, Transition)
    assert again.answer == Answer(ErrorCode.none, FRESH, 0)
    assert (again.after.producer_id, again.after.epoch, again.after.last_epoch) == (FRESH, 0, 32766)


def test_a_rotation_is_not_repeated_for_one_who_did_not_give_the_epoch():
    decision = ask(known(epoch=32766))
    assert isinstance(decision, Transition)
    assert ask(decision.after, (ME, 32766)) == FENCED


@pytest.mark.parametrize(
    ("transaction_version", "aborted_epoch", "last_epoch", "client_version"),
    [
        pytest.param(2, 1, 0, 2, id="version 2"),
        pytest.param(1, 1, -1, 0, id="version 1"),
        pytest.param(0, 1, -1, 0, id="version 0"),
    ],
)
def test_an_open_transaction_of_epoch_0_ends_with_epoch_2_for_the_new_instance(
    transaction_version, aborted_epoch, last_epoch, client_version
):
    prepared = abort_by_coordinator(
        known(TransactionState.ONGOING, epoch=0, start_ms=44),
        transaction_version=transaction_version,
        failed_fence=False,
        now_ms=NOW,
    )
    assert isinstance(prepared, Transition)
    after = prepared.after
    assert (after.state, after.epoch, after.last_epoch) == (
        TransactionState.PREPARE_ABORT,
        aborted_epoch,
        last_epoch,
    )
    assert (after.partitions, after.start_ms, after.client_version) == (
        frozenset({("t", 0)}),
        44,
        client_version,
    )
    done = complete(after, NOW)
    retried = ask(done)
    assert isinstance(retried, Transition)
    assert retried.answer == Answer(ErrorCode.none, ME, 2)


def test_a_fence_that_could_not_be_written_bumps_no_second_time():
    fence = abort_by_coordinator(
        known(TransactionState.ONGOING, epoch=5), transaction_version=1, failed_fence=True, now_ms=NOW
    )
    assert isinstance(fence, Transition)
    assert fence.after.epoch == 5


@pytest.mark.parametrize(("epoch", "after"), [(32766, 32767), (32767, 32767)])
def test_a_fence_of_version_1_stops_at_the_last_epoch(epoch, after):
    fence = abort_by_coordinator(
        known(TransactionState.ONGOING, epoch=epoch), transaction_version=1, failed_fence=False, now_ms=NOW
    )
    assert isinstance(fence, Transition)
    assert (fence.after.epoch, fence.after.next_producer_id) == (after, -1)


def test_an_abort_of_version_2_at_the_last_usable_epoch_draws_a_producer_id():
    open_txn = known(TransactionState.ONGOING, epoch=32766)
    arguments: dict[str, Any] = {"transaction_version": 2, "failed_fence": False, "now_ms": NOW}
    assert abort_by_coordinator(open_txn, **arguments) is NEEDS_PRODUCER_ID
    prepared = abort_by_coordinator(open_txn, **arguments, fresh_producer_id=FRESH)
    assert isinstance(prepared, Transition)
    after = prepared.after
    assert (after.producer_id, after.epoch, after.next_producer_id) == (ME, 32767, FRESH)
    assert (complete(after, NOW).producer_id, complete(after, NOW).epoch) == (FRESH, 0)


def test_a_producer_of_version_2_that_timed_out_gets_the_current_epoch():
    prepared = abort_by_coordinator(
        known(TransactionState.ONGOING, epoch=4), transaction_version=2, failed_fence=False, now_ms=NOW
    )
    assert isinstance(prepared, Transition)
    decision = ask(complete(prepared.after, NOW), (ME, 4))
    assert isinstance(decision, Transition)
    assert decision.answer == Answer(ErrorCode.none, ME, 5)


def test_a_producer_of_version_1_that_timed_out_is_fenced():
    prepared = abort_by_coordinator(
        known(TransactionState.ONGOING, epoch=4), transaction_version=1, failed_fence=False, now_ms=NOW
    )
    assert isinstance(prepared, Transition)
    assert ask(complete(prepared.after, NOW), (ME, 4)) == FENCED
