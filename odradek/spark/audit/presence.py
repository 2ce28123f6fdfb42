"""Lost partitions: the cluster has them, a decided transaction wrote to them, and no log directory contains them."""

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
    """Whether ``directories`` are all log directories of all brokers that ever registered in ``metadata``."""
    ids = {directory.node_id for directory in directories}
    if not metadata.complete or not metadata.broker_ids or not metadata.broker_ids <= ids:
        return False
    # A broker may have several log directories (JBOD).
    return set().union(*metadata.log_dir_ids.values()) <= {directory.id for directory in directories}


def has_all_coordinators(metadata: ClusterMetadata, directories: Sequence[LogDirectory]) -> bool:
    """Whether ``directories`` contain everything that was ever written to ``__transaction_state``.

    True if each partition of the topic has a directory; if the metadata do not have the number of partitions, the
    numbers of the directories must have no gap. Also true if ``directories`` are all log directories of all brokers:
    then a partition without a directory has no records, because a broker creates the directory at the partition's first
    append, or shortly after the topic. Brokers before Kafka 3.7 do not register their log directories, so for them it
    is not known whether ``directories`` are all.
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
    """Existing partitions without a directory (rows of ``ABSENT``); empty unless all brokers' directories are given."""
    if not all_here(metadata, directories):
        return []
    here = set(partitions)
    return [
        {"topic": topic, "partition": partition, "created_ms": created_ms}
        for (topic, partition), created_ms in sorted(metadata.created_ms.items())
        if (topic, partition) not in here
    ]


def missing_findings(missing: DataFrame, decisions: DataFrame) -> DataFrame:
    """Findings for the ``missing`` partitions (``ABSENT``) to which a transaction with complete markers wrote.

    A directory is created at the first append, so a partition without one is not an error by itself. Decisions from before
    the topic was deleted and created again are ignored.
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
                "lost_partition",
                F.format_string(
                    "the partition has no directory, and %d decided transactions wrote to it",
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
