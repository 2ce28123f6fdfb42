"""Zeros behind the last batch of a segment: preallocated space, or lost batches.

With ``preallocate`` Kafka creates the file of a segment with the length ``segment.bytes``. It truncates the file to its
batches when the next segment begins (LogSegment.onBecomeInactiveSegment), before the file of the next segment exists,
and when the broker stops cleanly (FileRecords.close). So only the last segment of a running or killed broker may end in
zeros, and only above the recovery point, because everything below it has been flushed. Whether a topic had
``preallocate`` is not checked, because the log directories do not contain the broker's default configuration.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.spark.audit.batch_headers import replica_of
from odradek.spark.audit.findings import WARNING, finding

_BASE_DIGITS = 20


def zero_tails(everything: DataFrame, known: DataFrame) -> DataFrame:
    """The rows of zeros among ``everything``, with ``end_offset``, ``lost`` and ``misplaced``.

    ``end_offset``: the end of the last batch before the zeros. ``misplaced``: batches follow the zeros in the log, so they
    are not preallocated space. ``lost``: no crash explains the zeros, because the broker had flushed the batches or
    truncated the file. ``known`` has ``indexed_below`` of each replica (``replicas.KNOWN``), which is its recovery point.
    """
    zeros = everything.where("zeros")
    replica = replica_of(F.col("log_dir"), F.col("topic"), F.col("partition"))
    tail = zeros.select("replica", F.col("file").alias("in_file"), F.col("position").alias("at"))
    same_file = F.col("file") == F.col("in_file")
    before = (F.col("file") < F.col("in_file")) | (same_file & (F.col("position") < F.col("at")))
    ends = (
        everything.join(F.broadcast(tail), "replica")
        .groupBy("replica", F.col("in_file").alias("file"), F.col("at").alias("position"))
        .agg(
            (F.max(F.when(before, F.col("last_offset"))) + 1).alias("end_offset"),
            F.max((F.col("file") > F.col("in_file")) | (same_file & (F.col("position") > F.col("at")))).alias(
                "misplaced"
            ),
        )
    )
    recovered = known.select(replica.alias("replica"), "indexed_below")
    end_offset = F.coalesce("end_offset", F.substring("file", 1, _BASE_DIGITS).cast("long"))
    # A segment is truncated before it is flushed, and the recovery point is then the base offset of the next segment.
    lost = (F.col("end_offset") < F.col("indexed_below")) | (
        F.col("misplaced") & (F.col("end_offset") == F.col("indexed_below"))
    )
    return (
        zeros.join(F.broadcast(ends), ["replica", "file", "position"])
        .join(F.broadcast(recovered), "replica")
        .withColumn("end_offset", end_offset)
        .withColumn("lost", lost)
        .drop("zeros", "indexed_below")
    )


def as_damage(tails: DataFrame) -> DataFrame:
    """The zeros that are ``lost``, as rows for damaged ranges with an ``error``."""
    what = F.when(F.col("misplaced"), F.lit("; only the last segment may have them")).otherwise(
        F.lit(
            "; a broker truncates them when it stops cleanly, and has flushed all batches below its recovery point"
        )
    )
    return (
        tails.where("lost")
        .withColumn("error", F.concat("error", what))
        .drop("end_offset", "misplaced", "lost")
    )


def tail_findings(tails: DataFrame, holes: DataFrame) -> DataFrame:
    """Warnings for zeros within the log above the recovery point: a power failure leaves them, the next start removes them.

    If offsets are missing too, they have a finding of their own, and the zeros get no warning.
    """
    hole = holes.where("to_offset > from_offset and not cleaned").select(
        "replica", F.col("from_offset").alias("end_offset")
    )
    return (
        tails.where("misplaced and not lost")
        .join(hole, ["replica", "end_offset"], "left_anti")
        .select(
            finding(
                "damage",
                F.concat("error", F.lit("; batches follow them")),
                WARNING,
                file="file",
                position="position",
            )
        )
    )
