"""The checks of AddPartitionsToTxn requests that add partitions, and of those that only verify them, in Kafka's
order."""

from __future__ import annotations

import pytest

from broker.transactions.decisions import add_partitions, verify_partitions
from broker.transactions.transaction import Answer, Transaction, TransactionState, Transition
from protocol.errors import ErrorCode

NOW = 1_000
A, B, C = ("a", 0), ("b", 1), ("c", 2)
STORED = [TransactionState(number) for number in range(6)]
SETTLED = [TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT]
PREPARED = [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT]


def known(state: TransactionState, **more) -> Transaction:
    fields = {"previous_producer_id": 7, "epoch": 3, "timeout_ms": 60, "start_ms": 44, "last_update_ms": 50}
    partitions = frozenset({A, B}) if state in (TransactionState.ONGOING, *PREPARED) else frozenset()
    return Transaction("tx", 7, state=state, **{**fields, "partitions": partitions, **more})


def add(txn, *partitions, pending=None, producer_id=7, epoch=3, client_version=2):
    return add_partitions(
        txn,
        pending,
        producer_id=producer_id,
        epoch=epoch,
        partitions=partitions,
        client_version=client_version,
        now_ms=NOW,
    )


def verify(txn, *partitions, producer_id=7, epoch=3):
    return verify_partitions(txn, producer_id=producer_id, epoch=epoch, partitions=partitions)


# (fields that differ from a valid request, error). If several rows apply, the error is that of the first one.
FAULTS = [
    ({"producer_id": 8}, ErrorCode.invalid_producer_id_mapping),
    ({"epoch": 2}, ErrorCode.producer_fenced),
    ({"epoch": 4}, ErrorCode.producer_fenced),
]


def test_an_unknown_id_has_no_producer_id():
    assert add(None, A) == Answer(ErrorCode.invalid_producer_id_mapping)
    assert add(None, A, pending=TransactionState.ONGOING) == Answer(ErrorCode.invalid_producer_id_mapping)
    assert verify(None, A, B) == dict.fromkeys((A, B), ErrorCode.invalid_producer_id_mapping)


@pytest.mark.parametrize("fault", [{}, *(fault for fault, _ in FAULTS)])
@pytest.mark.parametrize("pending", list(TransactionState))
@pytest.mark.parametrize("state", STORED)
def test_adding_comes_after_what_is_pending(state, pending, fault):
    assert add(known(state), A, pending=pending, **fault) == Answer(ErrorCode.concurrent_transactions)


@pytest.mark.parametrize(("fault", "error"), FAULTS)
@pytest.mark.parametrize("state", STORED)
def test_a_stranger_is_told_so_before_the_state_counts(state, fault, error):
    assert add(known(state), A, **fault) == Answer(error)
    assert verify(known(state), A, C, **fault) == {A: error, C: error}


@pytest.mark.parametrize("epoch", [2, 4])
def test_the_producer_id_is_compared_before_the_epoch(epoch):
    txn = known(TransactionState.ONGOING)
    assert add(txn, A, producer_id=8, epoch=epoch) == Answer(ErrorCode.invalid_producer_id_mapping)
    assert verify(txn, A, producer_id=8, epoch=epoch) == {A: ErrorCode.invalid_producer_id_mapping}


@pytest.mark.parametrize("state", PREPARED)
def test_a_decided_transaction_takes_nothing_more(state):
    assert add(known(state), A) == Answer(ErrorCode.concurrent_transactions)
    assert verify(known(state), A, C) == dict.fromkeys((A, C), ErrorCode.concurrent_transactions)


@pytest.mark.parametrize("partitions", [(A,), (B,), (A, B), (B, A)])
def test_what_is_there_already_is_not_written_again(partitions):
    assert add(known(TransactionState.ONGOING), *partitions) == Answer(ErrorCode.none, 7, 3)


@pytest.mark.parametrize("client_version", [0, 2])
@pytest.mark.parametrize("partitions", [(C,), (A, C), (A, B, C)])
def test_an_open_transaction_grows_and_keeps_its_start(partitions, client_version):
    txn = known(TransactionState.ONGOING)
    assert add(txn, *partitions, client_version=client_version) == Transition(
        txn._replace(partitions=frozenset({A, B, C}), last_update_ms=NOW, client_version=client_version),
        Answer(ErrorCode.none, 7, 3),
    )


@pytest.mark.parametrize("client_version", [0, 2])
@pytest.mark.parametrize("state", SETTLED)
def test_a_transaction_begins_with_its_first_partition(state, client_version):
    txn = known(state, client_version=2 - client_version)
    assert add(txn, C, client_version=client_version) == Transition(
        txn._replace(
            state=TransactionState.ONGOING,
            partitions=frozenset({C}),
            start_ms=NOW,
            last_update_ms=NOW,
            client_version=client_version,
        ),
        Answer(ErrorCode.none, 7, 3),
    )


def test_the_producer_id_before_a_transition_is_noted():
    txn = known(TransactionState.COMPLETE_COMMIT, previous_producer_id=5)
    decision = add(txn, C)
    assert isinstance(decision, Transition)
    assert decision.after.previous_producer_id == 7


def test_each_partition_is_verified_by_itself():
    assert verify(known(TransactionState.ONGOING), A, B, C) == {
        A: ErrorCode.none,
        B: ErrorCode.none,
        C: ErrorCode.transaction_abortable,
    }


@pytest.mark.parametrize("state", SETTLED)
def test_nothing_is_part_of_a_transaction_that_is_not_open(state):
    assert verify(known(state), A) == {A: ErrorCode.transaction_abortable}
