"""Sequences and producer epochs: duplicated sequences, gaps, lower epochs and late batches.

These are the rules of the partition's leader, which has the epoch and the last sequence of each producer
(ProducerAppendInfo.java). A batch of the same epoch begins where the last one ended, a batch of a new epoch begins at
0, and a batch of a lower epoch is rejected. After ``producer.id.expiration.ms`` without a batch the leader forgets the
producer and accepts any batch, so the audit accepts the producer's next batch too. Only producers that ``chains`` marks
as suspicious are read.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from odradek.spark.audit.batch_headers import sound
from odradek.spark.audit.chains import has_sequence, is_data, is_marker
from odradek.spark.audit.findings import finding
from odradek.spark.audit.replicas import of_replicas

_HALF: Final = 1 << 30
_WHOLE: Final = 1 << 31
_PLACE: Final[dict[str, Column | str]] = {
    "offset": "base_offset",
    "producer_id": "producer_id",
    "producer_epoch": "producer_epoch",
}


def _upto_before(window: WindowSpec) -> WindowSpec:
    return window.rowsBetween(Window.unboundedPreceding, -1)


def _distance(first: Column, second: Column) -> Column:
    """Distance from ``first`` to ``second`` modulo 2^31, between -2^30 and 2^30."""
    return F.pmod(second.cast("long") - first + _HALF, F.lit(_WHOLE)) - _HALF


def suspects(transactions: DataFrame) -> DataFrame:
    return transactions.where("suspicious").select("replica", "producer_id").distinct()


def judged(rows: DataFrame, suspected: DataFrame, expiration_ms: int) -> DataFrame:
    """All batches of the suspected producers, each compared with the producer's epochs that the leader remembered.

    ``life`` is the number of times that the leader has forgotten the producer. ``fallen``: the epoch is below an epoch seen
    in this life. ``late``: only a marker had raised the epoch, so the batch belongs to a transaction that had already ended.
    """
    producer = Window.partitionBy("replica", "producer_id").orderBy("base_offset")
    life = Window.partitionBy("replica", "producer_id", "life").orderBy("base_offset")
    now_ms = F.max("max_timestamp_ms").over(producer.rowsBetween(Window.unboundedPreceding, 0))
    silent_ms = now_ms - F.lag("max_timestamp_ms").over(producer)
    top_epoch = F.max("producer_epoch").over(_upto_before(life))
    top_of_data = F.max(F.when(is_data(), F.col("producer_epoch"))).over(_upto_before(life))
    return (
        sound(rows)
        .join(F.broadcast(suspected), ["replica", "producer_id"], "left_semi")
        .withColumn("forgotten", F.coalesce(silent_ms >= expiration_ms, F.lit(False)).cast("int"))
        .withColumn("life", F.sum("forgotten").over(producer))
        .withColumn("top_epoch", top_epoch)
        .withColumn("top_of_data", top_of_data)
        .withColumn("nth", F.row_number().over(life))
        .withColumn("fallen", F.coalesce(F.col("producer_epoch") < F.col("top_epoch"), F.lit(False)))
        .withColumn(
            "late",
            F.col("fallen")
            & is_data()
            & F.col("transactional")
            & (F.col("producer_epoch") >= F.coalesce("top_of_data", F.lit(-1))),
        )
    )


def epoch_findings(judged_rows: DataFrame) -> DataFrame:
    """Findings for late batches, and for other batches and markers with a lower epoch than an earlier one."""
    fallen = judged_rows.where("fallen")
    late = fallen.where("late").select(
        finding(
            "late_batch",
            F.format_string(
                "transactional data of epoch %d after the marker of epoch %d had ended its transaction",
                "producer_epoch",
                "top_epoch",
            ),
            **_PLACE,
        )
    )
    what = F.when(is_marker(), F.lit("a marker")).otherwise(F.lit("a batch"))
    regressions = fallen.where(~F.col("late")).select(
        finding(
            "epoch_regression",
            F.format_string(
                "%s of epoch %d after epoch %d had been seen", what, "producer_epoch", "top_epoch"
            ),
            **_PLACE,
        )
    )
    return late.unionByName(regressions)


def sequence_steps(judged_rows: DataFrame, replicas: DataFrame) -> DataFrame:
    """Batches with sequences, and ``ahead``: how far each base sequence is above the one that would be next.

    0 is correct, a positive number is a gap, a negative number a repetition. A ``run`` is a series of batches in one epoch;
    within a run, sequences are counted without wrapping at 2^31. The first batch in the log may begin at any sequence,
    because batches before it may be deleted.
    """
    life = Window.partitionBy("replica", "producer_id", "life").orderBy("base_offset")
    run = Window.partitionBy("replica", "producer_id", "life", "run").orderBy("base_offset")
    same_first = Window.partitionBy("replica", "producer_id", "life", "run", "base_sequence").orderBy(
        "base_offset"
    )
    data = judged_rows.where(~F.col("fallen") & has_sequence())
    data = of_replicas(data, replicas, "first_offset", "compacted")
    # If the log is complete from offset 0 and a marker precedes the first batch, the leader had an entry of the producer.
    knew = (F.col("nth") > 1) & (F.col("first_offset") == 0) & ~F.col("compacted") & (F.col("life") == 0)
    fresh = F.col("last_epoch").isNull() | (F.col("producer_epoch") != F.col("last_epoch"))
    first_step = F.when(F.col("last_epoch").isNull() & ~knew, 0).otherwise(F.col("base_sequence"))
    next_step = _distance(F.col("last_sequence_before").cast("long") + 1, F.col("base_sequence"))
    length = F.pmod(F.col("last_sequence").cast("long") - F.col("base_sequence"), F.lit(_WHOLE)) + 1
    return (
        data.withColumn("last_epoch", F.lag("producer_epoch").over(life))
        .withColumn("last_sequence_before", F.lag("last_sequence").over(life))
        .withColumn("end_before", F.lag("last_offset").over(life))
        .withColumn("fresh", fresh)
        .withColumn("run", F.sum(F.col("fresh").cast("int")).over(life))
        .withColumn("step", F.when(F.col("fresh"), first_step).otherwise(next_step).cast("long"))
        .withColumn("length", length)
        .withColumn("moved", F.col("step") + F.coalesce(F.lag("length").over(run), F.lit(0)))
        .withColumn("begins", F.sum("moved").over(run))
        .withColumn("top", F.max(F.col("begins") + F.col("length")).over(_upto_before(run)))
        .withColumn("ahead", F.col("begins") - F.coalesce("top", F.lit(0)))
        .withColumn("earlier", F.first("base_offset").over(same_first))
        .drop("moved", "step", "fresh")
    )


def sequence_findings(steps: DataFrame, holes: DataFrame) -> DataFrame:
    """Findings for duplicated sequences and gaps.

    A gap that missing offsets explain is skipped, because the missing offsets have a finding, or are legal.
    """
    again = F.when(
        F.col("earlier") < F.col("base_offset"), F.format_string(", as in the batch at offset %d", "earlier")
    )
    duplicates = steps.where("ahead < 0").select(
        finding(
            "duplicated_sequence",
            F.concat(
                F.format_string("sequences %d to %d again", "base_sequence", "last_sequence"),
                F.coalesce(again, F.lit("")),
            ),
            **_PLACE,
        )
    )
    gaps = steps.where("ahead > 0")
    between = (
        gaps.alias("gap")
        .join(
            F.broadcast(holes.alias("hole")),
            (F.col("gap.replica") == F.col("hole.replica"))
            & (F.col("hole.from_offset") > F.coalesce("gap.end_before", F.lit(-1)))
            & (F.col("hole.to_offset") <= F.col("gap.base_offset")),
        )
        .groupBy("gap.replica", "gap.base_offset")
        .agg(F.sum(F.col("hole.to_offset") - F.col("hole.from_offset")).alias("absent"))
    )
    unexplained = gaps.join(F.broadcast(between), ["replica", "base_offset"], "left").where(
        F.coalesce("absent", F.lit(0)) < F.col("ahead")
    )
    expected = F.pmod(F.col("base_sequence") - F.col("ahead"), F.lit(_WHOLE))
    return duplicates.unionByName(
        unexplained.select(
            finding(
                "sequence_gap",
                F.format_string(
                    "begins with sequence %d, not %d: %d are lost", "base_sequence", expected, "ahead"
                ),
                **_PLACE,
            )
        )
    )
