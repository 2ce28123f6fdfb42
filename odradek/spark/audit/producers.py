"""Rules about producer ids: all batches of a transactional producer are transactional, and markers have allocated ids.

A producer id belongs to one transactional id forever, or to none (InitProducerId without a transactional id allocates a new
one). The Java client and librdkafka set the transactional bit in every batch of a transactional producer, and the broker
does not change it. A consumer with ``read_committed`` reads a batch without the bit even if the marker is an abort.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.spark.audit.findings import finding


def plain_findings(transactions: DataFrame, ids: DataFrame) -> DataFrame:
    """Findings for batches without the transactional bit, from producers that are transactional.

    A producer is transactional if it has a transactional id, a transactional batch or a marker.
    """
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
                    "a transactional producer's batch without the transactional bit (%d such records in the partition)",
                    "plain_records",
                ),
                offset="plain_offset",
                producer_id="producer_id",
            )
        )
    )


def strangers(spoken: DataFrame, steps: DataFrame) -> DataFrame:
    """Markers whose producer id is in none of the coordinators' records: one row per replica and producer.

    ``spoken`` are the transactions in the chosen replicas, ``steps`` the coordinators' records
    (`coordinator.steps`).
    """
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
    """Findings for ``strangers`` whose producer id was never allocated to a transactional id.

    The coordinators' logs must be complete. The coordinator writes a producer id to its log before its client gets the
    id. ``given`` (all allocated producer ids) is read after the markers, so it also has ids that were allocated while
    the audit was reading. ``since_ms`` is the time at which ``__transaction_state`` was created: a topic that was
    deleted and created again lacks the earlier producers.
    """
    return (
        strangers_found.where(F.col("marker_ms") >= since_ms)
        .join(F.broadcast(given), "producer_id", "left_anti")
        .select(
            finding(
                "unexpected_producer",
                F.format_string(
                    "the first of %d %s markers of a producer id that no transactional id ever had",
                    "markers",
                    "first.outcome",
                ),
                offset="first.marker_offset",
                producer_id="producer_id",
                producer_epoch="first.marker_epoch",
            )
        )
    )
