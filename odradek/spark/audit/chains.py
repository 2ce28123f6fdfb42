"""The batches of each producer in each replica, in the order of their offsets, aggregated to transactions.

Only this step of the audit sorts all batches. The result has one row per transaction and replica, so the later rules
read much less. Producers with a suspicious batch are marked, and ``sequences`` reads the batches of these producers
again.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from odradek.spark.audit.batch_headers import is_internal, sound

SEQUENCE_MASK: Final = 0x7FFFFFFF
"""Sequences follow each other modulo 2^31 (DefaultRecordBatch.incrementSequence)."""


def is_marker() -> Column:
    return F.col("control") & F.col("marker").isin("commit", "abort")


def is_data() -> Column:
    return ~F.col("control")


def has_sequence() -> Column:
    """Column that is true for batches with sequences from a client.

    Batches in internal topics do not count: brokers append them without sequence checks.
    """
    return is_data() & ~is_internal(F.col("topic")) & (F.col("base_sequence") >= 0)


def _suspicious(before: Column, data_epoch: Column, data_end: Column) -> Column:
    expected = F.when(
        F.col("producer_epoch") == data_epoch, (data_end.cast("long") + 1).bitwiseAND(SEQUENCE_MASK)
    ).otherwise(0)
    epoch_fell = F.col("producer_epoch") < before
    return F.coalesce(epoch_fell, F.lit(False)) | (
        F.col("has_sequence") & (F.col("base_sequence") != expected)
    )


def chain(rows: DataFrame) -> DataFrame:
    """The batches of idempotent producers with two more columns, ``ended`` and ``suspicious``.

    ``ended`` is the number of markers of the producer before the batch. Every batch that ``sequences`` would report is
    ``suspicious``, so ``sequences`` need not read other producers.
    """
    before = (
        Window.partitionBy("replica", "producer_id")
        .orderBy("base_offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    narrow = (
        sound(rows)
        .where(F.col("producer_id") >= 0)
        .select(
            "replica",
            "producer_id",
            "base_offset",
            "last_offset",
            "producer_epoch",
            "base_sequence",
            "last_sequence",
            "records",
            "size_bytes",
            "timestamp_ms",
            "max_timestamp_ms",
            "coordinator_epoch",
            # The outcome is a number, because shuffling a number costs less than shuffling a string.
            F.when(is_marker(), (F.col("marker") == "commit").cast("int")).alias("committed"),
            "control",
            "transactional",
            has_sequence().alias("has_sequence"),
        )
    )
    return (
        narrow.withColumns(
            {
                "ended": F.count("committed").over(before),
                "top_epoch": F.max("producer_epoch").over(before),
                "data_epoch": F.last(F.when(is_data(), F.col("producer_epoch")), True).over(before),
                "data_end": F.last(F.when(is_data(), F.col("last_sequence")), True).over(before),
            }
        )
        .withColumn("suspicious", _suspicious(F.col("top_epoch"), F.col("data_epoch"), F.col("data_end")))
        .drop("top_epoch", "data_epoch", "data_end")
    )


def partition_transactions(rows: DataFrame) -> DataFrame:
    """One row per replica, producer and marker: the data that the marker ended, and the marker.

    If a producer wrote data after its last marker, these have a row without a marker.

    ``plain_*`` are the data that the producer wrote outside transactions. Without a marker, ``outcome`` is ``open`` if there
    is transactional data, else null.
    """
    inside = is_data() & F.col("transactional")
    plain = is_data() & ~F.col("transactional")

    def of(which: Column, column: str) -> Column:
        return F.when(which, F.col(column))

    ended = F.col("committed").isNotNull()
    return (
        chain(rows)
        .groupBy("replica", "producer_id", "ended")
        .agg(
            F.min(of(inside, "base_offset")).alias("first_offset"),
            F.max(of(inside, "last_offset")).alias("last_offset"),
            F.min(of(inside, "producer_epoch")).alias("first_epoch"),
            F.max(of(inside, "producer_epoch")).alias("last_epoch"),
            F.min(of(inside, "timestamp_ms")).alias("first_ms"),
            F.max(of(inside, "max_timestamp_ms")).alias("last_ms"),
            F.sum(inside.cast("long")).alias("batches"),
            F.coalesce(F.sum(of(inside, "records")), F.lit(0)).alias("records"),
            F.coalesce(F.sum(of(inside, "size_bytes")), F.lit(0)).alias("bytes"),
            F.min(of(plain, "base_offset")).alias("plain_offset"),
            F.coalesce(F.sum(of(plain, "records")), F.lit(0)).alias("plain_records"),
            F.coalesce(F.sum(of(plain, "size_bytes")), F.lit(0)).alias("plain_bytes"),
            F.max(of(ended, "base_offset")).alias("marker_offset"),
            F.max(of(ended, "producer_epoch")).alias("marker_epoch"),
            F.max(of(ended, "max_timestamp_ms")).alias("marker_ms"),
            F.max(of(ended, "coordinator_epoch")).alias("coordinator_epoch"),
            F.max("committed").alias("committed"),  # there is at most one marker in the group
            F.max("suspicious").alias("suspicious"),
        )
        .withColumn("outcome", _outcome())
        .drop("committed")
    )


def _outcome() -> Column:
    return (
        F.when(F.col("committed") == 1, "commit")
        .when(F.col("committed") == 0, "abort")
        .when(F.col("first_offset").isNotNull(), "open")
    )
