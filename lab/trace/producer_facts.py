"""Extracts the transactions and producers from a decoded request."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from lab.trace.exchange import TransactionFacts
from protocol.batch import HEADER_BYTES

TRANSACTION: Final = 1
"""Key type of FindCoordinator for a transaction's coordinator."""

# Producer id and epoch in the header of a batch.
_PRODUCER: Final = Struct(">qh")
_PRODUCER_OFFSET: Final = 43

Facts = tuple[TransactionFacts, ...]


def transactions_in(api_key: int, request: Any) -> Facts:
    """The transactions and producers in a request; empty if it has none."""
    read = _READERS.get(api_key)
    return read(request) if read is not None else ()


def _produce(request: Any) -> Facts:
    """The transaction or producer of a Produce. All batches of a Produce have one producer, so the first batch is enough."""
    for topic in request.topic_data:
        for partition in topic.partition_data:
            records = partition.records
            if records is not None and len(records) >= HEADER_BYTES:
                producer_id, epoch = _PRODUCER.unpack_from(records, _PRODUCER_OFFSET)
                if producer_id < 0 and request.transactional_id is None:
                    return ()
                return (TransactionFacts(request.transactional_id, producer_id, epoch),)
    return _of_id(request)


def _of_id(request: Any) -> Facts:
    return () if request.transactional_id is None else (TransactionFacts(request.transactional_id),)


def _init_producer_id(request: Any) -> Facts:
    if request.transactional_id is None:
        return ()
    return (TransactionFacts(request.transactional_id, request.producer_id, request.producer_epoch),)


def _one(request: Any) -> Facts:
    return (TransactionFacts(request.transactional_id, request.producer_id, request.producer_epoch),)


def _add_partitions(request: Any) -> Facts:
    """The transactions in an AddPartitionsToTxn, which from version 4 on may have several transactional ids."""
    if not request.v3_and_below_transactional_id:
        return tuple(
            TransactionFacts(each.transactional_id, each.producer_id, each.producer_epoch)
            for each in request.transactions
        )
    return (
        TransactionFacts(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
        ),
    )


def _markers(request: Any) -> Facts:
    return tuple(TransactionFacts(None, each.producer_id, each.producer_epoch) for each in request.markers)


def _find_coordinator(request: Any) -> Facts:
    if request.key_type != TRANSACTION:
        return ()
    return tuple(map(TransactionFacts, request.coordinator_keys or (request.key,)))


def _describe(request: Any) -> Facts:
    return tuple(map(TransactionFacts, request.transactional_ids))


_READERS: Final[dict[int, Callable[[Any], Facts]]] = {
    0: _produce,
    10: _find_coordinator,
    22: _init_producer_id,
    24: _add_partitions,
    25: _one,
    26: _one,
    27: _markers,
    28: _one,
    65: _describe,
}
