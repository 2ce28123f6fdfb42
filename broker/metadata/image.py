"""The cluster as its metadata log tells it: a value that records are folded into, one by one.

Pure: no file, no loop, no clock. What Kafka keeps in ``TopicsImage``, ``ClusterImage``, ``FeaturesImage``,
``ConfigurationsImage`` and ``ProducerIdsImage`` is here. Records whose subject is not served yet (ACLs, quotas, SCRAM, …)
are kept as they are, so that a snapshot loses nothing that Kafka wrote.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from broker.metadata.kept import Kept, keep
from broker.topics import unified_name
from protocol.records import cluster_metadata as schema

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32
CLUSTER_DEFAULT: Final = ""
"""The resource name of broker settings that hold for every broker."""

NO_LEADER: Final = -1
_LEADER_UNCHANGED: Final = -2


AnyRecord = schema.MetadataRecord | schema.UnknownMetadataRecord


class InconsistentMetadata(Exception):
    """A record speaks of something that does not exist: the log is not one that Kafka or we have written."""


@dataclass(slots=True)
class PartitionState:
    """One partition: who holds it, who leads it, since which epoch.

    A change makes a new one, so who holds one may keep it. (Not frozen: ten thousand are made at a start, and a frozen
    one costs four times as much.)
    """

    index: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[uuid.UUID, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_eligible: tuple[int, ...] = ()


@dataclass(slots=True)
class Topic:
    """A topic; ``partitions[i].index == i`` once a commit is applied."""

    name: str
    topic_id: uuid.UUID
    partitions: list[PartitionState] = field(default_factory=list)
    configs: dict[str, str] = field(default_factory=dict)

    def partition(self, index: int) -> PartitionState | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas) if self.partitions else 0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address that a broker has registered."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True)
class Broker:
    """A registered broker."""

    node_id: int
    epoch: int
    incarnation_id: uuid.UUID
    endpoints: tuple[Endpoint, ...] = ()
    features: tuple[tuple[str, int, int], ...] = ()
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[uuid.UUID, ...] = ()
    cordoned_log_dirs: tuple[uuid.UUID, ...] | None = None

    def endpoint(self, listener_name: str) -> Endpoint | None:
        return next((one for one in self.endpoints if one.name == listener_name), None)


@dataclass(slots=True)
class Changes:
    """What a commit did, for those who follow the image. A topic that is new is nowhere but in ``created``."""

    created: dict[uuid.UUID, Topic] = field(default_factory=dict)
    deleted: dict[uuid.UUID, Topic] = field(default_factory=dict)
    grown: dict[uuid.UUID, int] = field(default_factory=dict)
    """The first partition that is new."""
    leaders: set[tuple[uuid.UUID, int]] = field(default_factory=set)
    configs: set[tuple[int, str]] = field(default_factory=set)
    """(resource type, resource name)."""


@dataclass(slots=True)
class Image:
    """Everything that the log says, up to ``offset``."""

    offset: int = -1
    topics: dict[str, Topic] = field(default_factory=dict)
    topics_by_id: dict[uuid.UUID, Topic] = field(default_factory=dict)
    brokers: dict[int, Broker] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    """Settings of brokers, groups and client metrics; a topic's own are in ``Topic.configs``."""
    next_producer_id: int = 0
    kept: Kept = field(default_factory=dict)
    """Records that are only kept, by their identity."""
    names_by_unified: dict[str, set[str]] = field(default_factory=dict)
    """Topics whose name has a '.' or '_', by what remains when the two are not told apart."""

    def broker_configs(self, node_id: int) -> dict[str, str]:
        """Settings that hold for one broker only."""
        return self.configs.get((BROKER_RESOURCE, str(node_id)), {})

    @property
    def cluster_configs(self) -> dict[str, str]:
        """Settings that hold for all brokers."""
        return self.configs.get((BROKER_RESOURCE, CLUSTER_DEFAULT), {})

    def colliding(self, unified: str) -> str | None:
        """A topic whose name differs from others only in '.' and '_'."""
        return next(iter(self.names_by_unified.get(unified, ())), None)

    def apply(self, record: AnyRecord, changes: Changes) -> None:
        """Fold one record into the image and note what it did; ``offset`` is for the caller to move."""
        fold = _FOLDS.get(type(record))
        if fold is not None:
            fold(self, record, changes)
        else:
            keep(self.kept, record)

    def existing(self, topic_id: uuid.UUID | None) -> Topic:
        topic = self.topics_by_id.get(topic_id) if topic_id is not None else None
        if topic is None:
            raise InconsistentMetadata(
                f"the metadata log speaks of topic id {topic_id}, which does not exist"
            )
        return topic


