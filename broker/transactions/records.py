"""Encodes transactions as records of ``__transaction_state``, and decodes them."""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from broker.metadata.topics import by_topic
from broker.transactions.transaction import (
    EMPTY,
    NO_PRODUCER_ID,
    TopicPartition,
    Transaction,
    TransactionState,
)
from protocol.batch import build_batch
from protocol.records.transaction_log import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionPartitions,
)
from protocol.varint import unsigned_varint

# A commit writes three or four states, so a value is packed directly. `to_value` encodes field by field; a test compares
# the two.
_START: Final = Struct(">hqhib")
"""The first fields of a transaction's record value: version, producer id, epoch, timeout, state."""
_TIMES: Final = Struct(">qq")
_INT64_TAG: Final = Struct(">BBq")
_INT16_TAG: Final = Struct(">BBh")
_LENGTH: Final = Struct(">h")
_LATER_TRANSACTION: Final = Struct(">qqBBBqBBh")
"""The last fields of the record value in the usual case: the timestamps of the last update and of the transaction's
start, then the tagged fields for the previous producer id and the client's transaction version."""
_OLD_CLIENTS: Final = Struct(">qqBBBq")
"""The last fields of the record value for a client of the old protocol, whose transaction version 0 is not written."""
_COUNT: Final = Struct(">i")
_INDEX: Final = Struct(">i")
IDS_REMEMBERED: Final = 512
"""Cache size for encoded ids: a transaction of two requests and an EndTxn writes its id four times."""
PARTITIONS_REMEMBERED: Final = 512
"""Cache size for encoded partition sets: the states of a transaction, and often of the next one, have the same set."""


def state_batch(txn: Transaction, value_version: int, now_ms: int) -> bytes:
    """Build a batch with one record, which sets the state of the transactional id to ``txn``."""
    return build_batch([(now_ms, key_bytes(txn.transactional_id), value_bytes(txn, value_version))])


@lru_cache(IDS_REMEMBERED)
def key_bytes(transactional_id: str) -> bytes:
    """Encode a `TransactionLogKey`: its type 0 and the id."""
    name = transactional_id.encode()
    return b"\0\0" + _LENGTH.pack(len(name)) + name


def value_bytes(txn: Transaction, version: int) -> bytes:
    """Encode the record's value directly: the same bytes as `to_value` followed by the encoding (ADR 23)."""
    # The tuple is unpacked at once: access by name would call a built-in function for each field.
    _, producer_id, previous, next_id, epoch, _, timeout_ms, state, written, start_ms, updated_ms, client = (
        txn
    )
    start = _START.pack(version, producer_id, epoch, timeout_ms, state)
    partitions = None if state is EMPTY else written
    if version == 0:
        return start + _plain(partitions) + _TIMES.pack(updated_ms, start_ms)
    if previous != NO_PRODUCER_ID and next_id == NO_PRODUCER_ID:
        if client:
            end = _LATER_TRANSACTION.pack(updated_ms, start_ms, 2, 0, 8, previous, 2, 2, client)
        else:
            end = _OLD_CLIENTS.pack(updated_ms, start_ms, 1, 0, 8, previous)
        return start + _flexible(partitions) + end
    times = _TIMES.pack(updated_ms, start_ms)
    tags = []
    if previous != NO_PRODUCER_ID:
        tags.append(_INT64_TAG.pack(0, 8, previous))
    if next_id != NO_PRODUCER_ID:
        tags.append(_INT64_TAG.pack(1, 8, next_id))
    if client:
        tags.append(_INT16_TAG.pack(2, 2, client))
    return b"".join((start, _flexible(partitions), times, bytes((len(tags),)), *tags))


@lru_cache(PARTITIONS_REMEMBERED)
def _plain(partitions: frozenset[TopicPartition] | None) -> bytes:
    """Encode the partitions for value version 0."""
    if partitions is None:
        return _COUNT.pack(-1)
    topics = by_topic(sorted(partitions))
    return _COUNT.pack(len(topics)) + b"".join(
        part
        for topic, indexes in topics.items()
        for part in (
            _LENGTH.pack(len(topic)),
            topic.encode(),
            _COUNT.pack(len(indexes)),
            *map(_INDEX.pack, indexes),
        )
    )


@lru_cache(PARTITIONS_REMEMBERED)
def _flexible(partitions: frozenset[TopicPartition] | None) -> bytes:
    """Encode the partitions for value version 1: compact arrays, with a tag section after each topic."""
    if partitions is None:
        return b"\0"
    topics = by_topic(sorted(partitions))
    return unsigned_varint(len(topics) + 1) + b"".join(
        part
        for topic, indexes in topics.items()
        for part in (
            unsigned_varint(len(topic) + 1),
            topic.encode(),
            unsigned_varint(len(indexes) + 1),
            *map(_INDEX.pack, indexes),
            b"\0",
        )
    )


def tombstone_batch(transactional_id: str, now_ms: int) -> bytes:
    """Build a batch with the tombstone that removes a transactional id."""
    return build_batch([(now_ms, TransactionLogKey(transactional_id=transactional_id).encode(), None)])


def to_value(txn: Transaction) -> TransactionLogValue:
    """Convert a state to the record's value. The partitions are null in Empty and an empty list in Complete, as in Kafka.

    `value_bytes` does the same as this function and the encoding of its result, but faster.
    """
    topics = by_topic(sorted(txn.partitions))
    partitions = [TransactionPartitions(topic=topic, partition_ids=ids) for topic, ids in topics.items()]
    return TransactionLogValue(
        producer_id=txn.producer_id,
        previous_producer_id=txn.previous_producer_id,
        next_producer_id=txn.next_producer_id,
        producer_epoch=txn.epoch,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_status=txn.state,
        transaction_partitions=None if txn.state is EMPTY else partitions,
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
