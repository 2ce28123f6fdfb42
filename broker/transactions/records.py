"""Transactions as records of ``__transaction_state``, and back."""

from __future__ import annotations

from broker.metadata.topics import by_topic
from broker.transactions.state import Transaction, TransactionState
from protocol.batch import build_batch
from protocol.records.transaction_log import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionPartitions,
)


def state_batch(txn: Transaction, value_version: int, now_ms: int) -> bytes:
    """The batch of one record that makes ``txn`` the state of its id."""
    key = TransactionLogKey(transactional_id=txn.transactional_id).encode()
    return build_batch([(now_ms, key, to_value(txn).encode(value_version))])


def tombstone_batch(transactional_id: str, now_ms: int) -> bytes:
    """The batch that lets an id be forgotten."""
    return build_batch([(now_ms, TransactionLogKey(transactional_id=transactional_id).encode(), None)])


def to_value(txn: Transaction) -> TransactionLogValue:
    """Partitions are null in Empty and an empty list in Complete, as Kafka writes them."""
    topics = by_topic(sorted(txn.partitions))
    partitions = [TransactionPartitions(topic=topic, partition_ids=ids) for topic, ids in topics.items()]
    return TransactionLogValue(
        producer_id=txn.producer_id,
        previous_producer_id=txn.previous_producer_id,
        next_producer_id=txn.next_producer_id,
        producer_epoch=txn.epoch,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_status=txn.state,
        transaction_partitions=None if txn.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=txn.last_update_ms,
        transaction_start_timestamp_ms=txn.start_ms,
        client_transaction_version=txn.client_version,
    )


def from_value(transactional_id: str, value: TransactionLogValue) -> Transaction:
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=frozenset(
            (topic.topic, index)
            for topic in value.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )
