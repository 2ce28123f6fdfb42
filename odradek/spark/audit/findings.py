"""The columns of a finding, and the kinds of findings with their headings and explanations."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

VIOLATION: Final = "violation"
WARNING: Final = "warning"

KINDS: Final = {
    "damage": "Damaged batches",
    "torn_tail": "Torn tails",
    "missing_offsets": "Missing offsets",
    "overlapping_offsets": "Overlapping offsets",
    "duplicate_sequence": "Duplicate sequences",
    "sequence_gap": "Sequence gaps",
    "epoch_regression": "Epoch regressions",
    "late_batch": "Late batches",
    "missing_marker": "Missing markers",
    "mixed_outcome": "Mixed outcomes",
    "hanging_transaction": "Hanging transactions",
    "not_transactional": "Batches outside their transaction",
    "unknown_producer": "Markers of unknown producers",
    "illegal_transition": "Impossible steps of a coordinator",
    "replicas_differ": "Replicas that differ",
    "record_count": "Wrong record counts",
    "leader_epoch_regression": "Leader epoch regressions",
    "missing_partition": "Missing partitions",
    "wrong_index": "Indexes that disagree with their segments",
    "wrong_max_timestamp": "Wrong maximum timestamps",
    "duplicate_key": "Duplicate business keys",
    "offsets_apart": "Offsets apart from their outputs",
}
"""Kinds of findings in the order in which the report shows them, with their headings."""

ABOUT: Final = {
    "damage": "Bytes that are no batch, or a batch whose checksum is wrong.",
    "torn_tail": "The last segment ends within a batch: what a crash leaves, and the next start cuts off.",
    "missing_offsets": "Offsets that no batch has, though no cleaner was there: records are lost.",
    "overlapping_offsets": "Two batches claim the same offsets.",
    "duplicate_sequence": "A producer's sequence at two offsets: a retry was appended again.",
    "sequence_gap": "A producer's sequences jump: something that was sent before is not there.",
    "epoch_regression": "An epoch below one that the partition had seen: a fenced producer wrote.",
    "late_batch": "Transactional data after the marker that ended its transaction.",
    "missing_marker": "The transaction is decided, and this partition was never told.",
    "mixed_outcome": "One transaction, committed on one partition and aborted on another.",
    "hanging_transaction": "Open, and no coordinator will ever end it: readers of committed data stand still.",
    "not_transactional": "A transactional producer's batch without the transactional bit: an abort does not take it back.",
    "unknown_producer": "The marker's producer id was never given to a transactional id.",
    "illegal_transition": "A coordinator's record that cannot follow the one before it.",
    "replicas_differ": "Copies of a partition that have different batches at the same offset.",
    "record_count": "A batch has fewer records than offsets, and its topic was never compacted; or more.",
    "leader_epoch_regression": "A batch has a lower leader epoch than a batch before it in the log.",
    "missing_partition": "The cluster has the partition, a decided transaction wrote to it, and its directory is gone.",
    "wrong_index": "An index leads to wrong bytes, or a .txnindex lacks an aborted transaction: consumers read its records.",
    "wrong_max_timestamp": "The batch claims a maximum timestamp that none of its records has.",
    "duplicate_key": "One business key twice among the committed records.",
    "offsets_apart": "A group's offsets and the records written with them ended differently.",
}
"""One sentence of explanation for each kind."""

# Columns of a finding before ``located`` adds its log directory, segment file and position.
COLUMNS: Final[tuple[tuple[str, str], ...]] = (
    ("kind", "string"),
    ("severity", "string"),
    ("replica", "long"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "long"),
    ("file", "string"),
    ("position", "long"),
    ("producer_id", "long"),
    ("producer_epoch", "int"),
    ("transactional_id", "string"),
    ("detail", "string"),
)


def finding(
    kind: Column | str, detail: Column, severity: Column | str = VIOLATION, **columns: Column | str
) -> list[Column]:
    """The columns of a finding, in the order of ``COLUMNS``; a column that is not in ``columns`` is null.

    ``columns`` are Spark columns, or names of columns.
    """
    given: dict[str, Column] = {
        "kind": F.lit(kind) if isinstance(kind, str) else kind,
        "severity": F.lit(severity) if isinstance(severity, str) else severity,
        "replica": F.col("replica"),
        "detail": detail,
        **{name: F.col(value) if isinstance(value, str) else value for name, value in columns.items()},
    }
    return [given.get(name, F.lit(None)).cast(kind_).alias(name) for name, kind_ in COLUMNS]


def located(findings: DataFrame, rows: DataFrame, replicas: DataFrame, ids: DataFrame) -> DataFrame:
    """Add to findings the names of their replica, the transactional id, and the segment file and position of the batch.

    ``ids`` maps ``producer_id`` to ``transactional_id``. A value that the finding already has is not replaced.
    """
    names = replicas.select(
        "replica", "log_dir", F.col("topic").alias("its_topic"), F.col("partition").alias("its_partition")
    )
    wanted = findings.select("replica", F.col("offset").alias("base_offset")).distinct()
    # Two batches may have the same base offset: take the later one.
    places = (
        rows.join(F.broadcast(wanted), ["replica", "base_offset"], "left_semi")
        .groupBy("replica", F.col("base_offset").alias("offset"))
        .agg(F.max(F.struct("file", "position")).alias("place"))
    )
    known = ids.select("producer_id", F.col("transactional_id").alias("known_id"))
    return (
        findings.join(F.broadcast(names), "replica", "left")
        .join(F.broadcast(places), ["replica", "offset"], "left")
        .join(F.broadcast(known), "producer_id", "left")
        .select(
            "kind",
            "severity",
            "log_dir",
            F.coalesce("topic", "its_topic").alias("topic"),
            F.coalesce("partition", "its_partition").alias("partition"),
            "offset",
            F.coalesce("file", "place.file").alias("file"),
            F.coalesce("position", "place.position").alias("position"),
            "producer_id",
            "producer_epoch",
            F.coalesce("transactional_id", "known_id").alias("transactional_id"),
            "detail",
        )
    )
