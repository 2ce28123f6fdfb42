"""Offsets that were committed in transactions: they must have the same outcome as the records of the transaction.

This is the consume-transform-produce loop. The rule compares the outcome that the marker in ``__consumer_offsets`` gave to
a group's offsets with the outcome of the transaction in the other partitions.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.spark.audit.batch_headers import CONSUMER_OFFSETS, replica_of
from odradek.spark.audit.findings import WARNING, finding


def offsets_in_transactions(offsets: DataFrame, assigned: DataFrame) -> DataFrame:
    """One row per transaction and group: ``offsets`` (partitions committed), ``outcome``, ``output_partitions``, ``agrees``.

    The markers of a transaction are matched by its epoch if no other transaction has that epoch (``bumped`` in
    ``assigned``), else by the decision before the markers. If compaction has removed that decision, the transaction's
    outputs cannot be identified and ``output_partitions`` is null. ``agrees`` is false if an output has another outcome
    than the offsets. Open transactions are not included.
    """
    of_its_own, decided = F.lit(-1) - F.col("marker_epoch"), F.col("its.offset")
    ended = assigned.withColumn("transaction", F.when(F.col("bumped"), of_its_own).otherwise(decided))
    committed = (
        offsets.where("error is null and transactional and not control and kind = 'offset'")
        .withColumn("replica", replica_of(F.col("log_dir"), F.lit(CONSUMER_OFFSETS), F.col("log_partition")))
        .select(
            "replica",
            "producer_id",
            "group",
            "offset",
            F.col("topic").alias("of_topic"),
            F.col("partition").alias("of"),
        )
    )
    inside = F.col("offset").between(F.col("first_offset"), F.col("last_offset"))
    here = (
        ended.where(F.col("topic") == CONSUMER_OFFSETS)
        .select(
            "replica",
            "producer_id",
            "transaction",
            "outcome",
            "first_offset",
            "last_offset",
            "marker_offset",
            "marker_epoch",
        )
        .join(committed, ["replica", "producer_id"])
        .where(inside)
        .groupBy("replica", "producer_id", "transaction", "outcome", "marker_offset", "marker_epoch", "group")
        .agg(F.count_distinct("of_topic", "of").alias("offsets"))
    )
    outputs = (
        ended.where((F.col("topic") != CONSUMER_OFFSETS) & F.col("first_offset").isNotNull())
        .groupBy("producer_id", "transaction")
        .agg(
            F.count("*").alias("output_partitions"),
            F.sum("records").alias("output_records"),
            F.collect_set("outcome").alias("output_outcomes"),
        )
    )
    other = F.size(F.array_except("output_outcomes", F.array("outcome"))) > 0
    return here.join(outputs, ["producer_id", "transaction"], "left").withColumn(
        "agrees", ~F.coalesce(other, F.lit(False))
    )


def offset_findings(apart: DataFrame, blamed: Sequence[DataFrame]) -> DataFrame:
    """Findings for offsets with another outcome than the transaction's outputs.

    Producers in ``blamed``, which have findings for different outcomes already, are left out.
    """
    for known in blamed:
        apart = apart.join(F.broadcast(known.select("producer_id").distinct()), "producer_id", "left_anti")
    return apart.select(
        finding(
            "offsets_apart",
            F.format_string(
                "offsets of group %s: %s, records of the same transaction: %s",
                "group",
                "outcome",
                F.array_join("output_outcomes", " and "),
            ),
            WARNING,
            offset="marker_offset",
            producer_id="producer_id",
            producer_epoch="marker_epoch",
        )
    )
