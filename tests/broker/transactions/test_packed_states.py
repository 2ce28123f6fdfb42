"""A transaction's record value that is packed in one call equals the value that is encoded field by field."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.transactions.records import from_value, key_bytes, to_value, value_bytes
from broker.transactions.transaction import Transaction, TransactionState
from protocol.records.transaction_log import TransactionLogKey, TransactionLogValue

int64 = st.integers(-(2**63), 2**63 - 1)
int16 = st.integers(-(2**15), 2**15 - 1)
names = st.text(st.sampled_from("abcxyz0189._-"), min_size=1, max_size=249)
transactions = st.builds(
    Transaction,
    transactional_id=st.text(max_size=300).filter(lambda text: text.isprintable()),
    producer_id=int64,
    previous_producer_id=st.just(-1) | int64,
    next_producer_id=st.just(-1) | int64,
    epoch=int16,
    last_epoch=st.just(-1),
    timeout_ms=st.integers(-(2**31), 2**31 - 1),
    state=st.sampled_from([state for state in TransactionState if state < TransactionState.DEAD]),
    partitions=st.frozensets(st.tuples(names, st.integers(0, 2**31 - 1)), max_size=9),
    start_ms=int64,
    last_update_ms=int64,
    client_version=st.sampled_from([0, 1, 2]),
)


@given(transactions, st.sampled_from([0, 1]))
def test_a_packed_state_has_the_bytes_of_its_fields(txn, version):
    packed = value_bytes(txn, version)
    assert packed == to_value(txn).encode(version)
    assert key_bytes(txn.transactional_id) == TransactionLogKey(txn.transactional_id).encode()
    if version == 1 and txn.state is not TransactionState.EMPTY:
        assert from_value(txn.transactional_id, TransactionLogValue.decode(packed)) == txn
