"""A coordinator that is made when there is something to coordinate.

A broker that no group and no transaction has used yet has no partition of the coordinators' topics. Until it has, or until a
request asks for the coordinator, its forty modules need not be imported: 12 ms of a start, and two megabytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from broker.metadata.listeners import MetadataListener

if TYPE_CHECKING:
    from broker.metadata.cluster import ClusterMetadata
    from broker.metadata.values import PartitionState, Topic


class Coordinator(Protocol):
    """What the life of a node, and who only looks, ask of a coordinator."""

    def start(self) -> None: ...

    def start_timers(self) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...

    def on_leader_changed(self, topic: Topic, partition: PartitionState) -> None: ...

    def on_topic_deleted(self, topic: Topic) -> None: ...

    def partition_for(self, key: str) -> int: ...

    def known(self) -> Iterable[Any]: ...


C = TypeVar("C", bound=Coordinator)


def late_coordinator(topic: str, partitions: int, metadata: ClusterMetadata, make: Callable[[], C]) -> C:
    """What stands for the coordinator that ``make`` makes.

    It has all attributes of the coordinator, and so its type to a type checker, but it is no instance of its class.
    """
    return cast("C", LateCoordinator(topic, partitions, metadata, make))


class LateCoordinator(MetadataListener):
    """Stands for the coordinator of a topic. What is neither of a node's life nor answered here makes the coordinator."""

    def __init__(
        self, topic: str, partitions: int, metadata: ClusterMetadata, make: Callable[[], Coordinator]
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._metadata = metadata
        self._make = make
        self._made: Coordinator | None = None
        self._is_started = False
        self._end: Callable[[Coordinator], None] | None = None
        metadata.subscribe(self)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._coordinator(), name)
        if callable(value):
            # From now on Python finds it without this function.
            self.__dict__[name] = value
        return value

    def _coordinator(self) -> Coordinator:
        made = self._made
        if made is None:
            made = self._made = self._make()
            # Each TxnOffsetCommit asks: Python finds it from now on without this class.
            self.__dict__["partition_for"] = made.partition_for
            # What it has to know of the metadata it is told from here, in the order of the node's listeners.
            self._metadata.unsubscribe(made)
            if self._is_started:
                # There was nothing to load at the start.
                made.start_timers()
            if self._end is not None:
                self._end(made)
        return made

    def partition_for(self, key: str) -> int:
        """The partition of the topic that keeps ``key``: FindCoordinator asks, before there is anything to keep."""
        from protocol.hashing import partition_for  # a start does not hash

        return partition_for(key, self._partitions)

    def known(self) -> Iterable[Any]:
        """What the coordinator keeps: nothing while there is none."""
        return () if self._made is None else self._made.known()

    def start(self) -> None:
        if self._made is not None or self._metadata.topic(self._topic) is not None:
            self._coordinator().start()
        self._is_started = True

    def close(self) -> None:
        self._ends(lambda coordinator: coordinator.close())

    def abandon(self) -> None:
        self._ends(lambda coordinator: coordinator.abandon())

    def _ends(self, end: Callable[[Coordinator], None]) -> None:
        # One that is asked for later is at its end already.
        self._is_started = False
        self._end = end
        if self._made is not None:
            end(self._made)

    def on_leader_changed(self, topic: Topic, partition: PartitionState) -> None:
        if self._made is not None or (topic.name == self._topic and self._end is None):
            self._coordinator().on_leader_changed(topic, partition)

    def on_topic_deleted(self, topic: Topic) -> None:
        if self._made is not None:
            self._made.on_topic_deleted(topic)
