"""The columns of a finding, and the names of findings with their headings and explanations."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

VIOLATION: Final = "violation"
WARNING: Final = "warning"

NAMES: Final = {
    "damage": "Damaged batches",
    "torn_tail": "Torn tails",
    "lost_offsets": "Lost offsets",
    "overlapping_offsets": "Overlapping offsets",
    "duplicated_sequence": "Duplicated sequences",
    "sequence_gap": "Sequence gaps",
    "epoch_regression": "Epoch regressions",
    "late_batch": "Late batches",
    "missing_marker": "Missing markers",
    "mixed_outcome": "Mixed outcomes",
    "hanging_transaction": "Hanging transactions",
    "not_transactional": "Batches outside their transaction",
    "unexpected_producer": "Markers of unexpected producers",
    "illegal_transition": "Invalid transitions of a coordinator",
    "replicas_differ": "Replicas that differ",
    "record_count": "Wrong record counts",
    "leader_epoch_regression": "Leader epoch regressions",
    "lost_partition": "Lost partitions",
    "wrong_index": "Indexes that disagree with their segments",
    "wrong_max_timestamp": "Wrong maximum timestamps",
    "duplicated_key": "Duplicated business keys",
    "offsets_apart": "Offsets and outputs with different outcomes",
}
"""Names of findings in the order in which the report shows them, with their headings.

If the certifier (``odradek certify``) has a word for a finding, the name contains that word: lost, duplicated, torn,
unexpected.
"""

OLD_NAMES: Final = {
    "duplicated_sequence": "duplicate_sequence",
    "duplicated_key": "duplicate_key",
    "lost_offsets": "missing_offsets",
    "lost_partition": "missing_partition",
    "unexpected_producer": "unknown_producer",
}
"""Names that findings had before 0.2.0. Deprecated in 0.2.0, removed in 0.3.0.

The table ``findings``, the JSON and ``Finding`` have the old name as ``kind``; ``Report.counts`` and ``Report.of_kind``
accept it.
"""

ABOUT: Final = {
    "damage": "Bytes that are not a batch, or a batch with a wrong checksum.",
    "torn_tail": "The last segment ends within a batch: a crash leaves such a tail, and the next start truncates it.",
    "lost_offsets": "Offsets that no batch has, although the log was not compacted: records are lost.",
    "overlapping_offsets": "Two batches have the same offsets.",
    "duplicated_sequence": "A producer's sequence is at two offsets: the records of a retry are duplicated.",
    "sequence_gap": "A producer's sequences jump: records that were sent before are lost.",
    "epoch_regression": "An epoch below an earlier one in the partition: a fenced producer wrote.",
    "late_batch": "Transactional data after the marker that ended its transaction.",
    "missing_marker": "The transaction is decided, and this partition has no marker for it.",
    "mixed_outcome": "The transaction is torn: committed in one partition and aborted in another.",
    "hanging_transaction": "The transaction is open, and no coordinator will end it: read_committed consumers are stuck.",
    "not_transactional": "A transactional producer's batch lacks the transactional bit: an abort does not hide it.",
    "unexpected_producer": "The marker's producer id was never allocated to a transactional id.",
    "illegal_transition": "A coordinator's record that cannot follow the one before it.",
    "replicas_differ": "Replicas of a partition have different batches at the same offset.",
    "record_count": "A batch has fewer records than offsets although its topic was never compacted, or it has more.",
    "leader_epoch_regression": "A batch has a lower leader epoch than a batch before it in the log.",
    "lost_partition": "The cluster has the partition, a decided transaction wrote to it, and its directory is lost.",
    "wrong_index": "An index entry is wrong, or a .txnindex lacks an aborted transaction: consumers read its records.",
    "wrong_max_timestamp": "None of the batch's records has its maximum timestamp.",
    "duplicated_key": "Two committed records have the same business key.",
    "offsets_apart": "A group's offsets and the records written in the same transaction have different outcomes.",
}
"""One sentence of explanation for each name of findings."""

# Columns of a finding before ``located`` adds its log directory, segment file and position.
COLUMNS: Final[tuple[tuple[str, str], ...]] = (
    ("name", "string"),
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
    name: Column | str, detail: Column, severity: Column | str = VIOLATION, **columns: Column | str
) -> list[Column]:
    """The columns of a finding, in the order of ``COLUMNS``; a column that is not in ``columns`` is null.

    ``columns`` are Spark columns, or names of columns.
    """
    given: dict[str, Column] = {
        "name": F.lit(name) if isinstance(name, str) else name,
        "severity": F.lit(severity) if isinstance(severity, str) else severity,
        "replica": F.col("replica"),
        "detail": detail,
        **{column: F.col(value) if isinstance(value, str) else value for column, value in columns.items()},
    }
    return [given.get(column, F.lit(None)).cast(kind).alias(column) for column, kind in COLUMNS]


def _old_name() -> Column:
    """Column with the finding's name from before 0.2.0. Deprecated in 0.2.0, removed in 0.3.0."""
    old = F.create_map(*(F.lit(each) for pair in OLD_NAMES.items() for each in pair))
    return F.coalesce(old[F.col("name")], F.col("name"))


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
            "name",
            _old_name().alias("kind"),
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
