"""The table of replicas with their start and end offsets, and the choice of one replica for each partition.

First, sums (exclusive or of hashes) show whether offsets follow each other without gaps, and whether replicas are equal, in
one pass without sorting. Batches are compared one by one only where a sum is wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructField, StructType

from odradek.spark.audit.batch_headers import BUCKET_BITS, CONSUMER_OFFSETS, TRANSACTION_STATE, replica_of
from odradek.spark.audit.directories import LogDirectory

Place = tuple[str, str, int]
"""A replica as (log_dir, topic, partition)."""
KNOWN = StructType(
    [
        StructField("log_dir", StringType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("log_start", LongType()),
        StructField("high_watermark", LongType()),
        StructField("cleaned_up_to", LongType()),
        StructField("cleaner", BooleanType()),
        StructField("whole", BooleanType()),
        StructField("indexed_below", LongType()),
    ]
)


def bucket() -> Column:
    return F.shiftright("base_offset", BUCKET_BITS)


def content() -> Column:
    """A hash of the header fields that must be equal in all replicas of a batch.

    The size is left out, because compaction may change it, and each broker compacts its own replica.
    """
    return F.xxhash64(
        "base_offset",
        "last_offset",
        "leader_epoch",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "marker",
    )


def buckets(rows: DataFrame, compared: bool) -> DataFrame:
    """One row for each replica and bucket (a range of 2^``BUCKET_BITS`` offsets). Damaged ranges have a null bucket.

    ``digest`` is only computed if replicas are to be ``compared``.
    """
    span = F.col("last_offset") - F.col("base_offset") + 1
    damaged = F.col("error").isNotNull()
    return rows.groupBy("replica", bucket().alias("bucket")).agg(
        F.min("base_offset").alias("first_offset"),
        (F.max("last_offset") + 1).alias("end_offset"),
        F.sum(span).alias("offsets"),
        F.bit_xor(F.when(~damaged, F.xxhash64("base_offset"))).alias("bases"),
        F.bit_xor(F.when(~damaged, F.xxhash64(F.col("last_offset") + 1))).alias("ends"),
        F.bit_xor(F.when(~damaged, content()) if compared else F.lit(None).cast("long")).alias("digest"),
        F.sum((~damaged).cast("long")).alias("batches"),
        F.sum("records").alias("records"),
        F.sum("size_bytes").alias("bytes"),
        F.max("leader_epoch").alias("leader_epoch"),
        F.min(F.when(F.col("leader_epoch") >= 0, F.col("leader_epoch"))).alias("first_leader_epoch"),
        F.max("max_timestamp_ms").alias("max_timestamp_ms"),
        F.max(F.coalesce(F.col("records") < span, F.lit(False))).alias("thinned"),
        F.max(F.coalesce(F.col("records") > span, F.lit(False))).alias("overfull"),
        F.sum(damaged.cast("long")).alias("damaged"),
    )


def known(
    partitions: Iterable[Place], directories: Iterable[LogDirectory], compacted: Collection[str] = ()
) -> list[dict[str, object]]:
    """All replicas with the offsets from their checkpoint files: rows of ``KNOWN``.

    ``compacted`` are the topics whose ``cleanup.policy`` has ever included ``compact``. ``cleaner``: compaction may have
    removed records, here or in the replica that this one was fetched from.
    """
    beside = {directory.path: directory for directory in directories}
    cleaned = {key for each in beside.values() for key, upto in each.cleaned_up_to.items() if upto > 0}
    return [
        {
            "log_dir": log_dir,
            "topic": topic,
            "partition": partition,
            "log_start": beside[log_dir].log_starts.get((topic, partition)),
            "high_watermark": beside[log_dir].high_watermarks.get((topic, partition)),
            "cleaned_up_to": beside[log_dir].cleaned_up_to.get((topic, partition)),
            "cleaner": (topic, partition) in cleaned or topic in compacted,
            "whole": beside[log_dir].whole,
            "indexed_below": beside[log_dir].indexed_below(topic, partition),
        }
        for log_dir, topic, partition in partitions
    ]


def replicas(parts: DataFrame, names: DataFrame) -> DataFrame:
    """One row per replica that has batches, from its buckets and the rows of ``known``.

    ``contiguous``: each batch begins where the previous batch ended. ``compacted``: the log may be compacted, so gaps are
    legal. ``speaks``: true for the chosen replica, the one of the partition's last leader (the highest leader epoch, then
    the highest end offset). A replica that was stopped earlier lacks later batches, which is no error.
    """
    whole = parts.groupBy("replica").agg(
        F.min("first_offset").alias("first_offset"),
        F.max("end_offset").alias("end_offset"),
        F.sum("offsets").alias("offsets"),
        F.bit_xor("bases").alias("bases"),
        F.bit_xor("ends").alias("ends"),
        F.sum("batches").alias("batches"),
        F.sum("records").alias("records"),
        F.sum("bytes").alias("bytes"),
        F.max("leader_epoch").alias("leader_epoch"),
        F.min("first_leader_epoch").alias("first_leader_epoch"),
        F.max("max_timestamp_ms").alias("max_timestamp_ms"),
        F.max("thinned").alias("thinned"),
        F.max("overfull").alias("overfull"),
        F.sum("damaged").alias("damaged"),
    )
    telescoped = F.xxhash64("first_offset").bitwiseXOR(F.xxhash64("end_offset"))
    adds_up = (F.col("bases").bitwiseXOR(F.col("ends")) == telescoped) & (
        F.col("offsets") == F.col("end_offset") - F.col("first_offset")
    )
    copies = Window.partitionBy("topic", "partition")
    best = F.max(F.struct("leader_epoch", "end_offset", "log_dir")).over(copies)
    # The coordinators' internal topics are compacted on every broker. For a partition that was copied without the checkpoint
    # files, records that are missing inside batches are the only sign of compaction.
    of_coordinators = F.col("topic").isin(CONSUMER_OFFSETS, TRANSACTION_STATE)
    always = of_coordinators & (F.col("thinned") | ~F.col("contiguous"))
    by_records = F.col("thinned") & ~F.col("whole")
    replica = replica_of(F.col("log_dir"), F.col("topic"), F.col("partition"))
    return (
        whole.join(F.broadcast(names.withColumn("replica", replica)), "replica")
        .withColumn("contiguous", F.coalesce(adds_up, F.lit(True)).cast(BooleanType()))
        .withColumn("compacted", F.col("cleaner") | always | by_records)
        .withColumn("miscounted", F.col("overfull") | (F.col("thinned") & ~F.col("compacted")))
        .withColumn("speaks", F.col("log_dir") == best["log_dir"])
        .withColumn("copies", F.count("*").over(copies))
        .drop("bases", "ends", "offsets", "overfull", "cleaner", "whole")
    )


def of_replicas(rows: DataFrame, table: DataFrame, *columns: str) -> DataFrame:
    """Add to each row ``columns`` of its replica, from the ``table`` of replicas."""
    return rows.join(F.broadcast(table.select("replica", *columns)), "replica")
