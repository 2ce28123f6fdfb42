"""Transactions without a marker: open ones with the records that they hold back, and hanging ones that never end."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.spark.audit.findings import finding


def open_transactions(spoken: DataFrame, replicas: DataFrame) -> DataFrame:
    """Transactions without a marker in their partition's chosen replica (that of the last leader).

    ``spoken`` are all transactions in the chosen replicas.
    ``held_offsets`` is the number of offsets from the transaction's first batch to the end of the log.
    """
    damage = replicas.select("replica", F.col("damaged").alias("damage"))
    return (
        spoken.where("outcome = 'open'")
        .join(F.broadcast(damage), "replica")
        .select(
            "replica",
            "log_dir",
            "topic",
            "partition",
            "producer_id",
            F.col("last_epoch").alias("producer_epoch"),
            "first_epoch",
            "first_offset",
            "last_offset",
            "first_ms",
            "records",
            "bytes",
            (F.col("end_offset") - F.col("first_offset")).alias("held_offsets"),
            F.col("bytes").alias("held_bytes"),
            "damage",
        )
    )


def held_bytes(rows: DataFrame, unfinished: DataFrame) -> DataFrame:
    """Add ``held_bytes``: the bytes that a read_committed consumer does not get because of the transaction."""
    wanted = unfinished.select("replica", "producer_id", "first_offset")
    behind = (
        rows.select("replica", "base_offset", "size_bytes")
        .join(F.broadcast(wanted), "replica")
        .where("base_offset >= first_offset")
        .groupBy("replica", "producer_id")
        .agg(F.sum("size_bytes").alias("held_bytes"))
    )
    return unfinished.drop("held_bytes").join(F.broadcast(behind), ["replica", "producer_id"], "left")


def _flagged(rows: DataFrame, flag: str, found: DataFrame | None, *keys: str) -> DataFrame:
    """Add the column ``flag`` to ``rows``: true where ``found`` has the same keys, else null."""
    if found is None:
        return rows.withColumn(flag, F.lit(None).cast("boolean"))
    return rows.join(
        F.broadcast(found.select(*keys).distinct().withColumn(flag, F.lit(True))), list(keys), "left"
    )


def classified(
    unfinished: DataFrame,
    current: DataFrame,
    ids: DataFrame,
    decisions: DataFrame,
    blamed: DataFrame | None,
    all_coordinators: bool,
    given: DataFrame | None = None,
) -> DataFrame:
    """Add ``status``, ``transactional_id``, ``state``, ``start_ms`` and ``timeout_ms`` to the ``unfinished`` transactions.

    The statuses: open (its coordinator has it as ongoing), ending (decided, its marker is not written yet), hanging (no
    coordinator will end it), blamed (another finding explains it: ``blamed`` has replica and producer_id), unknown (the
    replica is damaged; or no record of a coordinator has the producer id, and a coordinator's log was not read, or the
    id was allocated while the audit was reading: ``given`` contains the id).
    """
    state = current.select(
        "transactional_id",
        F.col("producer_id").alias("current_producer"),
        F.col("producer_epoch").alias("current_epoch"),
        "state",
        "start_ms",
        F.col("transaction_timeout_ms").alias("timeout_ms"),
        F.col("partitions").alias("in_transaction"),
    )
    outstanding = (
        decisions.where("complete_ms is null")
        .withColumn("listed", F.explode("partitions"))
        .select("producer_id", "listed.topic", "listed.partition")
        .distinct()
        .withColumn("outstanding", F.lit(True))
    )
    here = F.exists(
        "in_transaction",
        lambda each: (each["topic"] == F.col("topic")) & (each["partition"] == F.col("partition")),
    )
    known = (
        (F.col("state") == "Ongoing")
        & (F.col("current_producer") == F.col("producer_id"))
        & (F.col("current_epoch") == F.col("producer_epoch"))
        & here
    )
    not_asked = F.lit(not all_coordinators) | F.coalesce("given", F.lit(False))
    unknown = (F.col("damage") > 0) | (F.col("transactional_id").isNull() & not_asked)
    marked = _flagged(unfinished, "explained", blamed, "replica", "producer_id")
    marked = _flagged(marked, "given", given, "producer_id")
    return (
        marked.join(F.broadcast(ids), "producer_id", "left")
        .join(F.broadcast(state), "transactional_id", "left")
        .join(F.broadcast(outstanding), ["producer_id", "topic", "partition"], "left")
        .withColumn(
            "status",
            F.when(F.coalesce(known, F.lit(False)), "open")
            .when(F.col("outstanding"), "ending")
            .when(F.col("explained"), "blamed")
            .when(unknown, "unknown")
            .otherwise("hanging"),
        )
        .orderBy((F.col("status") == "open").cast("int"), F.desc("held_offsets"), "topic", "partition")
        .drop(
            "outstanding",
            "explained",
            "given",
            "in_transaction",
            "current_producer",
            "current_epoch",
            "damage",
        )
    )


def hanging_findings(classified_ones: DataFrame) -> DataFrame:
    says = (
        F.when(F.col("transactional_id").isNull(), F.lit("no transactional id has this producer id"))
        .when(F.col("state").isNull(), F.lit("its transactional id has expired"))
        .otherwise(
            F.format_string(
                "its transactional id is in state %s, without this partition",
                "state",
            )
        )
    )
    return classified_ones.where("status = 'hanging'").select(
        finding(
            "hanging_transaction",
            F.concat(says, F.format_string("; offsets held back from here on: %d", "held_offsets")),
            offset="first_offset",
            producer_id="producer_id",
            producer_epoch="producer_epoch",
            transactional_id="transactional_id",
        )
    )


def overtaken_findings(spoken: DataFrame, replicas: DataFrame, fallen: DataFrame | None) -> DataFrame:
    """Findings for data of two epochs that one marker ended.

    The marker between the data of the two epochs is missing, as a new epoch begins after a marker. ``fallen`` are
    batches that have a finding for a too low epoch. Transactions that contain such a batch are left out.
    """
    whole = replicas.where((F.col("damaged") == 0) & ~F.col("compacted")).select("replica")
    inside = (
        (F.col("t.replica") == F.col("f.replica"))
        & (F.col("t.producer_id") == F.col("f.producer_id"))
        & F.col("f.offset").between(F.col("t.first_offset"), F.col("t.last_offset"))
    )
    overtaken = spoken.where("first_epoch < last_epoch").join(F.broadcast(whole), "replica")
    if fallen is not None:
        blamed = F.broadcast(fallen.select("replica", "producer_id", "offset")).alias("f")
        overtaken = overtaken.alias("t").join(blamed, inside, "left_anti")
    return overtaken.select(
        finding(
            "missing_marker",
            F.format_string(
                "data of epoch %d and of epoch %d without a marker between them", "first_epoch", "last_epoch"
            ),
            offset="first_offset",
            producer_id="producer_id",
            producer_epoch="first_epoch",
        )
    )
