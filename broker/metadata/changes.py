"""The metadata records for each change. Pure functions.

The order of records is Kafka's: a topic, its settings, its partitions.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from broker.metadata import client_quotas
from broker.metadata.image import Image
from broker.metadata.values import TOPIC_RESOURCE, BrokerRegistration, PartitionState, Topic
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
) -> list[MetadataRecord]:
    """Return the records that create a topic.

    The first live replica of each partition leads. All live replicas are in sync, as their logs are empty.
    """
    return [
        schema.TopicRecord(name=name, topic_id=topic_id),
        *records_for_config_change(TOPIC_RESOURCE, name, configs),
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


def record_for_fencing(broker: BrokerRegistration) -> MetadataRecord:
    """Return the record that fences a broker."""
    return schema.BrokerRegistrationChangeRecord(
        broker_id=broker.node_id, broker_epoch=broker.epoch, fenced=1
    )


def records_for_leaving(broker: BrokerRegistration) -> list[MetadataRecord]:
    """Return the records that fence a broker that stops cleanly, as at the end of Kafka's controlled shutdown.

    Without these records, a controller that reads this log considers the broker alive, and refuses its next incarnation
    until the session times out. The leaders are not changed, since the next start begins new leader epochs anyway, as
    Kafka's start does.
    """
    return [record_for_shutdown(broker), record_for_fencing(broker)]


def records_for_restart(image: Image, node_id: int) -> Iterator[MetadataRecord]:
    """Yield the records that begin a new leader epoch in every partition that this broker can lead, as in an election.

    The new epoch distinguishes batches from before and after the restart. (A client that has cached a higher epoch
    than the broker returns ignores the metadata, and waits forever.) A record with the field ``leader`` increments
    the leader epoch even if the leader stays the same.
    """
    for topic in image.topics.values():
        for partition in topic.partitions:
            if partition.leader == node_id or (partition.leader < 0 and node_id in partition.isr):
                yield schema.PartitionChangeRecord(
                    partition_id=partition.index, topic_id=topic.topic_id, leader=node_id
                )
            elif partition.leader < 0 and node_id in partition.eligible_leader_replicas:
                # Kafka's controlled shutdown leaves an empty ISR and keeps the eligible leader replicas (KIP-966).
                others = tuple(one for one in partition.eligible_leader_replicas if one != node_id)
                yield schema.PartitionChangeRecord(
                    partition_id=partition.index,
                    topic_id=topic.topic_id,
                    leader=node_id,
                    isr=(node_id,),
                    eligible_leader_replicas=others,
                    last_known_elr=(),
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
