"""Gaps between the offsets of batches, offsets that two batches have, and damaged ranges.

A log is written without gaps; only the cleaner creates gaps. The offset at which a log begins is not checked: retention and
DeleteRecords move it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from odradek.spark.audit.batch_headers import sound
from odradek.spark.audit.findings import VIOLATION, WARNING, finding

TORN: Final = "torn tail"
"""Prefix of the error texts with which ``odradek.segments`` reports an incomplete last batch."""


def holes(rows: DataFrame, replicas: DataFrame, unsure: Sequence[str] = ()) -> DataFrame:
    """Places where a batch does not begin where the previous batch ended: ``from_offset`` (inclusive) to ``to_offset``.

    An overlap has ``to_offset < from_offset``. ``damaged``: there are unreadable bytes between the two batches. ``cleaned``:
    the log was compacted, and neither batch is in the last segment, which the cleaner does not touch. ``unsure`` are log
    directories without the checkpoint files that show whether the cleaner has run.
    """
    uneven = replicas.where(~F.col("contiguous")).select("replica", "compacted")
    of_doubt = F.col("log_dir").isin(*unsure)
    order = Window.partitionBy("replica").orderBy("file", "position")
    whole = Window.partitionBy("replica")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    damage = F.col("error").isNotNull()
    last_end = F.last(F.when(~damage, F.col("last_offset")), True)
    return (
        rows.join(F.broadcast(uneven), "replica")
        .select(
            "replica",
            "base_offset",
            "last_offset",
            "producer_id",
            "producer_epoch",
            "file",
            "position",
            "compacted",
            of_doubt.alias("unsure"),
            damage.alias("damage"),
            (last_end.over(before) + 1).alias("from_offset"),
            # Damaged ranges since the last sound batch: their number before this batch minus that before the last one.
            F.count(F.when(damage, F.lit(1))).over(before).alias("damage_before"),
            F.max("file").over(whole).alias("last_file"),
            F.last(F.when(~damage, F.col("file")), True).over(before).alias("file_before"),
        )
        .where(~F.col("damage"))
        .withColumn("damage_lag", F.lag("damage_before").over(order))
        .where(F.col("base_offset") != F.col("from_offset"))
        .select(
            "replica",
            "from_offset",
            F.col("base_offset").alias("to_offset"),
            "producer_id",
            "producer_epoch",
            "file",
            "position",
            "unsure",
            (F.col("damage_before") > F.coalesce("damage_lag", F.lit(0))).alias("damaged"),
            (F.col("compacted") & (F.col("file_before") != F.col("last_file"))).alias("cleaned"),
        )
    )


def offset_findings(holes_found: DataFrame) -> DataFrame:
    of = {"offset": "to_offset", "producer_id": "producer_id", "producer_epoch": "producer_epoch"}
    place = {"file": "file", "position": "position"}
    count = F.col("to_offset") - F.col("from_offset")
    missing = holes_found.where((count > 0) & ~F.col("damaged") & ~F.col("cleaned"))
    overlaps = holes_found.where(count < 0)
    return missing.select(
        finding(
            "lost_offsets",
            F.concat(
                F.format_string("%d offsets from %d on are in no batch", count, "from_offset"),
                F.when(F.col("unsure"), F.lit("; legal if the log was compacted")).otherwise(F.lit("")),
            ),
            F.when(F.col("unsure"), WARNING).otherwise(VIOLATION),
            **of,
            **place,
        )
    ).unionByName(
        overlaps.select(
            finding(
                "overlapping_offsets",
                F.format_string(
                    "begins at offset %d, but the batch before it ends at offset %d",
                    "to_offset",
                    F.col("from_offset") - 1,
                ),
                **of,
                **place,
            )
        )
    )


def damage_findings(rows: DataFrame) -> DataFrame:
    """Findings for damaged ranges. A torn tail is a warning: a crash leaves it, and the next start truncates it."""
    damaged = rows.where(F.col("error").isNotNull())
    # Of the sound batches, only the name of the last file is needed.
    last_files = (
        rows.join(F.broadcast(damaged.select("replica").distinct()), "replica", "left_semi")
        .groupBy("replica")
        .agg(F.max("file").alias("last_file"))
    )
    torn = F.lower("error").startswith(TORN) & (F.col("file") == F.col("last_file"))
    return damaged.join(F.broadcast(last_files), "replica").select(
        finding(
            F.when(torn, "torn_tail").otherwise("damage"),
            F.col("error"),
            F.when(torn, WARNING).otherwise(VIOLATION),
            offset="base_offset",
            file="file",
            position="position",
        )
    )


def count_findings(rows: DataFrame, replicas: DataFrame) -> DataFrame:
    """Findings for batches whose number of records does not match their offsets.

    Kafka rejects such a batch at the append (LogValidator.validateBatch), and only compaction removes records later.
    """
    miscounted = replicas.where("miscounted").select("replica", "compacted")
    offsets = F.col("last_offset") - F.col("base_offset") + 1
    wrong = (F.col("records") > offsets) | ((F.col("records") < offsets) & ~F.col("compacted"))
    return (
        sound(rows)
        .join(F.broadcast(miscounted), "replica")
        .where(wrong)
        .select(
            finding(
                "record_count",
                F.format_string("%d records in a batch of %d offsets", "records", offsets),
                offset="base_offset",
                file="file",
                position="position",
                producer_id="producer_id",
                producer_epoch="producer_epoch",
            )
        )
    )
