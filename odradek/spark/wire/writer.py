"""Write rows into an open transaction that another process ends."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pyarrow as pa

from odradek.spark.records.columns import Column, int_column, one_piece
from odradek.spark.records.encode import SEQUENCE_MASK, Rows, encode_batches
from odradek.spark.records.partitioner import partition_by_key, partition_sticky
from odradek.spark.wire.cluster import Cluster
from odradek.spark.wire.errors import Fatal, RecordTooLarge, UnknownTopic, WireError
from odradek.spark.wire.producer import Partition, ProducerId
from odradek.spark.wire.sender import Sender

_UNASSIGNED = -1
# Size of the rows that are encoded at once, so that a call with very many rows does not need as much memory again.
_PIECE_BYTES = 8 * 1024 * 1024

Numbers = np.ndarray[Any, np.dtype[np.int64]]


class TransactionalWriter:
    """A writer of rows into the transaction of (``transactional_id``, ``producer``). The writer never ends the transaction.

    ``records``: number of rows passed to ``write``; ``partitions``: the partitions that this writer has added to the
    transaction; ``topics``: the id of each topic at its first write (zeros if the broker has no ids).
    An error is final: nothing more can be written, and the transaction should be aborted (or left to its timeout)."""

    def __init__(self, cluster: Cluster, transactional_id: str, producer: ProducerId) -> None:
        self.records = 0
        self.topics: dict[str, bytes] = {}
        self._cluster = cluster
        self._settings = cluster.settings
        self._transactional_id = transactional_id
        self._producer = producer
        self._sender = Sender(cluster.settings, cluster.network, cluster.metadata, transactional_id)
        self._sequences: dict[Partition, int] = {}
        self._sticky: dict[str, int] = {}
        self._error: WireError | None = None
        # Bytes encoded since the network was last polled.
        self._idle_bytes = 0

    @property
    def transaction(self) -> tuple[str, ProducerId]:
        """The transactional id and the producer, for the process that ends the transaction."""
        return self._transactional_id, self._producer

    @property
    def partitions(self) -> frozenset[Partition]:
        return frozenset(self._sequences)

    def write(
        self,
        values: Column,
        *,
        topic: str | None = None,
        keys: Column | None = None,
        headers: Column | None = None,
        topics: Column | None = None,
        partitions: Column | None = None,
        timestamps: Column | None = None,
    ) -> None:
        """Write rows; all columns have the same length.

        ``keys``, ``values``: binary or string (also large), nullable. ``headers``: list<struct<key, value>>.
        ``topics``: strings; ``topic`` replaces nulls or a missing column. ``partitions``: int32; rows with a null get
        their partition from murmur2 of the key, or from sticky partitioning if they have no key. ``timestamps``: int64
        ms or timestamp; the current time replaces nulls or a missing column.

        The call returns when the rows are encoded and fit into ``buffer.memory``; responses may be outstanding. Raises
        ``TypeError`` or ``ValueError`` for columns of a wrong type or length."""
        self._check()
        rows = Rows.of(values, time.time_ns() // 1_000_000, keys=keys, headers=headers, timestamps=timestamps)
        if not len(rows):
            return
        explicit = int_column(partitions, len(rows), _UNASSIGNED)
        try:
            for name, select in self._by_topic(topic, topics, len(rows)):
                self._write_topic(name, rows, select, explicit)
            self._sender.work(wait=False)
        except WireError as error:
            self._error = error
            raise
        self.records += len(rows)

    def flush(self) -> None:
        """Wait until every record is acknowledged by all in-sync replicas. Raises the first error."""
        self._check()
        try:
            while self._sender.bytes:
                self._sender.work(wait=True)
        except WireError as error:
            self._error = error
            raise

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    # -- partitioning -------------------------------------------------------------------------------------------

    def _by_topic(self, topic: str | None, topics: Column | None, rows: int) -> list[tuple[str, Numbers]]:
        if topics is None:
            if topic is None:
                raise Fatal("INVALID_TOPIC_EXCEPTION", "neither an option nor a column names the topic")
            return [(topic, np.arange(rows))]
        encoded = one_piece(topics)
        if topic is not None:
            encoded = encoded.fill_null(topic)
        elif encoded.null_count:
            raise Fatal("INVALID_TOPIC_EXCEPTION", "a row has no topic, and no option names one")
        if not pa.types.is_dictionary(encoded.type):
            encoded = encoded.dictionary_encode()
        codes = encoded.indices.to_numpy()
        return [
            (str(name), select)
            for code, name in enumerate(encoded.dictionary.to_pylist())
            if len(select := np.flatnonzero(codes == code))
        ]

    def _write_topic(self, topic: str, rows: Rows, select: Numbers, explicit: Numbers) -> None:
        # The metadata of an idle client may be of a topic that has been deleted since.
        count = self._cluster.partitions_of(topic, refresh=topic not in self.topics)
        self.topics.setdefault(topic, self._cluster.metadata.topic_id(topic))
        assigned = self._assign(topic, count, rows, select, explicit)
        # numpy sorts 16-bit integers by radix sort, ten times as fast.
        order = np.argsort(assigned.astype(np.int16) if count < 1 << 15 else assigned, kind="stable")
        starts = np.searchsorted(assigned, np.arange(count + 1), sorter=order)
        groups = {
            index: select[order[starts[index] : starts[index + 1]]]
            for index in range(count)
            if starts[index] < starts[index + 1]
        }
        self._add_partitions(topic, groups)
        for index, group in groups.items():
            self._write_partition((topic, index), rows, group)

    def _assign(self, topic: str, count: int, rows: Rows, select: Numbers, explicit: Numbers) -> Numbers:
        """The partition of each selected row. Raises ``UnknownTopic`` if a row names a missing partition."""
        assigned = explicit[select]
        if assigned.max(initial=_UNASSIGNED) >= count or assigned.min(initial=0) < _UNASSIGNED:
            wrong = next(index for index in assigned.tolist() if not _UNASSIGNED <= index < count)
            raise UnknownTopic(
                "UNKNOWN_TOPIC_OR_PARTITION",
                f"topic {topic!r} has {count} partitions, and a row names partition {wrong}",
            )
        keys = rows.keys._replace(starts=rows.keys.starts[select], lengths=rows.keys.lengths[select])
        partition_by_key(keys, np.full(len(select), count, np.int64), assigned)
        keyless = np.flatnonzero(assigned == _UNASSIGNED)
        if len(keyless):
            first = self._sticky.setdefault(topic, random.randrange(count) * self._settings.batch_size_bytes)
            sizes = rows.sizes_bytes[select[keyless]]
            assigned[keyless], self._sticky[topic] = partition_sticky(
                sizes, count, self._settings.batch_size_bytes, first
            )
        return assigned

    # -- sending ------------------------------------------------------------------------------------------------

    def _add_partitions(self, topic: str, groups: dict[int, Numbers]) -> None:
        new = [(topic, index) for index in groups if (topic, index) not in self._sequences]
        if new:
            self._cluster.add_partitions(self._transactional_id, self._producer, new)
            self._sequences.update(dict.fromkeys(new, 0))

    def _write_partition(self, partition: Partition, rows: Rows, group: Numbers) -> None:
        for piece in _pieces(rows, group):
            self._write_piece(partition, rows, piece)

    def _batch_size_bytes(self, topic: str) -> int:
        settings = self._settings
        refused = self._sender.batch_sizes_bytes.get(topic, settings.batch_size_bytes)
        return min(settings.batch_size_bytes, settings.max_request_size_bytes, refused)

    def _write_piece(self, partition: Partition, rows: Rows, group: Numbers) -> None:
        settings = self._settings
        batches = encode_batches(
            rows,
            group,
            producer_id=self._producer.producer_id,
            epoch=self._producer.epoch,
            base_sequence=self._sequences[partition],
            compression=settings.compression_type,
            batch_size_bytes=self._batch_size_bytes(partition[0]),
        )
        for batch in batches:
            if len(batch.data) > settings.max_request_size_bytes:
                topic, index = partition
                raise RecordTooLarge(
                    "MESSAGE_TOO_LARGE",
                    f"a record for {topic}-{index} takes {len(batch.data)} bytes, more than kafka.max.request.size",
                )
        self._sequences[partition] = (self._sequences[partition] + len(group)) & SEQUENCE_MASK
        self._sender.append(partition, batches)
        self._idle_bytes += sum(len(batch.data) for batch in batches)
        if self._idle_bytes >= settings.batch_size_bytes:
            # Do not poll after each of a thousand partitions: polling costs more than encoding a few rows.
            self._idle_bytes = 0
            self._sender.work(wait=False)
            while self._sender.bytes > settings.buffer_memory_bytes:
                self._sender.work(wait=True)


def _pieces(rows: Rows, group: Numbers) -> list[Numbers]:
    """Split the rows into pieces of about ``_PIECE_BYTES``, in order."""
    turns = np.cumsum(rows.sizes_bytes[group]) // _PIECE_BYTES
    return np.split(group, np.flatnonzero(np.diff(turns)) + 1)
