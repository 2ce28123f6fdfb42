"""The metadata records for each change. Pure functions.

The order of records is Kafka's: a topic, its settings, its partitions.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from broker.metadata import client_quotas
from broker.metadata.image import Image
from broker.metadata.values import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    MIN_IN_SYNC_REPLICAS,
    TOPIC_RESOURCE,
    BrokerRegistration,
    PartitionState,
    Topic,
)
from protocol.records import cluster_metadata as schema
from protocol.records.cluster_metadata import MetadataRecord

Assignment = Sequence[Sequence[int]]
"""The replicas of each partition, the preferred leader first."""

Directories = Mapping[int, uuid.UUID]
"""Broker id -> id of the broker's log directory (KIP-858)."""


def records_for_new_topic(
    topic_id: uuid.UUID,
    name: str,
    assignment: Assignment,
    configs: Mapping[str, str],
    directories: Directories,
    live: Collection[int],
    *,
    clears_elr: bool = False,
) -> list[MetadataRecord]:
    """Return the records that create a topic.

    The first live replica of each partition leads. All live replicas are in sync, as their logs are empty.
    ``clears_elr`` adds the records of `records_that_clear_elr`.
    """
    settings = records_for_config_change(TOPIC_RESOURCE, name, configs)
    return [
        schema.TopicRecord(name=name, topic_id=topic_id),
        *settings,
        *(records_that_clear_elr(settings) if clears_elr else ()),
        *_partitions(topic_id, 0, assignment, directories, live),
    ]


def records_for_new_partitions(
    topic: Topic, assignment: Assignment, directories: Directories, live: Collection[int]
) -> list[MetadataRecord]:
    return _partitions(topic.topic_id, len(topic.partitions), assignment, directories, live)


def _partitions(
    topic_id: uuid.UUID,
    first: int,
    assignment: Assignment,
    directories: Directories,
    live: Collection[int],
) -> list[MetadataRecord]:
    records: list[MetadataRecord] = []
    for index, replicas in enumerate(assignment, first):
        in_sync = tuple(node_id for node_id in replicas if node_id in live)
        records.append(
            schema.PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=tuple(replicas),
                isr=in_sync,
                leader=in_sync[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=tuple(directories[node_id] for node_id in replicas),
            )
        )
    return records


def record_for_leader_epoch(topic: Topic, state: PartitionState, epoch: int) -> MetadataRecord:
    """Return the PartitionRecord that sets a leader epoch, as a PartitionChangeRecord can only increment the epoch."""
    return record_of_partition(
        topic.topic_id, replace(state, leader_epoch=epoch, partition_epoch=state.partition_epoch + 1)
    )


def records_for_removed_topic(topic: Topic) -> list[MetadataRecord]:
    """Return the record that deletes a topic. As in Kafka there are no records for its partitions and settings."""
    return [schema.RemoveTopicRecord(topic_id=topic.topic_id)]


def records_for_config_change(
    resource_type: int, resource_name: str, values: Mapping[str, str | None]
) -> list[MetadataRecord]:
    """Return the records that set the settings with a value in ``values``, and remove those whose value is None."""
    return [
        schema.ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
        for name, value in values.items()
    ]


def records_that_clear_elr(records: Sequence[MetadataRecord]) -> list[MetadataRecord]:
    """Return a ClearElrRecord for each ConfigRecord of ``min.insync.replicas`` in ``records``.

    Under another value, the eligible leader replicas may lack committed records. As in Kafka, a change for all
    brokers clears those of all topics (``createClearElrRecordsAsNeeded``).
    """
    return [
        schema.ClearElrRecord(topic_name=each.resource_name if each.resource_type == TOPIC_RESOURCE else "")
        for each in records
        if isinstance(each, schema.ConfigRecord) and each.name == MIN_IN_SYNC_REPLICAS
    ]


