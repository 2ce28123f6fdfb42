"""The table of batches as the audit's rules need it: with a number for each replica, and times in milliseconds.

A replica is one partition in one log directory. Its number is a hash of its name: ten million rows are sorted and shuffled
with eight bytes instead of a name, and the name is joined only to the rows that are shown.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from odradek.spark.segments.reading import ZERO_TAIL

TRANSACTION_STATE: Final = "__transaction_state"
CONSUMER_OFFSETS: Final = "__consumer_offsets"
# Brokers append to these topics themselves, without sequence checks (GroupCoordinator always writes sequence 0).
_INTERNAL: Final = (CONSUMER_OFFSETS, TRANSACTION_STATE, "__share_group_state", "__cluster_metadata")
BUCKET_BITS: Final = 16
"""A bucket is a range of 2^``BUCKET_BITS`` offsets. Replicas are compared by bucket, then by batch."""


def milliseconds(column: str) -> Column:
    return F.unix_millis(F.col(column))


def is_internal(topic: Column) -> Column:
    return topic.isin(*_INTERNAL)


def replica_of(log_dir: Column, topic: Column, partition: Column) -> Column:
    return F.xxhash64(log_dir, topic, partition)


def batch_headers(batches: DataFrame) -> DataFrame:
    """The table ``batches`` of ``odradek.segments`` with ``replica``, ``timestamp_ms`` and ``max_timestamp_ms``.

    ``zeros`` is true for a range of zeros behind the last batch, which may be legal (``zero_tails`` decides).
    """
    return batches.select(
        replica_of(F.col("log_dir"), F.col("topic"), F.col("partition")).alias("replica"),
        "log_dir",
        "topic",
        "partition",
        "base_offset",
        "last_offset",
        "leader_epoch",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "last_sequence",
        "records",
        milliseconds("timestamp").alias("timestamp_ms"),
        milliseconds("max_timestamp").alias("max_timestamp_ms"),
        "transactional",
        "control",
        "marker",
        "coordinator_epoch",
        "size_bytes",
        "file",
        "position",
        "error",
        F.coalesce(F.col("error").contains(ZERO_TAIL), F.lit(False)).alias("zeros"),
    )


def sound(rows: DataFrame) -> DataFrame:
    """The rows for batches, without those for damaged ranges."""
    return rows.where(F.col("error").isNull())
