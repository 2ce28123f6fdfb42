"""Reading a partition of ``__transaction_state`` into the memory of its coordinator.

Only the last record of each transactional id counts, so only the last one is decoded: until compaction the log of a busy id
has several records for each transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from broker.coordinator_runtime.damaged_records import DamagedRecords
from broker.coordinator_runtime.loader import LOAD_TURN_RECORDS, load_log
from broker.logging import get_logger
from broker.replicas.partition import Partition
from broker.transactions.records import from_value
from broker.transactions.transaction import Transaction
from protocol.batch import RecordBatch
from protocol.records.transaction_log import TransactionLogKey, TransactionLogValue

_KEY_VERSIONS: Final = (b"\0\0",)
_VALUE_VERSIONS: Final = tuple(version.to_bytes(2, "big") for version in TransactionLogValue.VERSIONS)

log_events = get_logger()


def load(partition: Partition, install: Callable[[Transaction], object]) -> Iterator[None]:
    """Read a partition from log start to log end, and call ``install`` with the last state of each transactional id.

    Yields between slices of work. Damaged batches are skipped, and reported at the end of the load
    (`broker.coordinator_runtime.damaged_records`).
    """
    latest: dict[bytes, bytes] = {}
    topic, index = partition.topic, partition.index
    damaged = DamagedRecords(topic, index, "transactional_ids", _id_of, lambda: _ids_of(latest))
    yield from load_log(partition, partial(_collect, latest, damaged), damaged)
    records = iter(latest.items())
    while some := list(islice(records, LOAD_TURN_RECORDS)):
        for key, value in some:
            _install(key, value, install)
        if len(some) == LOAD_TURN_RECORDS:
            yield
    damaged.report()


def _id_of(key: bytes) -> str | None:
    try:
        return TransactionLogKey.decode(key).transactional_id
    except ValueError:
        return None


def _ids_of(latest: dict[bytes, bytes]) -> list[str]:
    return [name for key in latest if (name := _id_of(key)) is not None]


def _collect(latest: dict[bytes, bytes], damaged: DamagedRecords, batch: RecordBatch) -> None:
    """Read the records of one batch into ``latest``, skipping keys and values of unknown versions, as Kafka does."""
    for key, value in () if batch.is_control else batch.keys_and_values():
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