def records_that_enable_elr(image: Image, min_isr: int) -> list[MetadataRecord]:
    """Return the records of settings that level 1 of ``eligible.leader.replicas.version`` needs.

    At level 1 ``min.insync.replicas`` has one value for all brokers: ``min_isr``, unless the metadata
    already has a value.
    """
    records: list[MetadataRecord] = []
    if MIN_IN_SYNC_REPLICAS not in image.cluster_configs:
        records += records_for_config_change(
            BROKER_RESOURCE, CLUSTER_DEFAULT, {MIN_IN_SYNC_REPLICAS: str(min_isr)}
        )
    for (resource_type, name), values in image.configs.items():
        if resource_type == BROKER_RESOURCE and name != CLUSTER_DEFAULT and MIN_IN_SYNC_REPLICAS in values:
            records += records_for_config_change(resource_type, name, {MIN_IN_SYNC_REPLICAS: None})
    return records


def records_for_features(levels: Mapping[str, int]) -> list[MetadataRecord]:
    return [schema.FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()]


def record_for_producer_ids(broker: BrokerRegistration, next_producer_id: int) -> MetadataRecord:
    return schema.ProducerIdsRecord(
        broker_id=broker.node_id, broker_epoch=broker.epoch, next_producer_id=next_producer_id
    )


def record_for_registration(broker: BrokerRegistration) -> MetadataRecord:
    return schema.RegisterBrokerRecord(
        broker_id=broker.node_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        endpoints=tuple(
            schema.BrokerEndpoint(
                name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol
            )
            for one in broker.endpoints
        ),
        features=tuple(
            schema.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in broker.features
        ),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.log_dirs,
        cordoned_log_dirs=broker.cordoned_log_dirs,
    )


def record_for_shutdown(broker: BrokerRegistration) -> MetadataRecord:
    """Return the record that begins the controlled shutdown of a broker: it gets no new replicas or leadership."""
    return schema.BrokerRegistrationChangeRecord(
        broker_id=broker.node_id, broker_epoch=broker.epoch, in_controlled_shutdown=1
    )


def record_for_cordoning(broker: BrokerRegistration, *, cordoned: bool) -> MetadataRecord:
    """Return the record that cordons all log directories of a broker, or none of them (KIP-1066)."""
    return schema.BrokerRegistrationChangeRecord(
        broker_id=broker.node_id,
        broker_epoch=broker.epoch,
        cordoned_log_dirs=broker.log_dirs if cordoned else (),
    )


def record_for_fencing(broker: BrokerRegistration) -> MetadataRecord:
    """Return the record that fences a broker."""
    return schema.BrokerRegistrationChangeRecord(
        broker_id=broker.node_id, broker_epoch=broker.epoch, fenced=1
    )


def record_for_unfencing(broker: BrokerRegistration) -> MetadataRecord:
    """Return the record that makes a registered broker live."""
    return schema.BrokerRegistrationChangeRecord(
        broker_id=broker.node_id, broker_epoch=broker.epoch, fenced=-1
    )


def records_of(image: Image) -> Iterator[MetadataRecord]:
    """Yield the whole image as records, in the order of Kafka's snapshots, which begin with the features."""
    yield from records_for_features(image.features)
    for broker in image.brokers.values():
        yield record_for_registration(broker)
    for topic in image.topics.values():
        yield schema.TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for partition in topic.partitions:
            yield record_of_partition(topic.topic_id, partition)
    for topic in image.topics.values():
        yield from records_for_config_change(TOPIC_RESOURCE, topic.name, topic.configs)
    for (resource_type, resource_name), values in image.configs.items():
        yield from records_for_config_change(resource_type, resource_name, values)
    if image.next_producer_id > 0:
        # -1 as in Kafka's snapshot, which does not store the owner of the last block.
        yield schema.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    yield from client_quotas.records_of(image.quotas)
    yield from image.credentials.values()
    yield from image.tokens.values()
    if image.acls:
        from broker.metadata import acls

        yield from acls.records_of(image.acls)
    yield from image.kept.values()


def record_of_partition(topic_id: uuid.UUID, state: PartitionState) -> MetadataRecord:
    return schema.PartitionRecord(
        partition_id=state.index,
        topic_id=topic_id,
        replicas=state.replicas,
        isr=state.isr,
        removing_replicas=state.removing_replicas,
        adding_replicas=state.adding_replicas,
        leader=state.leader,
        leader_recovery_state=state.leader_recovery_state,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        directories=state.directories,
        eligible_leader_replicas=state.eligible_leader_replicas or None,
        last_known_elr=state.last_known_eligible or None,
    )
