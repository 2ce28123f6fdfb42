"""The valid transitions between transaction states, and how each of them changes the producer ids."""

from __future__ import annotations

import pytest

from broker.transactions.decisions import complete
from broker.transactions.transaction import VALID_PREDECESSORS, Transaction, TransactionState

# An independent copy of Kafka's TransactionState: (state: its valid predecessors). All other pairs are illegal.
FOLLOWS = {
    "EMPTY": {"EMPTY", "COMPLETE_COMMIT", "COMPLETE_ABORT"},
    "ONGOING": {"ONGOING", "EMPTY", "COMPLETE_COMMIT", "COMPLETE_ABORT"},
    "PREPARE_COMMIT": {"ONGOING"},
    "PREPARE_ABORT": {"ONGOING", "PREPARE_EPOCH_FENCE", "EMPTY", "COMPLETE_COMMIT", "COMPLETE_ABORT"},
    "COMPLETE_COMMIT": {"PREPARE_COMMIT"},
    "COMPLETE_ABORT": {"PREPARE_ABORT"},
    "DEAD": {"EMPTY", "COMPLETE_ABORT", "COMPLETE_COMMIT"},
    "PREPARE_EPOCH_FENCE": {"ONGOING"},
}
IDS = {
    "EMPTY": 0,
    "ONGOING": 1,
    "PREPARE_COMMIT": 2,
    "PREPARE_ABORT": 3,
    "COMPLETE_COMMIT": 4,
    "COMPLETE_ABORT": 5,
    "DEAD": 6,
    "PREPARE_EPOCH_FENCE": 7,
}


@pytest.mark.parametrize(("name", "number"), IDS.items())
def test_a_state_has_the_number_that_is_stored(name, number):
    assert TransactionState[name] == number
    assert len(TransactionState) == len(IDS)


@pytest.mark.parametrize("after", IDS)
@pytest.mark.parametrize("before", IDS)
def test_a_state_follows_only_its_valid_predecessors(before, after):
    assert (TransactionState[before] in VALID_PREDECESSORS[TransactionState[after]]) is (
        before in FOLLOWS[after]
    )


@pytest.mark.parametrize("state", [each for each in TransactionState if not each.name.startswith("PREPARE_")])
def test_an_illegal_transition_is_a_broken_invariant(state):
    with pytest.raises(AssertionError, match="cannot become"):
        complete(Transaction("tx", 7, epoch=1, state=state), 5)


def test_a_new_id_has_nothing():
    txn = Transaction("tx", 7)
    assert (txn.producer_id, txn.previous_producer_id, txn.next_producer_id) == (7, -1, -1)
    assert (txn.epoch, txn.last_epoch, txn.state, txn.start_ms) == (-1, -1, TransactionState.EMPTY, -1)
    assert (txn.partitions, txn.client_version) == (frozenset(), 0)


PREPARED = Transaction(
    "tx",
    7,
    previous_producer_id=7,
    epoch=4,
    last_epoch=3,
    timeout_ms=60,
    state=TransactionState.PREPARE_COMMIT,
    partitions=frozenset({("t", 0)}),
    start_ms=100,
    last_update_ms=200,
    client_version=2,
)


@pytest.mark.parametrize("client_version", [0, 2])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT),
        (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT),
    ],
)
def test_completion_empties_the_partitions_and_keeps_the_rest(before, after, client_version):
    prepared = PREPARED._replace(state=before, client_version=client_version)
    assert complete(prepared, 300) == prepared._replace(
        state=after, partitions=frozenset(), last_update_ms=300
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT),
        (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT),
    ],
)
def test_completion_of_the_last_epoch_hands_over_to_the_next_producer_id(before, after):
    prepared = PREPARED._replace(state=before, epoch=32767, last_epoch=32766, next_producer_id=26)
    done = complete(prepared, 300)
    assert (done.producer_id, done.epoch, done.previous_producer_id, done.next_producer_id) == (26, 0, 7, -1)
    assert (done.state, done.partitions) == (after, frozenset())
