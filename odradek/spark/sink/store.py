"""Where the decision record is kept: read and written under the driver's epoch."""

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
# The chunks of the record lie on partitions 0, 2, 3, …; partition 1 takes the barrier.
BARRIER = 1


class Producers(Protocol):
    """What ``init_producer_ids`` answers: by transactional id, and the ids whose epoch may be raised again by a request that
    is still under way."""

    uncertain: set[str]

    def __getitem__(self, transactional_id: str) -> ProducerId: ...


class Coordination(Protocol):
    """What the sink asks of a cluster, as ``wire.Cluster`` answers it (tests have a model)."""

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
    """Which of these topics, id by name, do not exist any more, or exist anew under their names."""
    now = cluster.topic_ids(known) if known else {}
    return sorted(topic for topic, each in known.items() if any(each) and now.get(topic, b"") != each)


@contextlib.contextmanager
def _warned_of_rights(query_id: str) -> Iterator[None]:
    """A sink that may not use the group of its query works without it: only a name that is changed before the second batch
    is not noticed then."""
    try:
        yield
    except Authorization as error:
        log.warning(
            "without READ on the group %s the query is not known again if its name changes in its first batch: %s",
            query_group(query_id),
            error,
        )


class Store:
    """The record of the sink ``name``, on partitions of ``topic``, which is only a place: nothing is written to it."""

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
            # Looking for the group's coordinator has __consumer_offsets created on a new cluster; asking for it need not.
            self.cluster.fetch_offsets(self.name, [(self.topic, 0)])
            self._partitions = self.cluster.partitions_of(self.topic)
        return self._partitions

    @property
    def _places(self) -> list[int]:
        return [index for index in range(min(self._count, CHUNKS_MAX + 1)) if index != BARRIER]

    def read(self) -> SinkState | None:
        """The record as the group's coordinator has it, None if there is none; open transactions are waited for."""
        offsets = self.cluster.fetch_offsets(self.name, [(self.topic, place) for place in self._places])
        return from_chunks([offsets.get((self.topic, place), (-1, "")) for place in self._places])

    def read_as(self, driver: ProducerId) -> SinkState | None:
        """The record, certainly not an older one; leaves the driver's transaction open. ``wire.Fenced`` if there is a newer
        driver.

        A broker that has lost its partitions and does not know it yet answers OffsetFetch from its memory. Such a broker can
        acknowledge no commit: so a commit comes first, to a partition that is never read. Where there is one partition only,
        the commit is to the record's own, and is aborted before the record is read."""
        apart = self._count > BARRIER
        place = BARRIER if apart else 0
        self.cluster.commit_offsets(driver_id(self.name), driver, self.name, {(self.topic, place): (0, "")})
        if not apart:
            self.end(driver, commit=False)
        return self.read()

    def anywhere(self, driver: ProducerId) -> list[Partition]:
        """The partitions that have chunks of a record of this sink, of whichever topic. It ends the driver's transaction:
        its offsets would be waited for."""
        self.end(driver, commit=False)
        offsets = self.cluster.fetch_offsets(self.name, None)
        return sorted(
            place for place, (offset, metadata) in offsets.items() if offset >= 0 and is_chunk(metadata)
        )

    def bound(self, query_id: str) -> SinkPlace | None:
        """The sink that has decided the first batch of this query, None if none has (or more than seven days ago), or if the
        group may not be read."""
        with _warned_of_rights(query_id):
            return from_bindings(self.cluster.fetch_offsets(query_group(query_id), None).values())
        return None

    def bind(self, driver: ProducerId, query_id: str) -> None:
        """Into the driver's transaction: that this sink has decided the first batch of this query."""
        offsets = {(self.topic, 0): (0, to_binding(self.place))}
        with _warned_of_rights(query_id):
            self.cluster.commit_offsets(driver_id(self.name), driver, query_group(query_id), offsets)

    def fitting(self, record: SinkState) -> SinkState:
        """What of it has room. ``TooManyTasks`` if it does not fit."""
        return fitting(record, len(self._places))

    def chunks(self, record: SinkState) -> dict[Partition, tuple[int, str]]:
        """``TooManyTasks`` if it does not fit."""
        chunks = to_chunks(record, len(self._places))
        return {
            (self.topic, place): (record.next_batch, chunk)
            for place, chunk in zip(self._places, chunks, strict=False)
        }

    def write(self, driver: ProducerId, chunks: Mapping[Partition, tuple[int, str]]) -> None:
        """Into the driver's transaction, which ``end`` ends. ``wire.Fenced`` if there is a newer driver."""
        self.cluster.commit_offsets(driver_id(self.name), driver, self.name, chunks)

    def end(self, driver: ProducerId, commit: bool) -> None:
        """End the driver's transaction; raises what went wrong."""
        mine = driver_id(self.name)
        error = self.cluster.end_transactions([(mine, driver)], commit)[mine]
        if error is not None:
            raise error
