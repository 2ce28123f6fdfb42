"""EndTxn: the result in each state, in Kafka's old and new protocol, the order of the checks, the last epoch, and
retries."""

from __future__ import annotations

import pytest

from broker.transactions.decisions import add_partitions, complete, end_v1, end_v2
from broker.transactions.transaction import (
    NEEDS_PRODUCER_ID,
    Answer,
    Transaction,
    TransactionState,
    Transition,
)
from protocol.errors import ErrorCode

NOW = 1_000
FRESH = 26
P = frozenset({("t", 0), ("t", 1)})
STORED = [TransactionState(number) for number in range(6)]
SETTLED = [TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT]
BOTH_VERSIONS = pytest.mark.parametrize("end", [end_v1, end_v2], ids=["v1", "v2"])
BOTH_VERDICTS = pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
OPENLY_PENDING = [state for state in TransactionState if state is not TransactionState.PREPARE_EPOCH_FENCE]


def known(state: TransactionState, epoch: int = 3, **more) -> Transaction:
    fields = {
        "previous_producer_id": 7,
        "last_epoch": 2,
        "timeout_ms": 60,
        "start_ms": 44,
        "last_update_ms": 50,
        "client_version": 2,
        "partitions": frozenset() if state in SETTLED else P,
    }
    return Transaction("tx", 7, epoch=epoch, state=state, **{**fields, **more})


def ask(end, txn, *, committed, producer_id=7, epoch=3, pending=None, **more):
    return end(txn, pending, producer_id=producer_id, epoch=epoch, committed=committed, now_ms=NOW, **more)


OK, CONCURRENT, INVALID, FENCED, NO_MAPPING = (
    ErrorCode.none,
    ErrorCode.concurrent_transactions,
    ErrorCode.invalid_txn_state,
    ErrorCode.producer_fenced,
    ErrorCode.invalid_producer_id_mapping,
)
PREPARE = "prepare"

# state: (COMMIT, ABORT)
V1 = {
    TransactionState.ONGOING: (PREPARE, PREPARE),
    TransactionState.PREPARE_COMMIT: (CONCURRENT, INVALID),
    TransactionState.PREPARE_ABORT: (INVALID, CONCURRENT),
    TransactionState.COMPLETE_COMMIT: (OK, INVALID),
    TransactionState.COMPLETE_ABORT: (INVALID, OK),
    TransactionState.EMPTY: (INVALID, INVALID),
}
# state: (ABORT retry, ABORT of the current epoch, COMMIT retry, COMMIT of the current epoch)
V2 = {
    TransactionState.ONGOING: (FENCED, PREPARE, FENCED, PREPARE),
    TransactionState.EMPTY: (FENCED, PREPARE, FENCED, INVALID),
    TransactionState.PREPARE_ABORT: (CONCURRENT, FENCED, INVALID, FENCED),
    TransactionState.PREPARE_COMMIT: (INVALID, FENCED, CONCURRENT, FENCED),
    TransactionState.COMPLETE_ABORT: (OK, PREPARE, INVALID, INVALID),
    TransactionState.COMPLETE_COMMIT: (INVALID, PREPARE, OK, INVALID),
}


@BOTH_VERDICTS
@pytest.mark.parametrize("state", STORED)
def test_version_1_answers_by_its_table(state, committed):
    txn = known(state)
    decision = ask(end_v1, txn, committed=committed)
    expected = V1[state][0 if committed else 1]
    if expected is PREPARE:
        prepared = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
        after = txn._replace(state=prepared, last_update_ms=NOW, client_version=0)
        assert decision == Transition(after, Answer(OK))
    else:
        assert isinstance(expected, ErrorCode)
        assert decision == Answer(expected)


