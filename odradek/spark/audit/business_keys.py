"""End-to-end check: no business key occurs twice among the committed records of a topic."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.spark.audit.batch_headers import replica_of
from odradek.spark.audit.findings import finding


def committed(records: DataFrame, transactions: DataFrame, replicas: DataFrame) -> DataFrame:
    """Records that a read_committed consumer of each partition's chosen replica (``speaks``) gets.

    The chosen replica is that of the last leader. Its records end before the first open transaction."""
    speaking = replicas.where("speaks").select("replica", "log_start")
    first_open = (
        transactions.where("outcome = 'open'")
        .groupBy("replica")
        .agg(F.min("first_offset").alias("stable_offset"))
    )
    aborted = transactions.where("outcome = 'abort' and first_offset is not null").select(
        F.col("replica").alias("of"), F.col("producer_id").alias("by"), "first_offset", "marker_offset"
    )
    under_abort = (
        F.col("transactional")
        & (F.col("replica") == F.col("of"))
        & (F.col("producer_id") == F.col("by"))
        & F.col("offset").between(F.col("first_offset"), F.col("marker_offset"))
    )
    return (
        records.where("error is null and not control")
        .withColumn("replica", replica_of(F.col("log_dir"), F.col("topic"), F.col("partition")))
        .join(F.broadcast(speaking), "replica")
        .where(F.col("offset") >= F.coalesce("log_start", F.lit(0)))
        .join(F.broadcast(first_open), "replica", "left")
        .where(F.col("stable_offset").isNull() | (F.col("offset") < F.col("stable_offset")))
        .join(F.broadcast(aborted), under_abort, "left_anti")
    )


def repeated(committed_records: DataFrame, key: str) -> DataFrame:
    """Business keys that occur more than once. ``key`` is an SQL expression over the columns of a record."""
    place = F.struct("replica", "offset", "file", "position", "producer_id", "producer_epoch")
    return (
        committed_records.withColumn("business_key", F.expr(key).cast("string"))
        .where("business_key is not null")
        .groupBy("topic", "business_key")
        .agg(F.count("*").alias("times"), F.min(place).alias("first"), F.max(place).alias("last"))
        .where("times > 1")
    )


def key_findings(repeated_keys: DataFrame) -> DataFrame:
    return repeated_keys.select("*", F.col("last.replica").alias("replica")).select(
        finding(
            "duplicated_key",
            F.format_string(
                "%d committed records have the key %s",
                "times",
                F.substring("business_key", 1, 80),
            ),
            offset="last.offset",
            file="last.file",
            position="last.position",
            producer_id="last.producer_id",
            producer_epoch="last.producer_epoch",
        )
    )
