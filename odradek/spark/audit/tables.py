"""The tables that an audit reads. Files are read and decoded once, however many rules use them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from odradek.spark.audit import cluster_metadata, presence, replicas, zero_tails
from odradek.spark.audit.batch_headers import TRANSACTION_STATE, batch_headers
from odradek.spark.audit.cluster_metadata import ClusterMetadata
from odradek.spark.audit.directories import LogDirectory, look_at
from odradek.spark.audit.store import Store
from odradek.spark.segments.finding import NoSuchDirectory, partitions, roots

Say = Callable[[str], None]

FORMAT: Final = "odradek.segments"
_COLUMNS: Final = (
    "log_dir,topic,partition,base_offset,last_offset,leader_epoch,producer_id,producer_epoch,base_sequence,last_sequence,"
    "records,timestamp,max_timestamp,transactional,control,marker,coordinator_epoch,size_bytes,file,position,error"
)


@dataclass(frozen=True)
class Source:
    """The partitions and checkpoint files of the data directories, and the cluster metadata, without any batches."""

    paths: str
    partitions: tuple[replicas.Place, ...]
    directories: list[LogDirectory]
    metadata: ClusterMetadata = field(default_factory=ClusterMetadata)

    @property
    def topics(self) -> list[str]:
        return sorted({topic for _, topic, _ in self.partitions})

    @property
    def has_copies(self) -> bool:
        """Whether a partition is in more than one log directory."""
        return len({place[1:] for place in self.partitions}) < len(self.partitions)

    @property
    def live_dirs(self) -> list[str]:
        """The log directories on which a broker is running."""
        return [directory.path for directory in self.directories if directory.live]

    @property
    def live(self) -> bool:
        return bool(self.live_dirs)

    @property
    def all_coordinators(self) -> bool:
        """Whether ``directories`` contain every partition of ``__transaction_state`` that has ever had a record."""
        return presence.has_all_coordinators(self.metadata, self.directories)

    @property
    def coordinators_since_ms(self) -> int:
        """Time at which ``__transaction_state`` was created, in milliseconds; 0 if it is not known."""
        created = self.metadata.created_ms.items()
        return min((ms for (topic, _), ms in created if topic == TRANSACTION_STATE), default=0)


def find(paths: str) -> Source:
    """Find the partitions that ``odradek.segments`` will read. Raises ``NoSuchDirectory`` if there are none."""
    found = partitions(roots(paths))
    if not found:
        raise NoSuchDirectory(f"{paths} contains no partition directory (topic-number).")
    log_dirs = sorted({partition.log_dir for partition in found})
    places = tuple((partition.log_dir, partition.topic, partition.partition) for partition in found)
    metadata = cluster_metadata.read(log_dirs)
    return Source(paths, places, [look_at(path) for path in log_dirs], metadata)


def load(spark: SparkSession, source: Source, table: str, **options: str) -> DataFrame:
    """A table of ``odradek.segments``, as a DataFrame.

    The table ``batches`` includes Kafka's internal topics, because the option ``topics`` names all topics of
    ``source``.
    """
    if table == "batches":
        options = {"topics": ",".join(source.topics), "columns": _COLUMNS, **options}
    reader = spark.read.format(FORMAT).options(table=table, pushdown="false", **options)
    return reader.load(source.paths)


def read_batches(source: Source, scratch: Store) -> tuple[DataFrame, DataFrame | None]:
    """Return the rows of batches and damaged ranges, and the rows of zeros behind batches as ``zero_tails`` returns them.

    The second table is None if there are no such zeros.
    """
    everything = scratch.keep("batches", batch_headers(load(scratch.spark, source, "batches")), files=None)
    rows_known = replicas.known(source.partitions, source.directories, source.metadata.compacted)
    known = scratch.put("known", rows_known, replicas.KNOWN)
    rows = everything.where(~F.col("zeros")).drop("zeros")
    if not scratch.holds("batches", "zeros"):
        return rows, None
    tails = scratch.keep("zero_tails", zero_tails.zero_tails(everything, known))
    return rows.unionByName(zero_tails.as_damage(tails)), tails


def read_replicas(source: Source, scratch: Store, rows: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Compute the tables of buckets (``replicas.buckets``) and of replicas."""
    parts = scratch.keep("buckets", replicas.buckets(rows, source.has_copies))
    known = scratch.frame("known", replicas.KNOWN)
    return parts, scratch.keep("replicas", replicas.replicas(parts, known))
