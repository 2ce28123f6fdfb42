"""Figures of the report that no rule depends on: shares, counts, latencies, and the data of the plots.

All figures use only the chosen replica of each partition (``speaks``: that of its last leader), so the replication
factor does not change them. ``spoken`` are the transactions in the chosen replicas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from odradek.spark.audit.counting import OUTCOMES

POINTS_MAX: Final = 120
"""Largest number of points in time on a plot."""


def named(transactions: DataFrame, replicas: DataFrame) -> DataFrame:
    """Add columns of the replica to ``transactions``: place, end offset, and whether it is chosen (``speaks``)."""
    names = replicas.select("replica", "log_dir", "topic", "partition", "speaks", "end_offset")
    return transactions.join(F.broadcast(names), "replica")


def topics(spoken: DataFrame) -> DataFrame:
    """Bytes of transactions by topic and outcome, with the most aborted bytes first."""

    def of(outcome: str) -> Column:
        return F.coalesce(F.sum(F.when(F.col("outcome") == outcome, F.col("bytes"))), F.lit(0))

    return (
        spoken.where("first_offset is not null")
        .groupBy("topic")
        .agg(*(of(outcome).alias(f"{outcome}_bytes") for outcome in ("commit", "abort", "open")))
        .orderBy(F.desc("abort_bytes"), F.desc("commit_bytes"), "topic")
    )


def empty_markers(spoken: DataFrame) -> DataFrame:
    """Markers without data: the partition was added to the transaction and never written, which is legal."""
    return (
        spoken.where("marker_offset is not null and first_offset is null")
        .groupBy("topic", "partition", "outcome")
        .agg(F.count("*").alias("markers"), F.min("marker_offset").alias("first_offset"))
        .orderBy("topic", "partition", "outcome")
    )


@dataclass(frozen=True)
class Span:
    """The time from the first marker to the last one, divided into equal steps for the plots."""

    from_ms: int
    to_ms: int

    def step(self, column: str) -> Column:
        """The beginning of the step that contains the time in ``column``, in milliseconds."""
        width = max((self.to_ms - self.from_ms) // POINTS_MAX + 1, 1)
        steps = F.floor((F.col(column) - self.from_ms) / width)
        return (steps * width + self.from_ms).cast("long")


def _ended(spoken: DataFrame, span: Span) -> DataFrame:
    return spoken.where("marker_offset is not null and first_offset is not null").withColumn(
        "at_ms", span.step("marker_ms")
    )


def stable_offset_lag(spoken: DataFrame, span: Span) -> DataFrame:
    """Lag of the last stable offset that transactions caused in each partition, by the time of their markers.

    The lag is the number of offsets from the first batch of a transaction to its marker: a read_committed consumer could not
    read them before the marker was written.
    """
    return (
        _ended(spoken, span)
        .groupBy("topic", "partition", "at_ms")
        .agg(F.max(F.col("marker_offset") - F.col("first_offset")).alias("lag_offsets"))
        .withColumn("most", F.max("lag_offsets").over(Window.partitionBy("topic", "partition")))
        .orderBy(F.desc("most"), "topic", "partition", "at_ms")
        .drop("most")
    )


def assigned(spoken: DataFrame, decisions: DataFrame) -> DataFrame:
    """Ended transactions by partition, with ``its``: the last decision of the producer before the marker, by timestamp.

    ``bumped`` is true if the marker has a higher epoch than the data, so that no other transaction has this epoch.
    """
    decided = decisions.select(
        "producer_id",
        F.col("prepare_ms").alias("ms"),
        F.lit(0).alias("order"),
        F.struct(
            "coordinator_partition", "offset", "decision", "start_ms", "prepare_ms", "complete_ms"
        ).alias("its"),
    )
    ended = spoken.where("marker_offset is not null").select(
        "producer_id",
        F.col("marker_ms").alias("ms"),
        F.lit(1).alias("order"),
        "replica",
        "topic",
        "partition",
        "first_offset",
        "last_offset",
        "first_ms",
        "records",
        "bytes",
        "marker_offset",
        "marker_epoch",
        "marker_ms",
        "outcome",
        F.coalesce(F.col("last_epoch") < F.col("marker_epoch"), F.lit(False)).alias("bumped"),
    )
    before = (
        Window.partitionBy("producer_id").orderBy("ms", "order").rowsBetween(Window.unboundedPreceding, 0)
    )
    return (
        ended.unionByName(decided, allowMissingColumns=True)
        .withColumn("its", F.last("its", True).over(before))
        .where("order = 1")
        .drop("ms", "order")
    )


def commit_latency(assigned_ones: DataFrame) -> DataFrame:
    """Percentiles of the time (ms) from a transaction's decision, beginning and first batch to its last marker.

    One row per decision (commit, abort) and coordinator partition, and one row per decision for all coordinator partitions
    (``coordinator_partition`` is null). The first batch has the client's timestamp; all other timestamps are the brokers'.
    """
    each = (
        assigned_ones.where("its is not null")
        .groupBy("producer_id", "its")
        .agg(F.max("marker_ms").alias("ended_ms"), F.min("first_ms").alias("first_ms"))
        .select("its.*", "ended_ms", "first_ms")
        # A marker long after CompleteCommit or CompleteAbort was written by an operator's kafka-transactions.
        .where("complete_ms is null or ended_ms <= complete_ms")
    )
    measures = {
        "prepare_to_marker": F.col("ended_ms") - F.col("prepare_ms"),
        "start_to_marker": F.col("ended_ms") - F.col("start_ms"),
        "first_batch_to_marker": F.col("ended_ms") - F.col("first_ms"),
    }
    aggregates = [F.count("*").alias("transactions")]
    for name, value in measures.items():
        tails = F.percentile_approx(value, F.array(F.lit(0.5), F.lit(0.95), F.lit(0.99)))
        aggregates += [tails.alias(name), F.max(value).alias(f"{name}_max")]
    flat = [
        column
        for name in measures
        for column in (
            *(F.col(name)[index].alias(f"{name}_{tail}") for index, tail in enumerate(("p50", "p95", "p99"))),
            F.col(f"{name}_max"),
        )
    ]
    return (
        each.rollup("decision", "coordinator_partition")
        .agg(*aggregates)
        .where("decision is not null")
        .select("decision", "coordinator_partition", "transactions", *flat)
        .orderBy("decision", F.col("coordinator_partition").asc_nulls_first())
    )


def totals(replicas: DataFrame) -> DataFrame:
    """One row of sums over all replicas.

    They are the number of replicas; the number of partitions, and the batches, records and bytes of the chosen replicas; and
    numbers that show which rules of the audit can have findings.
    """
    spoken = F.col("speaks")

    def of_speaking(column: str) -> Column:
        return F.coalesce(F.sum(F.when(spoken, F.col(column))), F.lit(0))

    return replicas.agg(
        F.count("*").alias("replicas"),
        F.coalesce(F.sum(spoken.cast("long")), F.lit(0)).alias("partitions"),
        of_speaking("batches").alias("batches"),
        of_speaking("records").alias("records"),
        of_speaking("bytes").alias("bytes"),
        F.coalesce(F.sum("damaged"), F.lit(0)).alias("damaged"),
        F.coalesce(F.sum((~F.col("contiguous")).cast("long")), F.lit(0)).alias("uneven"),
        F.coalesce(F.sum(F.col("miscounted").cast("long")), F.lit(0)).alias("miscounted"),
        F.coalesce(F.sum((F.col("first_leader_epoch") < F.col("leader_epoch")).cast("long")), F.lit(0)).alias(
            "several_leader_epochs"
        ),
        F.coalesce(F.max("copies"), F.lit(0)).alias("copies"),
    )


def transaction_totals(transactions: DataFrame) -> DataFrame:
    """One row with the records and bytes of transactions by outcome, and the records outside transactions."""
    inside = F.col("first_offset").isNotNull()
    spoken = F.col("speaks")

    def of(outcome: str, column: str) -> Column:
        counted = spoken & inside & (F.col("outcome") == outcome)
        return F.coalesce(F.sum(F.when(counted, F.col(column))), F.lit(0))

    def of_all(column: Column) -> Column:
        return F.coalesce(F.sum(F.when(spoken, column)), F.lit(0))

    return transactions.agg(
        *(
            of(outcome, column).alias(f"{name}_{column}")
            for outcome, name in OUTCOMES
            for column in ("records", "bytes")
        ),
        of_all(F.col("plain_records")).alias("idempotent_records"),
        of_all((F.col("marker_offset").isNotNull() & ~inside).cast("long")).alias("empty_markers"),
        F.coalesce(F.sum(F.col("suspicious").cast("long")), F.lit(0)).alias("suspicious"),
        F.count("plain_offset").alias("plain_producers"),
        F.coalesce(F.min("marker_ms"), F.lit(0)).alias("from_ms"),
        F.coalesce(F.max("marker_ms"), F.lit(0)).alias("to_ms"),
    )
