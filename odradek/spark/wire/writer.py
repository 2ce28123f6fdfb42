"""One open transaction that is written to, and that somebody else ends."""

from __future__ import annotations

import pyarrow as pa

from odradek.spark.wire.cluster import Cluster, Partition, ProducerId


class TransactionalWriter:
    """Rows into the transaction of (``transactional_id``, ``producer``). It never ends the transaction.

    An error is final: nothing more can be written, and the transaction should be aborted (or left to be).
    """

    records: int
    partitions: frozenset[Partition]

    def __init__(self, cluster: Cluster, transactional_id: str, producer: ProducerId) -> None: ...

    def write(
        self,
        values: pa.Array | pa.ChunkedArray,
        *,
        topic: str | None = None,
        keys: pa.Array | pa.ChunkedArray | None = None,
        headers: pa.Array | pa.ChunkedArray | None = None,
        topics: pa.Array | pa.ChunkedArray | None = None,
        partitions: pa.Array | pa.ChunkedArray | None = None,
        timestamps: pa.Array | pa.ChunkedArray | None = None,
    ) -> None:
        """Write rows; all columns are of one length.

        ``keys``, ``values``: binary or string (also large), nullable. ``headers``: list<struct<key, value>>.
        ``topics``: strings; where null (or without the column) ``topic`` is meant. ``partitions``: int32, where null:
        murmur2 of the key, else sticky. ``timestamps``: int64 ms or timestamp, where null (or without): now.
        It returns when the rows are encoded and within ``buffer.memory``; answers may be outstanding."""
        raise NotImplementedError

    def flush(self) -> None:
        """Returns when every record is acknowledged by all in-sync replicas, or raises."""
        raise NotImplementedError