@pytest.mark.parametrize("is_retry", [True, False], ids=["retry", "current epoch"])
@BOTH_VERDICTS
@pytest.mark.parametrize("state", STORED)
def test_version_2_answers_by_its_table(state, committed, is_retry):
    txn = known(state, client_version=0)
    decision = ask(end_v2, txn, committed=committed, epoch=2 if is_retry else 3)
    expected = V2[state][2 * committed + (not is_retry)]
    if expected is PREPARE:
        after = txn._replace(
            epoch=4,
            last_epoch=3,
            state=TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT,
            start_ms=44 if state is TransactionState.ONGOING else NOW,
            last_update_ms=NOW,
            client_version=2,
        )
        assert decision == Transition(after, Answer(OK, 7, 4))
    elif expected is OK:
        assert decision == Answer(OK, 7, 3), "a repeated request gets the current producer id and epoch"
    else:
        assert isinstance(expected, ErrorCode)
        assert decision == Answer(expected)


@BOTH_VERDICTS
@BOTH_VERSIONS
def test_an_unknown_id_has_no_mapping(end, committed):
    assert ask(end, None, committed=committed) == Answer(NO_MAPPING)


@BOTH_VERDICTS
@pytest.mark.parametrize("epoch", [1, 2, 4, 5])
@pytest.mark.parametrize("state", STORED)
def test_version_1_wants_the_very_epoch(state, epoch, committed):
    assert ask(end_v1, known(state), committed=committed, epoch=epoch) == Answer(FENCED)


@BOTH_VERDICTS
@pytest.mark.parametrize("epoch", [0, 1, 4, 5, 32766])
@pytest.mark.parametrize("state", STORED)
def test_version_2_wants_the_epoch_or_the_one_before(state, epoch, committed):
    assert ask(end_v2, known(state), committed=committed, epoch=epoch) == Answer(FENCED)


@BOTH_VERDICTS
@pytest.mark.parametrize("epoch", [2, 3, 4])
@pytest.mark.parametrize("state", STORED)
@BOTH_VERSIONS
def test_another_producer_id_has_no_mapping_whatever_its_epoch(end, state, epoch, committed):
    decision = ask(end, known(state), committed=committed, producer_id=8, epoch=epoch)
    assert decision == Answer(NO_MAPPING)


@BOTH_VERDICTS
@pytest.mark.parametrize("state", STORED)
@pytest.mark.parametrize("pending", OPENLY_PENDING)
@BOTH_VERSIONS
def test_what_is_pending_comes_first(end, pending, state, committed):
    assert ask(end, known(state), committed=committed, pending=pending) == Answer(CONCURRENT)


@pytest.mark.parametrize(
    ("end", "wrong", "error"),
    [
        (end_v1, {"producer_id": 8}, NO_MAPPING),
        (end_v1, {"epoch": 2}, FENCED),
        (end_v2, {"producer_id": 8}, CONCURRENT),
        (end_v2, {"epoch": 1}, CONCURRENT),
    ],
)
def test_version_1_looks_at_the_producer_before_what_is_pending_and_version_2_after_it(end, wrong, error):
    decision = ask(
        end, known(TransactionState.ONGOING), committed=True, pending=TransactionState.ONGOING, **wrong
    )
    assert decision == Answer(error)


@BOTH_VERDICTS
@BOTH_VERSIONS
def test_a_pending_fence_is_not_in_the_way(end, committed):
    decision = ask(
        end,
        known(TransactionState.ONGOING),
        committed=committed,
        pending=TransactionState.PREPARE_EPOCH_FENCE,
    )
    assert isinstance(decision, Transition)


def test_a_transaction_begun_by_version_2_may_be_ended_by_version_1():
    decision = ask(end_v1, known(TransactionState.ONGOING, client_version=2), committed=True)
    assert isinstance(decision, Transition)
    assert (decision.after.epoch, decision.after.client_version) == (3, 0)


def test_an_abort_with_nothing_added_has_no_partitions():
    decision = ask(end_v2, known(TransactionState.EMPTY, start_ms=-1), committed=False)
    assert isinstance(decision, Transition)
    after = decision.after
    assert (after.state, after.partitions, after.start_ms) == (
        TransactionState.PREPARE_ABORT,
        frozenset(),
        NOW,
    )
    assert complete(after, NOW).state is TransactionState.COMPLETE_ABORT


