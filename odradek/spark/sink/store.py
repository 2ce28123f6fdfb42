"""Store the decision record in the cluster: read and write it under the driver's epoch."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from odradek.spark.sink.decision_record import (
    CHUNKS_MAX,
    SinkState,
    fitting,
    from_bindings,
    from_chunks,
    is_chunk,
    to_binding,
    to_chunks,
)
from odradek.spark.sink.names import SinkPlace, driver_id, query_group
from odradek.spark.wire import Authorization, ProducerId, WireError

log = logging.getLogger(__name__)

Partition = tuple[str, int]
# The chunks of the record are in partitions 0, 2, 3, …; partition 1 is for the barrier.
BARRIER = 1


class Producers(Protocol):
    """The result of ``init_producer_ids``: producers by transactional id.

    ``uncertain`` are the ids whose epoch may be raised again by a request that is still under way.
    """

    uncertain: set[str]

    def __getitem__(self, transactional_id: str) -> ProducerId: ...


class Coordination(Protocol):
    """The requests that the sink sends to a cluster. ``wire.Cluster`` implements them, and a model in the tests."""

    def partitions_of(self, topic: str) -> int: ...

    def topic_ids(self, topics: Iterable[str]) -> Mapping[str, bytes]: ...

    def init_producer_ids(
        self, transactional_ids: Sequence[str], transaction_timeout_ms: int
    ) -> Producers: ...

    def check_transactions(
        self, open_ones: Sequence[tuple[str, ProducerId, Iterable[Partition]]]
    ) -> Mapping[str, WireError | None]: ...

    def end_transactions(
        self, open_ones: Sequence[tuple[str, ProducerId]], commit: bool
    ) -> Mapping[str, WireError | None]: ...

    def fetch_offsets(
        self, group: str, partitions: Iterable[Partition] | None
    ) -> Mapping[Partition, tuple[int, str]]: ...

    def commit_offsets(
        self,
        transactional_id: str,
        producer: ProducerId,
        group: str,
        offsets: Mapping[Partition, tuple[int, str]],
    ) -> None: ...

    def list_transactions(self, prefix: str, states: Sequence[str] = ()) -> Mapping[str, str]: ...


def changed_topics(cluster: Coordination, known: Mapping[str, bytes]) -> list[str]:
    """The topics of ``known`` (ids by name) that do not exist any more, or were created again under the same name."""
    now = cluster.topic_ids(known) if known else {}
    return sorted(topic for topic, each in known.items() if any(each) and now.get(topic, b"") != each)


@contextlib.contextmanager
def _warned_of_rights(query_id: str) -> Iterator[None]:
    """Context manager: log a warning instead of raising if the sink may not read or write the group of its query.

    The sink works without that group, but then cannot notice at the first batch that its name has changed.
    """
    try:
        yield
    except Authorization as error:
        log.warning(
            "without READ on the group %s the sink cannot check at the query's first batch whether the option 'name' "
            "was changed: %s",
            query_group(query_id),
            error,
        )


class Store:
    """Store of a sink's decision record: the metadata of offsets that the group ``name`` has committed.

    The offsets are those of partitions of ``topic``; nothing is written to the topic."""

    def __init__(self, cluster: Coordination, name: str, topic: str) -> None:
        self.cluster = cluster
        self.name = name
        self.topic = topic
        self._partitions = 0

    @property
    def place(self) -> SinkPlace:
        return SinkPlace(self.name, self.topic)

    @property
    def _count(self) -> int:
        if self._partitions == 0:
            # FindCoordinator creates __consumer_offsets on a new cluster; Metadata does not always do so.
            self.cluster.fetch_offsets(self.name, [(self.topic, 0)])
            self._partitions = self.cluster.partitions_of(self.topic)
        return self._partitions

    @property
    def _places(self) -> list[int]:
        return [index for index in range(min(self._count, CHUNKS_MAX + 1)) if index != BARRIER]

    def read(self) -> SinkState | None:
        """Read the decision record from the group's coordinator; None if there is no record.

        Waits until open transactions with offsets of the record's partitions have ended.
        """
        offsets = self.cluster.fetch_offsets(self.name, [(self.topic, place) for place in self._places])
        return from_chunks([offsets.get((self.topic, place), (-1, "")) for place in self._places])

    def read_as(self, driver: ProducerId) -> SinkState | None:
        """Read the latest decision record; the driver's transaction stays open.

        Raises ``wire.Fenced`` if there is a newer driver.
        A broker that is no longer the group's coordinator, and has not noticed it yet, responds to OffsetFetch from
        memory. Such a broker cannot acknowledge a commit, so a commit comes first, to a partition that is never read.
        If the topic has only one partition, the commit is to the record's own partition, and is aborted before the
        record is read.
        """
        apart = self._count > BARRIER
        place = BARRIER if apart else 0
        self.cluster.commit_offsets(driver_id(self.name), driver, self.name, {(self.topic, place): (0, "")})
        if not apart:
            self.end(driver, commit=False)
        return self.read()

    def anywhere(self, driver: ProducerId) -> list[Partition]:
        """The partitions, of any topic, whose committed offsets contain a part of a decision record of this sink.

        The driver's transaction is aborted first, because OffsetFetch would wait for its offsets.
        """
        self.end(driver, commit=False)
        offsets = self.cluster.fetch_offsets(self.name, None)
        return sorted(
            place for place, (offset, metadata) in offsets.items() if offset >= 0 and is_chunk(metadata)
        )

    def bound(self, query_id: str) -> SinkPlace | None:
        """The sink that has decided the first batch of this query, as `bind` recorded.

        None if there is no such sink, if this offset has expired (after seven days), or if its group may not be read.
        """
        with _warned_of_rights(query_id):
            return from_bindings(self.cluster.fetch_offsets(query_group(query_id), None).values())
        return None

    def bind(self, driver: ProducerId, query_id: str) -> None:
        """Commit, in the driver's open transaction, an offset of the query's group that names this sink.

        The same transaction decides the query's first batch, so `bound` finds the sink only if the batch was
        decided. If the client may not write to the group, this only logs a warning.
        """
        offsets = {(self.topic, 0): (0, to_binding(self.place))}
        with _warned_of_rights(query_id):
            self.cluster.commit_offsets(driver_id(self.name), driver, query_group(query_id), offsets)

    def fitting(self, record: SinkState) -> SinkState:
        """The decision record, without optional parts if it is too long (`decision_record.fitting`).

        Raises ``TooManyTasks`` if the record is still too long.
        """
        return fitting(record, len(self._places))

    def chunks(self, record: SinkState) -> dict[Partition, tuple[int, str]]:
        """The decision record's chunks (offset, metadata) by partition. Raises ``TooManyTasks`` if it is too long."""
        chunks = to_chunks(record, len(self._places))
        return {
            (self.topic, place): (record.next_batch, chunk)
            for place, chunk in zip(self._places, chunks, strict=False)
        }

    def write(self, driver: ProducerId, chunks: Mapping[Partition, tuple[int, str]]) -> None:
        """Write the record's chunks in the driver's transaction, which stays open.

        Raises ``wire.Fenced`` if there is a newer driver.
        """
        self.cluster.commit_offsets(driver_id(self.name), driver, self.name, chunks)

    def end(self, driver: ProducerId, commit: bool) -> None:
        """Commit or abort the driver's transaction. Raises the error of EndTxn, if any."""
        mine = driver_id(self.name)
        error = self.cluster.end_transactions([(mine, driver)], commit)[mine]
        if error is not None:
            raise error
