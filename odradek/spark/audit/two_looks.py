"""Index files of a broker at work: looked at before the batches are read and again after them.

A broker writes batches first and what its indexes say of them then, adds to both, and meanwhile deletes, compacts and
truncates segments. So of a live directory only what a correct broker cannot have made in between is judged:

- an entry that both looks have, in a segment that is the same file and has not become shorter: what it leads to was in the
  log before the batches were read, and after;
- ``.index`` and ``.timeindex`` of segments that were not the last at either look: Kafka maps those of the active segment
  into memory, where an entry may be half written, and a truncation leaves the old entries behind the new ones
  (AbstractIndex.truncateToEntries0) until the segment is rolled; Odradek keeps the newest entries in memory till then;
- an aborted transaction that both looks lack, whose marker was there at the first one, in a log that has gone on since: the
  append that wrote the marker has ended, and wrote the ``.txnindex`` before that (UnifiedLog.append).

A directory whose broker is stopped is looked at as ever: the second look alone counts.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from odradek.spark.audit.batch_headers import sound

_OF_SEGMENT = ["replica", "log_file"]


class Looks(NamedTuple):
    """Entries (``deep.index_entries``) of both looks, ``before`` of live directories only, and which those are."""

    before: DataFrame
    after: DataFrame
    live: Collection[str]

    def entries(self) -> DataFrame:
        """What can be held against the log."""
        key = _key()
        stood = self.before.select(key.alias("key")).distinct()
        of_closed = (F.col("kind") == "transaction") | F.col("file").endswith(".txnindex") | ~F.col("last")
        both = (
            self._live(self.after)
            .join(self.segments(), _OF_SEGMENT)
            .where(of_closed)
            .withColumn("key", key)
            .join(stood, "key", "left_semi")
        )
        return self._stopped(self.after).unionByName(both.select(self.after.columns))

    def listed(self) -> DataFrame:
        """Aborted transactions that either look has."""
        return self.after.unionByName(self.before).where("kind = 'transaction'").distinct()

    def segments(self) -> DataFrame:
        """Segments that are the same file at both looks.

        ``size`` and ``was_last`` are of the first look, ``last`` is true if they were the last one at either.
        """
        is_segment = F.col("kind") == "segment"
        names = {"first": "inode", "position": "size", "second": "last"}
        before, after = (
            look.where(is_segment)
            .select(*_OF_SEGMENT, *(F.col(old).alias(new) for old, new in names.items()))
            .alias(name)
            for look, name in ((self.before, "before"), (self.after, "after"))
        )
        return (
            before.join(after, _OF_SEGMENT)
            .where("before.inode = after.inode and after.size >= before.size")
            .select(
                *_OF_SEGMENT,
                F.col("before.size").alias("size"),
                ((F.col("before.last") == 1) | (F.col("after.last") == 1)).alias("last"),
                (F.col("before.last") == 1).alias("was_last"),
            )
        )

    def indexed(self, markers: DataFrame, rows: DataFrame) -> DataFrame:
        """Of ``markers`` (``replica``, ``log_dir``, ``file``, ``position``) those that both looks must have an entry of."""
        newest = sound(rows).groupBy("replica").agg(F.max(F.struct("file", "position")).alias("newest"))
        beyond = F.struct(F.col("file"), F.col("size").alias("position"))
        there = (
            self._live(markers)
            .join(self.segments().withColumnRenamed("log_file", "file"), ["replica", "file"])
            .join(newest, "replica")
            .where((F.col("position") < F.col("size")) & (~F.col("was_last") | (F.col("newest") >= beyond)))
        )
        return self._stopped(markers).unionByName(there.select(markers.columns))

    def same(self, batches: DataFrame) -> DataFrame:
        """Of ``batches`` those in segments that were not rewritten between the looks."""
        same = self.segments().select("replica", F.col("log_file").alias("file"))
        there = self._live(batches).join(same, ["replica", "file"], "left_semi")
        return self._stopped(batches).unionByName(there)

    def _live(self, rows: DataFrame) -> DataFrame:
        return rows.where(F.col("log_dir").isin(*self.live))

    def _stopped(self, rows: DataFrame) -> DataFrame:
        return rows.where(~F.col("log_dir").isin(*self.live))


def _key() -> Column:
    """An entry with all that it says."""
    numbers = (
        F.coalesce(name, F.lit(-1).cast("long")) for name in ("position", "first", "second", "producer_id")
    )
    return F.xxhash64("replica", "file", "kind", *numbers, F.coalesce("text", F.lit("")))
