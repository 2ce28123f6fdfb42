"""The tables of ``format("odradek.segments")``: their columns, in order, as Spark's types.

Missing numbers are -1, as Kafka writes them (no producer, no sequence, no leader epoch). Times have a precision of
milliseconds; -1, "no timestamp", is null. A row with an ``error`` has the place of the error (``log_dir``, ``topic``,
``partition``, ``file``, ``position``); its other columns are null, whatever the damaged bytes say.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_INT, _LONG, _STRING, _BINARY = IntegerType(), LongType(), StringType(), BinaryType()
_BOOLEAN, _TIMESTAMP = BooleanType(), TimestampType()


def _table(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


HEADERS = ArrayType(_table(key=_STRING, value=_BINARY))
PARTITIONS = ArrayType(_table(topic=_STRING, partition=_INT))

RECORDS = _table(
    log_dir=_STRING,
    topic=_STRING,
    partition=_INT,
    offset=_LONG,
    timestamp=_TIMESTAMP,
    timestamp_type=_STRING,
    key=_BINARY,
    value=_BINARY,
    headers=HEADERS,
    producer_id=_LONG,
    producer_epoch=_INT,
    sequence=_INT,
    transactional=_BOOLEAN,
    control=_BOOLEAN,
    marker=_STRING,
    coordinator_epoch=_INT,
    leader_epoch=_INT,
    codec=_STRING,
    batch_offset=_LONG,
    file=_STRING,
    position=_LONG,
    error=_STRING,
)

BATCHES = _table(
    log_dir=_STRING,
    topic=_STRING,
    partition=_INT,
    base_offset=_LONG,
    last_offset=_LONG,
    leader_epoch=_INT,
    producer_id=_LONG,
    producer_epoch=_INT,
    base_sequence=_INT,
    last_sequence=_INT,
    records=_INT,
    timestamp=_TIMESTAMP,
    max_timestamp=_TIMESTAMP,
    timestamp_type=_STRING,
    transactional=_BOOLEAN,
    control=_BOOLEAN,
    marker=_STRING,
    coordinator_epoch=_INT,
    codec=_STRING,
    size_bytes=_INT,
    file=_STRING,
    position=_LONG,
    error=_STRING,
)

TRANSACTION_STATE = _table(
    log_dir=_STRING,
    partition=_INT,
    offset=_LONG,
    timestamp=_TIMESTAMP,
    transactional_id=_STRING,
    producer_id=_LONG,
    producer_epoch=_INT,
    previous_producer_id=_LONG,
    next_producer_id=_LONG,
    next_producer_epoch=_INT,
    transaction_timeout_ms=_INT,
    state=_STRING,
    partitions=PARTITIONS,
    last_update=_TIMESTAMP,
    start=_TIMESTAMP,
    client_transaction_version=_INT,
    version=_INT,
    tombstone=_BOOLEAN,
    file=_STRING,
    position=_LONG,
    error=_STRING,
)

# ``partition`` is the partition whose offset was committed; ``log_partition`` is that of ``__consumer_offsets``.
OFFSETS = _table(
    log_dir=_STRING,
    log_partition=_INT,
    offset=_LONG,
    timestamp=_TIMESTAMP,
    kind=_STRING,
    group=_STRING,
    topic=_STRING,
    partition=_INT,
    committed_offset=_LONG,
    leader_epoch=_INT,
    metadata=_STRING,
    commit_timestamp=_TIMESTAMP,
    expire_timestamp=_TIMESTAMP,
    topic_id=_STRING,
    details=_STRING,
    version=_INT,
    producer_id=_LONG,
    producer_epoch=_INT,
    transactional=_BOOLEAN,
    control=_BOOLEAN,
    marker=_STRING,
    tombstone=_BOOLEAN,
    file=_STRING,
    position=_LONG,
    error=_STRING,
)

TABLES: dict[str, StructType] = {
    "records": RECORDS,
    "batches": BATCHES,
    "transaction_state": TRANSACTION_STATE,
    "offsets": OFFSETS,
}