def _topic(image: Image, record: schema.TopicRecord, changes: Changes) -> None:
    topic = Topic(record.name, _id(record.topic_id))
    if record.name in image.topics:
        raise InconsistentMetadata(f"the metadata log creates topic {record.name} twice")
    image.topics[topic.name] = image.topics_by_id[topic.topic_id] = topic
    if "." in topic.name or "_" in topic.name:
        image.names_by_unified.setdefault(unified_name(topic.name), set()).add(topic.name)
    changes.created[topic.topic_id] = topic


def _remove_topic(image: Image, record: schema.RemoveTopicRecord, changes: Changes) -> None:
    topic = image.existing(record.topic_id)
    del image.topics[topic.name], image.topics_by_id[topic.topic_id]
    unified = unified_name(topic.name)
    names = image.names_by_unified.get(unified, set())
    names.discard(topic.name)
    if not names:
        image.names_by_unified.pop(unified, None)
    changes.grown.pop(topic.topic_id, None)
    changes.leaders = {key for key in changes.leaders if key[0] != topic.topic_id}
    changes.configs.discard((TOPIC_RESOURCE, topic.name))
    if changes.created.pop(topic.topic_id, None) is None:
        changes.deleted[topic.topic_id] = topic


def _partition(image: Image, record: schema.PartitionRecord, changes: Changes) -> None:
    topic = image.existing(record.topic_id)
    state = PartitionState(
        record.partition_id,
        tuple(record.replicas),
        tuple(record.isr),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        tuple(_id(one) for one in record.directories),
        tuple(record.removing_replicas),
        tuple(record.adding_replicas),
        record.leader_recovery_state,
        tuple(record.eligible_leader_replicas or ()),
        tuple(record.last_known_elr or ()),
    )
    _place(topic, state)
    if topic.topic_id not in changes.created:
        first = changes.grown.get(topic.topic_id, state.index)
        changes.grown[topic.topic_id] = min(first, state.index)


def _place(topic: Topic, state: PartitionState) -> None:
    """Kafka writes a topic's partitions in the order of a hash map: rising, but nothing promises it."""
    partitions = topic.partitions
    if state.index == len(partitions):
        partitions.append(state)
        return
    at = bisect_left(partitions, state.index, key=lambda one: one.index)
    if at < len(partitions) and partitions[at].index == state.index:
        partitions[at] = state
    else:
        partitions.insert(at, state)


def _change_partition(image: Image, record: schema.PartitionChangeRecord, changes: Changes) -> None:
    topic = image.existing(record.topic_id)
    state = topic.partition(record.partition_id)
    if state is None:
        raise InconsistentMetadata(
            f"the metadata log changes partition {topic.name}-{record.partition_id}, which does not exist"
        )
    elected = record.leader != _LEADER_UNCHANGED
    topic.partitions[record.partition_id] = PartitionState(
        state.index,
        _changed(record.replicas, state.replicas),
        _changed(record.isr, state.isr),
        record.leader if elected else state.leader,
        state.leader_epoch + 1 if elected else state.leader_epoch,
        state.partition_epoch + 1,
        state.directories if record.directories is None else tuple(_id(one) for one in record.directories),
        _changed(record.removing_replicas, state.removing_replicas),
        _changed(record.adding_replicas, state.adding_replicas),
        state.leader_recovery_state if record.leader_recovery_state == -1 else record.leader_recovery_state,
        _changed(record.eligible_leader_replicas, state.eligible_leader_replicas),
        _changed(record.last_known_elr, state.last_known_eligible),
    )
    if topic.topic_id not in changes.created:
        changes.leaders.add((topic.topic_id, state.index))


