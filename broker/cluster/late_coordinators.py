"""Coordinators and other parts of a node that are created when they are first needed.

A broker without groups and transactions has no partitions of the coordinators' topics. The forty modules of a coordinator
are imported when its topic exists, or when a request needs the coordinator. The late import saves 12 ms of a start, and two
megabytes of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from broker.metadata.internal_topics import coordinator_partitions
from broker.metadata.listeners import MetadataListener
from broker.metadata.topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

if TYPE_CHECKING:
    from random import Random

    from broker.clock import Clock
    from broker.config import BrokerConfig
    from broker.groups.coordinator import GroupCoordinator
    from broker.injection.points import FaultInjection
    from broker.loop.life import NodeLife
    from broker.loop.slices import Slices
    from broker.metadata.cluster import ClusterMetadata
    from broker.metadata.values import PartitionState, Topic
    from broker.peers import Peers
    from broker.replicas.manager import ReplicaManager
    from broker.share.coordinator.coordinator import ShareCoordinator
    from broker.share.manager import SharePartitionManager
    from broker.share.persister import Persister
    from broker.transactions.coordinator import TransactionCoordinator


class Coordinator(Protocol):
    """The methods of a coordinator that `LateCoordinator` implements itself while the coordinator does not exist."""

    def start(self) -> None: ...

    def start_timers(self) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...

    def on_leader_changed(self, topic: Topic, partition: PartitionState) -> None: ...

    def on_topic_deleted(self, topic: Topic) -> None: ...

    def partition_for(self, key: str) -> int: ...

    def known(self) -> Iterable[Any]: ...


C = TypeVar("C", bound=Coordinator)
T = TypeVar("T")


def late_coordinator(topic: str, partitions: int, metadata: ClusterMetadata, make: Callable[[], C]) -> C:
    """Return a stand-in that creates the coordinator with ``make`` when it is first needed.

    The stand-in has all attributes of the coordinator. Type checkers see the coordinator's class, `isinstance` does not.
    """
    return cast("C", LateCoordinator(topic, partitions, metadata, make))


def late(make: Callable[[], T], idle: Mapping[str, object] = MappingProxyType({})) -> T:
    """Return a stand-in for a part of a node that has nothing to do at a start. The first access to an attribute creates it.

    ``idle`` are the methods that do not create the part: name -> result while the part does not exist.
    Type checkers see the part's class, `isinstance` does not.
    """
    return cast("T", Late(make, idle))


class Late(Generic[T]):
    """Stand-in for an object of a node. Access to any attribute that is not defined here creates the object."""

    def __init__(self, make: Callable[[], T], idle: Mapping[str, object] = MappingProxyType({})) -> None:
        self._make = make
        self._made: T | None = None
        self._idle = idle
        for name, result in idle.items():
            self.__dict__[name] = lambda *_, result=result: result

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._create(), name)
        if callable(value):
            # Cache it, so that Python finds it without calling this method again.
            self.__dict__[name] = value
        return value

    def _create(self) -> T:
        if self._made is None:
            self._made = self._make()
            for name in self._idle:
                del self.__dict__[name]
        return self._made


class LateCoordinator(Late[Coordinator], MetadataListener):
    """Stand-in for a coordinator, which follows the metadata while the coordinator does not exist."""

    def __init__(
        self, topic: str, partitions: int, metadata: ClusterMetadata, make: Callable[[], Coordinator]
    ) -> None:
        super().__init__(make)
        self._topic = topic
        self._partitions = partitions
        self._metadata = metadata
        self._is_started = False
        self._end: Callable[[Coordinator], None] | None = None
        metadata.subscribe(self)

    def _create(self) -> Coordinator:
        made = self._made
        if made is None:
            made = super()._create()
            # Cache this method as well, since each TxnOffsetCommit calls it.
            self.__dict__["partition_for"] = made.partition_for
            # This object passes metadata changes on, which keeps the order of the node's metadata listeners.
            self._metadata.unsubscribe(made)
            if self._is_started:
                # The coordinator need not load anything, since its topic did not exist at the start.
                made.start_timers()
            if self._end is not None:
                self._end(made)
        return made

    def partition_for(self, key: str) -> int:
        """The partition of the topic for ``key``. FindCoordinator calls this before the coordinator exists."""
        from protocol.hashing import partition_for  # imported here, since a start does not need it

        return partition_for(key, self._partitions)

    def known(self) -> Iterable[Any]:
        """The groups or transactional ids of the coordinator; empty while the coordinator does not exist."""
        return () if self._made is None else self._made.known()

    def start(self) -> None:
        if self._made is not None or self._metadata.topic(self._topic) is not None:
            self._create().start()
        self._is_started = True

    def close(self) -> None:
        self._ends(lambda coordinator: coordinator.close())

    def abandon(self) -> None:
        self._ends(lambda coordinator: coordinator.abandon())

    def _ends(self, end: Callable[[Coordinator], None]) -> None:
        # A coordinator that is created after this call is ended at once.
        self._is_started = False
        self._end = end
        if self._made is not None:
            end(self._made)

    def on_leader_changed(self, topic: Topic, partition: PartitionState) -> None:
        if self._made is not None or (topic.name == self._topic and self._end is None):
            self._create().on_leader_changed(topic, partition)

    def on_topic_deleted(self, topic: Topic) -> None:
        if self._made is not None:
            self._made.on_topic_deleted(topic)


def coordinators(
    config: BrokerConfig,
    clock: Clock,
    metadata: ClusterMetadata,
    replicas: ReplicaManager,
    peers: Peers,
    *,
    random: Random,
    injection: FaultInjection,
    life: NodeLife,
) -> tuple[GroupCoordinator, TransactionCoordinator, ShareCoordinator, Persister]:
    """Return stand-ins for the coordinators of one life of a node, and for its persister."""
    # Read the partition counts now, so that coordinators created later or after a change of the topic use the same.
    offsets_partitions, state_partitions, share_partitions = (
        coordinator_partitions(topic, metadata.topic, config)
        for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
    )

    def make_groups() -> GroupCoordinator:
        from broker.groups.coordinator import GroupCoordinator

        return GroupCoordinator(
            config,
            clock,
            metadata,
            replicas,
            random=random,
            injection=injection,
            life=life,
            partitions=offsets_partitions,
            persister=persister,
        )

    def make_transactions() -> TransactionCoordinator:
        from broker.transactions.coordinator import TransactionCoordinator

        return TransactionCoordinator(
            config,
            clock,
            metadata,
            replicas,
            groups,
            injection=injection,
            peers=peers,
            partitions=state_partitions,
            life=life,
        )

    def make_share_coordinator() -> ShareCoordinator:
        from broker.share.coordinator.coordinator import ShareCoordinator

        return ShareCoordinator(
            config, clock, metadata, replicas, injection=injection, life=life, partitions=share_partitions
        )

    def make_persister() -> Persister:
        from broker.share.persister import Persister

        return Persister(
            config.node_id, clock, metadata, share_coordinator, peers=peers, random=random, life=life
        )

    persister = late(make_persister)
    groups = late_coordinator(CONSUMER_OFFSETS, offsets_partitions, metadata, make_groups)
    transactions = late_coordinator(TRANSACTION_STATE, state_partitions, metadata, make_transactions)
    share_coordinator = late_coordinator(
        SHARE_GROUP_STATE, share_partitions, metadata, make_share_coordinator
    )
    return groups, transactions, share_coordinator, persister


def share_partitions(
    config: BrokerConfig,
    clock: Clock,
    metadata: ClusterMetadata,
    replicas: ReplicaManager,
    persister: Persister,
    peers: Peers,
    slices: Slices,
    life: NodeLife,
    injection: FaultInjection,
) -> SharePartitionManager:
    """Return a stand-in for the share partitions of one life of a node. The first request of a share group creates them."""

    def make() -> SharePartitionManager:
        from broker.share.manager import SharePartitionManager

        return SharePartitionManager(
            config, clock, metadata, replicas, persister, peers, slices, life, injection
        )

    return late(make, {"on_disconnected": None, "loaded": {}, "close": None})
