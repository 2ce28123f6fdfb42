"""Producers that a transactional id has: all their batches are transactional, and their markers have a known id.

A producer id belongs to one transactional id for good, or to none (InitProducerId without a transactional id gives a new
one). The Java client and librdkafka set the transactional bit on every batch of a transactional producer, and the broker
keeps it: without the bit a consumer with ``read_committed`` sees the batch, whatever the marker says.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.spark.audit.findings import finding


def plain_findings(transactions: DataFrame, ids: DataFrame) -> DataFrame:
    """Batches without the transactional bit, of producers that have transactional batches, markers or an id."""
    transactional = (
        transactions.where("first_offset is not null or marker_offset is not null")
        .select("producer_id")
        .union(ids.select("producer_id"))
        .distinct()
    )
    return (
        transactions.where("plain_offset is not null")
        .join(transactional, "producer_id", "left_semi")
        .groupBy("replica", "producer_id")
        .agg(F.min("plain_offset").alias("plain_offset"), F.sum("plain_records").alias("plain_records"))
        .select(
            finding(
                "not_transactional",
                F.format_string(
                    "a transactional producer wrote it without the transactional bit; so it did with %d records here",
                    "plain_records",
                ),
                offset="plain_offset",
                producer_id="producer_id",
            )
        )
    )


def strangers(spoken: DataFrame, steps: DataFrame) -> DataFrame:
    """Markers whose producer id is in no record that was read of the coordinators: one row per replica and producer."""
    known = steps.select(
        F.explode(F.array("producer_id", "previous_producer_id", "next_producer_id")).alias("producer_id")
    )
    return (
        spoken.where("marker_offset is not null")
        .join(F.broadcast(known.distinct()), "producer_id", "left_anti")
        .groupBy("replica", "producer_id")
        .agg(
            F.min_by(F.struct("marker_offset", "marker_epoch", "outcome"), "marker_offset").alias("first"),
            F.max("marker_ms").alias("marker_ms"),
            F.count("*").alias("markers"),
        )
    )


def unknown_findings(strangers_found: DataFrame, given: DataFrame, since_ms: int) -> DataFrame:
    """Of ``strangers`` those that no transactional id has had. Only while the coordinators' logs are complete.

    The coordinator writes a producer id down before its client has it, so ``given``, which was read after the markers, has
    the ids of all of them, also of coordinators that came to work between the two. ``since_ms`` is when
    ``__transaction_state`` was created: a topic that was deleted and created again does not know the producers of before.
    """
    return (
        strangers_found.where(F.col("marker_ms") >= since_ms)
        .join(F.broadcast(given), "producer_id", "left_anti")
        .select(
            finding(
                "unknown_producer",
                F.format_string(
                    "the first of %d %s markers of a producer id that no transactional id has had",
                    "markers",
                    "first.outcome",
                ),
                offset="first.marker_offset",
                producer_id="producer_id",
                producer_epoch="first.marker_epoch",
            )
        )
    )
