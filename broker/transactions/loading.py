"""Reading a partition of ``__transaction_state`` into the memory of its coordinator.

Only the last record of each transactional id counts, so only the last one is decoded: until compaction the log of a busy id
has several records for each transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from broker.coordinator_runtime.damaged_records import DamagedRecords
from broker.logging import get_logger
from broker.replicas.partition import Partition
from broker.transactions.records import from_value
from broker.transactions.transaction import Transaction
from protocol.batch import CorruptBatch, RecordBatch
from protocol.records.transaction_log import TransactionLogKey, TransactionLogValue
from storage.log import Log
from storage.salvage import Damaged, unreadable

LOAD_TURN_RECORDS: Final = 500
"""Maximum number of records that are replayed in one turn of the event loop."""

_KEY_VERSIONS: Final = (b"\0\0",)
_VALUE_VERSIONS: Final = tuple(version.to_bytes(2, "big") for version in TransactionLogValue.VERSIONS)

log_events = get_logger()


def load(partition: Partition, install: Callable[[Transaction], object]) -> Iterator[None]:
    """Read a partition from log start to log end, and call ``install`` with the last state of each transactional id.

    Yields between slices of work. The load ends at the log end, not at the high watermark, because a new leader commits
    everything that is in its log. Damaged batches are skipped, and reported at the end of the load
    (`broker.coordinator_runtime.damaged_records`).
    """
    latest: dict[bytes, bytes] = {}
    topic, index = partition.topic, partition.index
    damaged = DamagedRecords(topic, index, "transactional_ids", _id_of, lambda: _ids_of(latest))
    log = partition.log
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        before = offset
        offset = _collect_some(log, latest, offset, damaged)
        if offset == before:
            break
        if offset < log.log_end_offset:
            yield
    records = iter(latest.items())
    while some := list(islice(records, LOAD_TURN_RECORDS)):
        for key, value in some:
            _install(key, value, install)
        if len(some) == LOAD_TURN_RECORDS:
            yield
    damaged.report()


def _collect_some(log: Log, latest: dict[bytes, bytes], offset: int, damaged: DamagedRecords) -> int:
    """Read up to ``LOAD_TURN_RECORDS`` records into ``latest``; returns the offset at which to continue."""
    replayed = 0
    for found in log.sound_batches(offset):
        if isinstance(found, Damaged):
            damaged.note(found)
            replayed += 1
        elif not found.is_control:
            _collect(log, latest, found, damaged)
            replayed += found.record_count
        offset = found.next_offset
        if replayed >= LOAD_TURN_RECORDS:
            break
    return offset


def _id_of(key: bytes) -> str | None:
    try:
        return TransactionLogKey.decode(key).transactional_id
    except ValueError:
        return None


def _ids_of(latest: dict[bytes, bytes]) -> list[str]:
    return [name for key in latest if (name := _id_of(key)) is not None]


def _collect(log: Log, latest: dict[bytes, bytes], batch: RecordBatch, damaged: DamagedRecords) -> None:
    """Read the records of one batch into ``latest``, skipping keys and values of unknown versions, as Kafka does."""
    try:
        for key, value in batch.keys_and_values():
            if damaged:
                damaged.note_read(key)
            if key is None:
                continue
            if key[:2] not in _KEY_VERSIONS:
                _say_skipped(f"key of version {key[:2].hex()}")
            elif value is None:
                latest.pop(key, None)
            elif value[:2] not in _VALUE_VERSIONS:
                _say_skipped(f"value of version {value[:2].hex()}")
            else:
                latest[key] = value
    except CorruptBatch as error:
        damaged.note(unreadable(batch, str(log.directory), str(error)))


def _install(key: bytes, value: bytes, install: Callable[[Transaction], object]) -> None:
    try:
        transactional_id = TransactionLogKey.decode(key).transactional_id
        txn = from_value(transactional_id, TransactionLogValue.decode(value))
    except ValueError as error:
        _say_skipped(str(error))
        return
    install(txn)


def _say_skipped(reason: str) -> None:
    log_events.warning("record of the transaction log skipped", reason=reason)
