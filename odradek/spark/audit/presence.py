"""Partitions that must be there: the cluster has them, a decided transaction wrote to them, and no directory does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from odradek.spark.audit.batch_headers import TRANSACTION_STATE
from odradek.spark.audit.cluster_metadata import ClusterMetadata, Key
from odradek.spark.audit.directories import LogDirectory
from odradek.spark.audit.findings import finding

ABSENT: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("created_ms", LongType()),
    ]
)


def all_here(metadata: ClusterMetadata, directories: Sequence[LogDirectory]) -> bool:
    """Whether the log directories of all brokers that ever registered are here, as far as the metadata tell."""
    ids = {directory.node_id for directory in directories}
    if not metadata.complete or not metadata.broker_ids or not metadata.broker_ids <= ids:
        return False
    # A broker may have several (JBOD).
    return set().union(*metadata.log_dir_ids.values()) <= {directory.id for directory in directories}


def has_all_coordinators(metadata: ClusterMetadata, directories: Sequence[LogDirectory]) -> bool:
    """Whether all that was ever written to ``__transaction_state`` is in these directories.

    The folder of a partition is made at the first append, or a moment after the topic: while a broker is at work most have
    none. A partition without one has no records, if it cannot be elsewhere: all brokers' directories are here, with all
    disks (of which brokers before Kafka 3.7 say nothing). Else each partition of the topic must have its folder, and where
    the metadata do not say how many those are, their numbers must have no hole.
    """
    found = set().union(*(directory.coordinator_partitions for directory in directories))
    existing = {partition for topic, partition in metadata.created_ms if topic == TRANSACTION_STATE}
    if not metadata.complete or not existing:
        return bool(found) and found == set(range(len(found)))
    names_disks = all(metadata.log_dir_ids.get(broker) for broker in metadata.broker_ids)
    return existing <= found or (names_disks and all_here(metadata, directories))


def absent(
    metadata: ClusterMetadata, partitions: Sequence[Key], directories: Sequence[LogDirectory]
) -> list[dict[str, object]]:
    """Partitions that exist and have no directory: rows of ``ABSENT``. None unless all brokers' directories are here."""
    if not all_here(metadata, directories):
        return []
    here = set(partitions)
    return [
        {"topic": topic, "partition": partition, "created_ms": created_ms}
        for (topic, partition), created_ms in sorted(metadata.created_ms.items())
        if (topic, partition) not in here
    ]


def missing_findings(missing: DataFrame, decisions: DataFrame) -> DataFrame:
    """Of ``missing`` (``ABSENT``) those that a transaction names whose markers are all written: so it had a directory.

    A directory is made at the first append, so a partition without one is nothing by itself. A topic that was deleted and
    made anew is not meant by decisions from before.
    """
    named = decisions.where("complete_ms is not null").select(
        F.explode("partitions").alias("listed"),
        "prepare_ms",
        "producer_id",
        "producer_epoch",
        "transactional_id",
    )
    return (
        named.join(
            F.broadcast(missing),
            (F.col("listed.topic") == F.col("topic"))
            & (F.col("listed.partition") == F.col("partition"))
            & (F.col("prepare_ms") >= F.col("created_ms")),
        )
        .groupBy("topic", "partition")
        .agg(
            F.max_by(F.struct("producer_id", "producer_epoch", "transactional_id"), "prepare_ms").alias(
                "last"
            ),
            F.count("*").alias("transactions"),
        )
        .withColumn("replica", F.lit(None).cast("long"))
        .select(
            finding(
                "missing_partition",
                F.format_string(
                    "there is no directory of it, and %d decided transactions wrote markers there",
                    "transactions",
                ),
                topic="topic",
                partition="partition",
                producer_id="last.producer_id",
                producer_epoch="last.producer_epoch",
                transactional_id="last.transactional_id",
            )
        )
    )