# -- the last epoch -----------------------------------------------------------------------------------------


@BOTH_VERDICTS
@pytest.mark.parametrize(
    "state",
    [
        TransactionState.ONGOING,
        TransactionState.EMPTY,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    ],
)
def test_the_last_usable_epoch_asks_for_a_producer_id_only_where_it_bumps(state, committed):
    decision = ask(end_v2, known(state, epoch=32766), committed=committed, epoch=32766)
    bumps = V2[state][2 * committed + 1] is PREPARE
    assert (decision is NEEDS_PRODUCER_ID) is bumps


def test_epoch_32765_still_has_a_next_one():
    decision = ask(end_v2, known(TransactionState.ONGOING, epoch=32765), committed=True, epoch=32765)
    assert isinstance(decision, Transition)
    assert decision.answer == Answer(OK, 7, 32766)


def test_version_1_never_changes_the_producer_id():
    decision = ask(end_v1, known(TransactionState.ONGOING, epoch=32766), committed=True, epoch=32766)
    assert isinstance(decision, Transition)
    assert (decision.after.epoch, decision.after.next_producer_id) == (32766, -1)


def ended_at_the_last_epoch(committed: bool) -> tuple[Transition, Transaction]:
    decision = ask(
        end_v2,
        known(TransactionState.ONGOING, epoch=32766),
        committed=committed,
        epoch=32766,
        fresh_producer_id=FRESH,
    )
    assert isinstance(decision, Transition)
    return decision, complete(decision.after, NOW)


@BOTH_VERDICTS
def test_the_last_epoch_is_the_markers_and_the_answer_names_the_next_producer_id(committed):
    decision, done = ended_at_the_last_epoch(committed)
    prepared = decision.after
    assert decision.answer == Answer(OK, FRESH, 0)
    assert (prepared.producer_id, prepared.epoch, prepared.next_producer_id) == (7, 32767, FRESH)
    assert (done.producer_id, done.epoch, done.previous_producer_id, done.next_producer_id) == (
        FRESH,
        0,
        7,
        -1,
    )


@BOTH_VERDICTS
def test_a_retry_after_the_rotation_is_told_the_new_producer_id(committed):
    _, done = ended_at_the_last_epoch(committed)
    retry = {"producer_id": 7, "epoch": 32766}
    assert ask(end_v2, done, committed=committed, **retry) == Answer(OK, FRESH, 0)
    assert ask(end_v2, done, committed=not committed, **retry) == Answer(INVALID)


@BOTH_VERDICTS
def test_a_retry_during_the_rotation_is_a_retry(committed):
    decision, _ = ended_at_the_last_epoch(committed)
    retry = {"producer_id": 7, "epoch": 32766}
    assert ask(end_v2, decision.after, committed=committed, **retry) == Answer(CONCURRENT)
    assert ask(end_v2, decision.after, committed=not committed, **retry) == Answer(INVALID)


@pytest.mark.parametrize("epoch", [32765, 32767, 0])
def test_the_old_producer_id_with_another_epoch_has_no_mapping(epoch):
    _, done = ended_at_the_last_epoch(True)
    assert ask(end_v2, done, committed=True, producer_id=7, epoch=epoch) == Answer(NO_MAPPING)


@BOTH_VERDICTS
def test_a_retry_after_the_rotation_comes_too_late_once_the_next_transaction_is_open(committed):
    _, done = ended_at_the_last_epoch(committed)
    begun = add_partitions(
        done, None, producer_id=FRESH, epoch=0, partitions=[("t", 0)], client_version=2, now_ms=NOW
    )
    assert isinstance(begun, Transition)
    late = ask(end_v2, begun.after, committed=committed, producer_id=7, epoch=32766)
    assert late == Answer(NO_MAPPING)
