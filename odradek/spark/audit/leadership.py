"""Leader epochs along a log: each batch has the epoch of the leader that appended it, and epochs never decrease.

A new leader begins a new epoch (Partition.makeLeader), and a follower truncates what its leader does not have before it
fetches (KIP-101). So no log has a batch of a lower epoch after one of a higher epoch.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from odradek.spark.audit.batch_headers import sound
from odradek.spark.audit.findings import finding


def epoch_findings(rows: DataFrame, replicas: DataFrame) -> DataFrame:
    """Findings for the first batch of each leader epoch that comes after a batch of a higher epoch."""
    several = replicas.where("first_leader_epoch < leader_epoch").select("replica")
    here = sound(rows).where("leader_epoch >= 0").join(F.broadcast(several), "replica", "left_semi")
    higher = (
        Window.partitionBy("replica")
        .orderBy(F.desc("leader_epoch"))
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    fallen = (
        here.groupBy("replica", "leader_epoch")
        .agg(F.min("base_offset").alias("first_offset"), F.max("base_offset").alias("last_offset"))
        .withColumn("higher", F.min(F.struct("first_offset", "leader_epoch")).over(higher))
        .where("last_offset > higher.first_offset")
        .select("replica", "leader_epoch", "higher")
    )
    return (
        here.join(F.broadcast(fallen), ["replica", "leader_epoch"])
        .where("base_offset > higher.first_offset")
        .groupBy("replica", "leader_epoch", "higher")
        .agg(F.min("base_offset").alias("offset"))
        .select(
            finding(
                "leader_epoch_regression",
                F.format_string(
                    "leader epoch %d, though the batch at offset %d has leader epoch %d",
                    "leader_epoch",
                    "higher.first_offset",
                    "higher.leader_epoch",
                ),
                offset="offset",
            )
        )
    )
