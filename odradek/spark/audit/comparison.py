"""Compare the replicas of a partition: up to the smaller end offset they must have the same batches.

Two logs that have a batch of the same leader epoch at the same offset are equal up to that batch (in Kafka's replication as
in Raft). The log of a leader that died may end in unacknowledged batches: they have an older leader epoch than the other
replicas have at that offset, and are above that log's high watermark. The replica truncates these batches when it follows
again, so they are only a warning.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.spark.audit.batch_headers import sound
from odradek.spark.audit.findings import VIOLATION, WARNING, finding
from odradek.spark.audit.replicas import bucket, content


def differing_buckets(parts: DataFrame, replicas: DataFrame) -> DataFrame:
    """Buckets (ranges of offsets) in which a replica differs from the chosen replica of its partition.

    Columns: ``replica``, ``speaker`` (the chosen replica, which is that of the last leader), ``bucket``, and the
    offsets that both replicas have, ``from_offset`` to ``to_offset``.
    """
    copied = replicas.where((F.col("copies") > 1) & ~F.col("compacted") & (F.col("damaged") == 0))
    speakers = copied.where("speaks").select(
        "topic",
        "partition",
        F.col("replica").alias("speaker"),
        F.col("first_offset").alias("speaker_first"),
        F.col("end_offset").alias("speaker_end"),
    )
    others = copied.where(~F.col("speaks")).select(
        "topic", "partition", "replica", "first_offset", "end_offset", "high_watermark"
    )
    pairs = others.join(F.broadcast(speakers), ["topic", "partition"]).select(
        "replica",
        "speaker",
        F.greatest("first_offset", "speaker_first").alias("from_offset"),
        F.least("end_offset", "speaker_end").alias("to_offset"),
        "high_watermark",
    )
    sums = parts.select("replica", "bucket", "digest", "batches")
    theirs = sums.select(
        F.col("replica").alias("speaker"),
        "bucket",
        F.col("digest").alias("its_digest"),
        F.col("batches").alias("its_batches"),
    )
    alike = (F.col("digest") == F.col("its_digest")) & (F.col("batches") == F.col("its_batches"))
    return (
        sums.join(F.broadcast(pairs), "replica")
        .join(theirs, ["speaker", "bucket"])
        .where(~alike)
        .select("replica", "speaker", "bucket", "from_offset", "to_offset", "high_watermark")
    )


def replica_findings(rows: DataFrame, differing: DataFrame) -> DataFrame:
    """Findings for replicas that differ from their partition's chosen replica, each at its first differing batch."""
    wanted = F.broadcast(differing)
    batches = sound(rows).select(
        F.col("replica").alias("of"),
        "base_offset",
        "leader_epoch",
        "producer_id",
        "producer_epoch",
        bucket().alias("bucket"),
        content().alias("content"),
    )
    common = (F.col("base_offset") >= F.col("from_offset")) & (F.col("base_offset") < F.col("to_offset"))
    mine = batches.join(wanted, (F.col("of") == F.col("replica")) & (batches["bucket"] == wanted["bucket"]))
    theirs = batches.join(wanted, (F.col("of") == F.col("speaker")) & (batches["bucket"] == wanted["bucket"]))
    both = mine.where(common).select(
        "replica", "base_offset", "leader_epoch", "content", "high_watermark", "producer_id", "producer_epoch"
    )
    other = theirs.where(common).select(
        "replica",
        "base_offset",
        F.col("leader_epoch").alias("its_epoch"),
        F.col("content").alias("its_content"),
    )
    older = F.col("leader_epoch") < F.col("its_epoch")
    uncommitted = older & (F.col("base_offset") >= F.coalesce("high_watermark", F.lit(0)))
    first = F.min_by(
        F.struct(
            "base_offset", "leader_epoch", "its_epoch", "high_watermark", "producer_id", "producer_epoch"
        ),
        "base_offset",
    )
    return (
        both.join(other, ["replica", "base_offset"])
        .where("content != its_content")
        .groupBy("replica")
        .agg(first.alias("first"))
        .select("replica", "first.*")
        .select(
            finding(
                "replicas_differ",
                F.concat(
                    F.format_string(
                        "not the batch that the chosen replica has at this offset (leader epoch %d here, %d there)",
                        "leader_epoch",
                        "its_epoch",
                    ),
                    F.when(uncommitted, F.lit(": never acknowledged, truncated at the next start")).otherwise(
                        F.lit("")
                    ),
                ),
                F.when(uncommitted, WARNING).otherwise(VIOLATION),
                offset="base_offset",
                producer_id="producer_id",
                producer_epoch="producer_epoch",
            )
        )
    )
