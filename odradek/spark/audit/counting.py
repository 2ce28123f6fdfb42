"""Count each transaction once, however many partitions it wrote to.

A transaction ends with one decision of its coordinator. In a partition, the epoch of the marker identifies the
transaction if no other transaction has that epoch (KIP-890, or the coordinator has fenced the producer). Otherwise, the
decision before the marker identifies it. Where epochs are shared and compaction has removed the decisions, the n-th
commit markers of all partitions are counted as one transaction, and so are the n-th abort markers. This count is never
too high, but may be too low.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

OUTCOMES: Final = (("commit", "committed"), ("abort", "aborted"), ("open", "open"))


def counted(assigned: DataFrame, spoken: DataFrame) -> DataFrame:
    """One row for each transaction and partition with data.

    ``transaction`` is a number, equal in all partitions of a transaction. ``assigned``: the ended transactions
    with their decisions (`figures.assigned`). ``spoken``: all transactions in the chosen replicas.
    """
    alike = Window.partitionBy("replica", "producer_id", "marker_epoch", "outcome").orderBy("marker_offset")
    key = (
        F.when(F.col("bumped"), F.xxhash64("producer_id", "marker_epoch"))
        .when(
            F.col("its").isNotNull(),
            F.xxhash64("producer_id", F.lit("decision"), "its.coordinator_partition", "its.offset"),
        )
        .otherwise(F.xxhash64("producer_id", "marker_epoch", "outcome", F.row_number().over(alike)))
    )
    columns = ("producer_id", "topic", "outcome", "marker_ms", "records", "bytes")
    ended = assigned.where("first_offset is not null").select(key.alias("transaction"), *columns)
    # A producer has at most one open transaction.
    still_open = spoken.where("outcome = 'open'").select(
        F.xxhash64("producer_id").alias("transaction"), *columns
    )
    return ended.unionByName(still_open)


def totals(transactions: DataFrame) -> DataFrame:
    """One row with the numbers ``committed_transactions``, ``aborted_transactions`` and ``open_transactions``."""
    return transactions.agg(
        *(
            F.count_distinct(F.when(F.col("outcome") == outcome, F.col("transaction"))).alias(
                f"{name}_transactions"
            )
            for outcome, name in OUTCOMES
        )
    )


def outcomes(transactions: DataFrame, ids: DataFrame) -> DataFrame:
    """Numbers of committed, aborted and open transactions by transactional id and topic, and the share of aborted bytes."""

    def of(outcome: str, column: str) -> Column:
        return F.coalesce(F.sum(F.when(F.col("outcome") == outcome, F.col(column))), F.lit(0))

    counts = [
        column
        for outcome, _ in OUTCOMES
        for column in (
            F.count_distinct(F.when(F.col("outcome") == outcome, F.col("transaction"))).alias(
                f"{outcome}_transactions"
            ),
            of(outcome, "records").alias(f"{outcome}_records"),
            of(outcome, "bytes").alias(f"{outcome}_bytes"),
        )
    ]
    everything = F.col("commit_bytes") + F.col("abort_bytes") + F.col("open_bytes")
    return (
        transactions.join(F.broadcast(ids), "producer_id", "left")
        .groupBy("transactional_id", "topic")
        .agg(*counts)
        .withColumn("aborted_share", F.col("abort_bytes") / everything)
        .orderBy(F.desc("abort_bytes"), "transactional_id", "topic")
    )


def by_time(transactions: DataFrame, step: Column) -> DataFrame:
    """Number, records and bytes of ended transactions, by outcome and by the interval ``step`` of their last marker."""
    return (
        transactions.where("outcome != 'open'")
        .groupBy("transaction", "outcome")
        .agg(
            F.max("marker_ms").alias("marker_ms"),
            F.sum("records").alias("records"),
            F.sum("bytes").alias("bytes"),
        )
        .groupBy(step.alias("at_ms"), "outcome")
        .agg(
            F.count("*").alias("transactions"),
            F.sum("records").alias("records"),
            F.sum("bytes").alias("bytes"),
        )
        .orderBy("at_ms", "outcome")
    )
