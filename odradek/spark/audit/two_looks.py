"""Index files of a running broker, which are read twice: before the batches and again after them.

A broker writes a batch before its index entries, appends to both files, and deletes, compacts and truncates segments between
the two reads. So the audit checks in a live directory only what a correct broker cannot have produced between the two reads:

- an entry that both reads found, in a segment that is the same file and has not become shorter: the bytes that it points to
  were in the log before the batches were read, and afterwards;
- ``.index`` and ``.timeindex`` of segments that were not the last one at either read: Kafka maps those of the active segment
  into memory, where an entry may be half written, and a truncation leaves the old entries behind the new ones
  (AbstractIndex.truncateToEntries0) until the segment is rolled; Odradek keeps the newest entries in memory until then;
- an aborted transaction that neither read found in the ``.txnindex``, whose marker the log had at the first read, with later
  batches behind it: the append that wrote the marker has ended, and wrote the ``.txnindex`` before that (UnifiedLog.append).

If the broker is stopped, the audit uses only the second read, and checks all of it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from odradek.spark.audit.batch_headers import sound

_OF_SEGMENT = ["replica", "log_file"]


class Looks(NamedTuple):
    """Index entries (``deep.index_entries``) from the two reads of the index files.

    ``before`` has only entries of the ``live`` log directories."""

    before: DataFrame
    after: DataFrame
    live: Collection[str]

    def entries(self) -> DataFrame:
        """The entries of index files that must agree with the log; of a running broker, those that both reads found."""
        key = _key()
        seen_before = self.before.select(key.alias("key")).distinct()
        of_closed = (F.col("kind") == "transaction") | F.col("file").endswith(".txnindex") | ~F.col("last")
        both = (
            self._live(self.after)
            .join(self.segments(), _OF_SEGMENT)
            .where(of_closed)
            .withColumn("key", key)
            .join(seen_before, "key", "left_semi")
        )
        return self._stopped(self.after).unionByName(both.select(self.after.columns))

    def listed(self) -> DataFrame:
        """Entries of aborted transactions that either read found."""
        return self.after.unionByName(self.before).where("kind = 'transaction'").distinct()

    def segments(self) -> DataFrame:
        """Segments that are the same file at both reads.

        ``size`` and ``was_last`` are from the first read; ``last`` is true if the segment was the last one at either read.
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
        """The ``markers`` whose index entry both reads must have found.

        Columns: ``replica``, ``log_dir``, ``file``, ``position``.
        """
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
        """The ``batches`` in segments that were not rewritten between the two reads."""
        same = self.segments().select("replica", F.col("log_file").alias("file"))
        there = self._live(batches).join(same, ["replica", "file"], "left_semi")
        return self._stopped(batches).unionByName(there)

    def _live(self, rows: DataFrame) -> DataFrame:
        return rows.where(F.col("log_dir").isin(*self.live))

    def _stopped(self, rows: DataFrame) -> DataFrame:
        return rows.where(~F.col("log_dir").isin(*self.live))


def _key() -> Column:
    """A hash of all fields of an index entry."""
    numbers = (
        F.coalesce(name, F.lit(-1).cast("long")) for name in ("position", "first", "second", "producer_id")
    )
    return F.xxhash64("replica", "file", "kind", *numbers, F.coalesce("text", F.lit("")))