def _changed(new: Sequence[int] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if new is None else tuple(new)


def _config(image: Image, record: schema.ConfigRecord, changes: Changes) -> None:
    resource = (record.resource_type, record.resource_name)
    if record.resource_type == TOPIC_RESOURCE:
        topic = image.topics.get(record.resource_name)
        if topic is None:
            raise InconsistentMetadata(
                f"the metadata log configures topic {record.resource_name}, which does not exist"
            )
        _set(topic.configs, record)
        if topic.topic_id not in changes.created:
            changes.configs.add(resource)
        return
    values = image.configs.setdefault(resource, {})
    _set(values, record)
    if not values:
        del image.configs[resource]
    changes.configs.add(resource)


def _set(values: dict[str, str], record: schema.ConfigRecord) -> None:
    if record.value is None:
        values.pop(record.name, None)
    else:
        values[record.name] = record.value


def _feature(image: Image, record: schema.FeatureLevelRecord, changes: Changes) -> None:
    if record.feature_level == 0:
        image.features.pop(record.name, None)
    else:
        image.features[record.name] = record.feature_level


def _producer_ids(image: Image, record: schema.ProducerIdsRecord, changes: Changes) -> None:
    if record.next_producer_id < image.next_producer_id:
        raise InconsistentMetadata(
            f"the metadata log takes the next producer id back from {image.next_producer_id} "
            f"to {record.next_producer_id}"
        )
    image.next_producer_id = record.next_producer_id


def _register(image: Image, record: schema.RegisterBrokerRecord, changes: Changes) -> None:
    cordoned = record.cordoned_log_dirs
    image.brokers[record.broker_id] = Broker(
        record.broker_id,
        record.broker_epoch,
        _id(record.incarnation_id),
        tuple(Endpoint(one.name, one.host, one.port, one.security_protocol) for one in record.endpoints),
        tuple((one.name, one.min_supported_version, one.max_supported_version) for one in record.features),
        record.rack,
        record.fenced,
        record.in_controlled_shutdown,
        tuple(_id(one) for one in record.log_dirs),
        None if cordoned is None else tuple(_id(one) for one in cordoned),
    )


def _change_broker(image: Image, record: schema.BrokerRegistrationChangeRecord, changes: Changes) -> None:
    broker = _registered(image, record.broker_id)
    image.brokers[record.broker_id] = replace(
        broker,
        fenced=broker.fenced if record.fenced == 0 else record.fenced > 0,
        in_controlled_shutdown=broker.in_controlled_shutdown or record.in_controlled_shutdown > 0,
        log_dirs=tuple(_id(one) for one in record.log_dirs) or broker.log_dirs,
        cordoned_log_dirs=broker.cordoned_log_dirs
        if record.cordoned_log_dirs is None
        else tuple(_id(one) for one in record.cordoned_log_dirs),
    )


def _fence(
    image: Image, record: schema.FenceBrokerRecord | schema.UnfenceBrokerRecord, changes: Changes
) -> None:
    fenced = isinstance(record, schema.FenceBrokerRecord)
    image.brokers[record.id] = replace(_registered(image, record.id), fenced=fenced)


def _unregister(image: Image, record: schema.UnregisterBrokerRecord, changes: Changes) -> None:
    _registered(image, record.broker_id)
    del image.brokers[record.broker_id]


def _registered(image: Image, node_id: int) -> Broker:
    broker = image.brokers.get(node_id)
    if broker is None:
        raise InconsistentMetadata(f"the metadata log speaks of broker {node_id}, which is not registered")
    return broker


def _id(value: uuid.UUID | None) -> uuid.UUID:
    return uuid.UUID(int=0) if value is None else value


_FOLDS: Final[dict[type, Callable[[Image, Any, Changes], None]]] = {
    schema.TopicRecord: _topic,
    schema.RemoveTopicRecord: _remove_topic,
    schema.PartitionRecord: _partition,
    schema.PartitionChangeRecord: _change_partition,
    schema.ConfigRecord: _config,
    schema.FeatureLevelRecord: _feature,
    schema.ProducerIdsRecord: _producer_ids,
    schema.RegisterBrokerRecord: _register,
    schema.BrokerRegistrationChangeRecord: _change_broker,
    schema.FenceBrokerRecord: _fence,
    schema.UnfenceBrokerRecord: _fence,
    schema.UnregisterBrokerRecord: _unregister,
}
