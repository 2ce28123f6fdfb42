"""The rules of ``--deep``: decode every record, and compare every entry of the index files with its segment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from odradek.spark.audit import index_files
from odradek.spark.audit.batch_headers import milliseconds, replica_of, sound
from odradek.spark.audit.findings import VIOLATION, WARNING, finding
from odradek.spark.audit.replicas import Place
from odradek.spark.audit.two_looks import Looks
from odradek.spark.segments.finding import Partition
from odradek.spark.segments.reading import ZERO_TAIL

RECORD_COLUMNS: Final = "log_dir,topic,partition,timestamp,timestamp_type,file,position,error"
_PLACES: Final = StructType(
    [
        StructField("log_dir", StringType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
    ]
)
ENTRIES: Final = StructType(
    [
        *_PLACES.fields,
        StructField("file", StringType()),
        StructField("log_file", StringType()),
        StructField("kind", StringType()),
        StructField("position", LongType()),
        StructField("first", LongType()),
        StructField("second", LongType()),
        StructField("producer_id", LongType()),
        StructField("text", StringType()),
    ]
)
_DIRECTORIES_PER_TASK: Final = 64


# -- payloads ---------------------------------------------------------------------------------------------------


def decoded(records: DataFrame) -> DataFrame:
    """One row per batch (``replica``, ``file``, ``position``).

    ``newest_ms`` is the newest timestamp of the batch's records; ``error`` is set if the records cannot be decoded.
    """
    return (
        records.withColumn("replica", replica_of(F.col("log_dir"), F.col("topic"), F.col("partition")))
        .groupBy("replica", "file", "position")
        .agg(
            F.max("timestamp_type").alias("timestamp_type"),
            F.max(milliseconds("timestamp")).alias("newest_ms"),
            F.max("error").alias("error"),
        )
    )


def payload_findings(decoded_ones: DataFrame, rows: DataFrame, looks: Looks | None = None) -> DataFrame:
    """Findings for batches whose header and checksum are right, but whose records cannot be decoded.

    A running broker may have been writing a batch when the records were read. If a broker runs, ``looks`` are the two
    reads of its index files (``two_looks``), and only batches that were complete when the headers were read are
    checked.
    """
    known = rows.where("error is not null").select("replica", "file", "position")
    wrong = decoded_ones.where(F.col("error").isNotNull() & ~F.col("error").contains(ZERO_TAIL))
    if looks is not None:
        whole = looks.same(sound(rows)).select("replica", "file", "position")
        wrong = wrong.join(whole, ["replica", "file", "position"], "left_semi")
    return wrong.join(F.broadcast(known), ["replica", "file", "position"], "left_anti").select(
        finding("damage", F.col("error"), file="file", position="position")
    )


def timestamp_findings(decoded_ones: DataFrame, rows: DataFrame, looks: Looks | None = None) -> DataFrame:
    """Findings for batches whose maximum timestamp is not that of their newest record.

    Batches with ``LogAppendTime`` are not checked, as the header's time is the time of all records. Neither are batches
    from which compaction may have removed the record with the maximum timestamp. With ``looks``, only batches in
    segments that a running broker has not rewritten between its two reads are checked.
    """
    newest = decoded_ones.where("error is null and timestamp_type = 'CreateTime'").drop("error")
    whole = F.col("records") == F.col("last_offset") - F.col("base_offset") + 1
    batches = sound(rows).where(whole)
    if looks is not None:
        batches = looks.same(batches)
    return (
        batches.join(newest, ["replica", "file", "position"])
        .where(~F.col("max_timestamp_ms").eqNullSafe(F.col("newest_ms")))
        .select(
            finding(
                "wrong_max_timestamp",
                F.format_string(
                    "the batch has the maximum timestamp %s, its newest record %s",
                    F.coalesce(F.col("max_timestamp_ms").cast("string"), F.lit("none")),
                    F.coalesce(F.col("newest_ms").cast("string"), F.lit("none")),
                ),
                offset="base_offset",
                file="file",
                position="position",
                producer_id="producer_id",
                producer_epoch="producer_epoch",
            )
        )
    )


# -- indexes ----------------------------------------------------------------------------------------------------


def index_entries(spark: SparkSession, places: list[Place]) -> DataFrame:
    """The segments and all entries of their index files (``index_files.Entry``), with their ``replica``."""
    tasks = max(1, len(places) // _DIRECTORIES_PER_TASK)
    found = spark.createDataFrame(places, _PLACES).repartition(tasks).mapInPandas(_entries_of, ENTRIES)
    return found.withColumn("replica", replica_of(F.col("log_dir"), F.col("topic"), F.col("partition")))


def _entries_of(chunks: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    columns = ENTRIES.fieldNames()
    numbers = {name: "Int64" for name in ("partition", "position", "first", "second", "producer_id")}
    for chunk in chunks:
        for log_dir, topic, index in chunk.itertuples(index=False):
            partition = Partition(log_dir, topic, int(index), f"{log_dir}/{topic}-{index}")
            rows = [(log_dir, topic, index, *entry) for entry in index_files.looked_at(partition)]
            yield pd.DataFrame(rows, columns=columns).astype(numbers)


def index_findings(
    found: DataFrame,
    rows: DataFrame,
    transactions: DataFrame,
    replicas: DataFrame,
    looks: Looks | None = None,
) -> Iterator[DataFrame]:
    """Findings for index entries that point to wrong bytes, and for aborted transactions without an entry.

    Damaged replicas are skipped. A wrong entry above the recovery point is a warning, because the next start of the broker
    rebuilds the index there. If a broker runs, only the entries that ``looks`` selects (``two_looks``) are checked.
    """
    readable = replicas.where("damaged = 0").select("replica", "compacted", "indexed_below")
    judged = found if looks is None else looks.entries()
    entries = judged.join(F.broadcast(readable), "replica")
    yield entries.where("kind = 'flaw'").select(
        finding("wrong_index", F.col("text"), _severity(F.lit(0)), file="file", position="position")
    )
    yield _offset_findings(entries.where("kind = 'offset'"), rows)
    listed = found.where("kind = 'transaction'") if looks is None else looks.listed()
    aborted = transactions.where("outcome = 'abort'").join(F.broadcast(readable), "replica")
    yield _unlisted_findings(aborted.where("first_offset is not null"), listed, rows, looks)
    yield _unknown_findings(entries.where("kind = 'transaction' and not compacted"), aborted)


def _severity(offset: Column) -> Column:
    kept = F.coalesce(offset < F.col("indexed_below"), F.lit(False))
    return F.when(kept, VIOLATION).otherwise(WARNING)


def _offset_findings(entries: DataFrame, rows: DataFrame) -> DataFrame:
    batches = sound(rows).select(
        "replica", F.col("file").alias("log_file"), F.col("position").alias("second"), "base_offset"
    )
    wrong = F.col("base_offset").isNull() | (F.col("base_offset") > F.col("first"))
    return (
        entries.join(batches, ["replica", "log_file", "second"], "left")
        .where(wrong)
        .groupBy("replica", "file", "indexed_below")
        .agg(
            F.min_by(F.struct("position", "first", "second"), "position").alias("its"),
            F.count("*").alias("count"),
        )
        .select(
            finding(
                "wrong_index",
                F.format_string(
                    "%d entries point to wrong bytes; according to the first, offset %d is at byte %d or after it",
                    "count",
                    "its.first",
                    "its.second",
                ),
                _severity(F.col("its.first")),
                file="file",
                position="its.position",
            )
        )
    )


def _unlisted_findings(
    aborted: DataFrame, listed: DataFrame, rows: DataFrame, looks: Looks | None
) -> DataFrame:
    """Findings for aborted transactions that the ``.txnindex`` lacks: consumers would read their records."""
    named = listed.select(
        "replica", "producer_id", F.col("second").alias("marker_offset"), F.col("first").alias("listed_from")
    )
    markers = sound(rows).where("control")
    if looks is not None:
        markers = looks.indexed(markers, rows)
    markers = markers.select("replica", F.col("base_offset").alias("marker_offset"), "file")
    return (
        aborted.join(named, ["replica", "producer_id", "marker_offset"], "left")
        .where("listed_from is null or listed_from > first_offset")
        .join(markers, ["replica", "marker_offset"])
        .select(
            finding(
                "wrong_index",
                F.format_string(
                    "%s the aborted transaction of offsets %d to %d: consumers with read_committed get its records",
                    F.when(F.col("listed_from").isNull(), "lacks").otherwise("lists only a part of"),
                    "first_offset",
                    "marker_offset",
                ),
                _severity(F.col("marker_offset")),
                offset="marker_offset",
                file=F.regexp_replace("file", "log$", "txnindex"),
                position=F.lit(0),
                producer_id="producer_id",
                producer_epoch="marker_epoch",
            )
        )
    )


def _unknown_findings(listed: DataFrame, aborted: DataFrame) -> DataFrame:
    ended = aborted.select("replica", "producer_id", F.col("marker_offset").alias("second"))
    return listed.join(ended, ["replica", "producer_id", "second"], "left_anti").select(
        finding(
            "wrong_index",
            F.format_string(
                "lists an aborted transaction of offsets %d to %d that the log does not have: consumers drop its records",
                "first",
                "second",
            ),
            _severity(F.col("second")),
            offset="second",
            file="file",
            position="position",
            producer_id="producer_id",
        )
    )
