"""The records of the transaction coordinators: the states of each transactional id, its decisions, and its producer ids.

A decision is a record with the state PrepareCommit or PrepareAbort. A decision lists the partitions; the Complete* record
after it has an empty list. ``__transaction_state`` is compacted: the log has at least the last record of each id, and of the
earlier records the newest ones.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from odradek.spark.audit.batch_headers import TRANSACTION_STATE, milliseconds, replica_of
from odradek.spark.audit.findings import finding

# TransactionState.java, validPreviousStates; with transaction version 2, Kafka also aborts from Empty and Complete*.
# The audit checks the coordinator, so it has its own copy of the coordinator's table; a test compares the two.
VALID_PREDECESSORS: Final = {
    "Empty": ("Empty", "CompleteCommit", "CompleteAbort"),
    "Ongoing": ("Ongoing", "Empty", "CompleteCommit", "CompleteAbort"),
    "PrepareCommit": ("Ongoing",),
    "PrepareAbort": ("Ongoing", "PrepareEpochFence", "Empty", "CompleteCommit", "CompleteAbort"),
    "CompleteCommit": ("PrepareCommit",),
    "CompleteAbort": ("PrepareAbort",),
}


def history(transaction_state: DataFrame) -> DataFrame:
    """Offsets and producer ids of the coordinators' records in all replicas, for `incomplete` and `given`.

    The offsets show whether records are missing. The producer ids are those that coordinators have allocated.
    """
    return transaction_state.where(F.col("error").isNull() & F.col("offset").isNotNull()).select(
        replica_of(F.col("log_dir"), F.lit(TRANSACTION_STATE), F.col("partition")).alias("replica"),
        "offset",
        F.array("producer_id", "previous_producer_id", "next_producer_id").alias("producer_ids"),
    )


def given(history_read: DataFrame) -> DataFrame:
    """All producer ids that coordinators have allocated to transactional ids, as ``producer_id``."""
    return (
        history_read.select(F.explode("producer_ids").alias("producer_id"))
        .where("producer_id >= 0")
        .distinct()
    )


def incomplete(history_read: DataFrame, replicas: DataFrame) -> DataFrame:
    """Chosen replicas (``speaks``) of ``__transaction_state`` that lack records: compacted, damaged or deleted ones.

    A partition's chosen replica is that of its last leader. ``replicas`` must be read before the history, because a
    broker may compact and append in between.
    """
    speaking = replicas.where((F.col("topic") == TRANSACTION_STATE) & F.col("speaks")).select(
        "replica", "end_offset"
    )
    there = (
        history_read.join(F.broadcast(speaking), "replica")
        .where("offset < end_offset")
        .groupBy("replica")
        .agg(F.count_distinct("offset").alias("there"))
    )
    return speaking.join(there, "replica", "left").where(F.coalesce("there", F.lit(0)) < F.col("end_offset"))


def steps(transaction_state: DataFrame, replicas: DataFrame) -> DataFrame:
    """The records of the chosen replicas, each with the previous and the next state of its transactional id.

    In ``replicas``, the column ``speaks`` is true for the chosen replica of each partition: the replica of the node
    that led the partition last. Times are in milliseconds.
    """
    speaking = replicas.where((F.col("topic") == TRANSACTION_STATE) & F.col("speaks")).select(
        "replica", "first_offset", "compacted"
    )
    life = Window.partitionBy("transactional_id").orderBy("partition", "offset")
    rows = (
        transaction_state.where(F.col("error").isNull() & F.col("transactional_id").isNotNull())
        .withColumn("replica", replica_of(F.col("log_dir"), F.lit(TRANSACTION_STATE), F.col("partition")))
        .join(F.broadcast(speaking), "replica")
    )
    return rows.select(
        "replica",
        "partition",
        "offset",
        "file",
        "position",
        "transactional_id",
        "producer_id",
        "producer_epoch",
        "previous_producer_id",
        "next_producer_id",
        "transaction_timeout_ms",
        "state",
        "partitions",
        milliseconds("last_update").alias("update_ms"),
        milliseconds("start").alias("start_ms"),
        "client_transaction_version",
        "tombstone",
        "first_offset",
        "compacted",
        F.lag("state").over(life).alias("state_before"),
        F.lag("tombstone").over(life).alias("tombstone_before"),
        F.lag("producer_id").over(life).alias("producer_before"),
        F.lag("producer_epoch").over(life).alias("epoch_before"),
        F.lead("state").over(life).alias("next_state"),
        # Not the record's last_update: it is taken before the markers are sent (TransactionMetadata.prepareComplete).
        F.lead(milliseconds("timestamp")).over(life).alias("next_ms"),
        (F.lead("offset").over(life).isNull()).alias("latest"),
    )


def _is_legal(state: Column, before: Column) -> Column:
    legal = F.lit(False)
    for name, earlier in VALID_PREDECESSORS.items():
        legal = legal | ((state == name) & before.isin(*earlier))
    return legal


def transition_findings(steps_found: DataFrame) -> DataFrame:
    """Findings for invalid transitions between the states of a transactional id, from the result of `steps`.

    Compaction removes only the oldest records of an id, so the remaining records are consecutive.
    """
    first = F.col("state_before").isNull()
    # The first record of an id, or the first after its tombstone, must be Empty, unless compaction removed earlier ones.
    begins = first & (F.col("tombstone_before") | ((F.col("first_offset") == 0) & ~F.col("compacted")))
    wrong = F.when(first, F.coalesce(begins, F.lit(False)) & (F.col("state") != "Empty")).otherwise(
        ~_is_legal(F.col("state"), F.col("state_before"))
    )
    return steps_found.where(F.col("state").isNotNull() & wrong).select(
        finding(
            "illegal_transition",
            F.format_string("%s after %s", "state", F.coalesce("state_before", F.lit("nothing"))),
            offset="offset",
            file="file",
            position="position",
            producer_id="producer_id",
            producer_epoch="producer_epoch",
            transactional_id="transactional_id",
        )
    )


def decisions(steps_found: DataFrame) -> DataFrame:
    """One row per decision in the result of `steps`.

    ``bumped``: the epoch of the decision and its markers is higher than the epoch of the data. The epoch is higher with
    transaction version 2, and if the coordinator fenced the producer. ``complete_ms`` is null while markers are
    outstanding.
    """
    known = F.col("state_before") == "Ongoing"
    bumped = F.when(known, F.col("producer_epoch") > F.col("epoch_before")).otherwise(
        F.col("client_transaction_version") >= 2
    )
    return steps_found.where(F.col("state").isin("PrepareCommit", "PrepareAbort")).select(
        F.col("partition").alias("coordinator_partition"),
        "offset",
        "transactional_id",
        "producer_id",
        "producer_epoch",
        F.when(F.col("state") == "PrepareCommit", "commit").otherwise("abort").alias("decision"),
        F.coalesce(bumped, F.lit(False)).alias("bumped"),
        "partitions",
        "start_ms",
        F.col("update_ms").alias("prepare_ms"),
        F.when(F.col("next_state").startswith("Complete"), F.col("next_ms")).alias("complete_ms"),
    )


def current(steps_found: DataFrame) -> DataFrame:
    """The rows of `steps` with the last record of each transactional id, unless that record is a tombstone."""
    return steps_found.where(F.col("latest") & ~F.coalesce("tombstone", F.lit(False)))


def ids(steps_found: DataFrame) -> DataFrame:
    """The ``transactional_id`` of each ``producer_id``. A producer id is never allocated to a second transactional id."""
    return (
        steps_found.where("producer_id >= 0")
        .groupBy("producer_id")
        .agg(F.max("transactional_id").alias("transactional_id"))
    )
