"""Application of each type of record to the image (Kafka's ``TopicsDelta``, ``ClusterDelta`` and similar classes)."""

from __future__ import annotations

import uuid
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from broker.metadata import client_quotas, scram_credentials
from broker.metadata.image import Image, controller_key, keep
from broker.metadata.supported_configs import is_supported
from broker.metadata.topics import unified_name
from broker.metadata.values import (
    LEADER_UNCHANGED,
    TOPIC_RESOURCE,
    AnyRecord,
    BrokerRegistration,
    Endpoint,
    InconsistentMetadata,
    MetadataDelta,
    PartitionState,
    Topic,
)
from protocol.records import cluster_metadata as schema

KRAFT_VERSION: Final = "kraft.version"
"""Feature whose level a control record sets. FeatureLevelRecords with this name are skipped (KAFKA-18979)."""


def _existing(image: Image, topic_id: uuid.UUID | None) -> Topic:
    topic = image.topics_by_id.get(topic_id) if topic_id is not None else None
    if topic is None:
        raise InconsistentMetadata(f"the metadata log refers to topic id {topic_id}, which does not exist")
    return topic


def _topic(image: Image, record: schema.TopicRecord, changes: MetadataDelta) -> None:
    if record.name in image.topics:
        raise InconsistentMetadata(f"the metadata log creates topic {record.name} twice")
    topic = Topic(record.name, _id(record.topic_id))
    topic.configs = image.configs.pop((TOPIC_RESOURCE, record.name), topic.configs)
    image.topics[topic.name] = image.topics_by_id[topic.topic_id] = topic
    if "." in topic.name or "_" in topic.name:
        image.names_by_unified.setdefault(unified_name(topic.name), set()).add(topic.name)
    changes.created[topic.topic_id] = topic


def _remove_topic(image: Image, record: schema.RemoveTopicRecord, changes: MetadataDelta) -> None:
    topic = _existing(image, record.topic_id)
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


def _partition(image: Image, record: schema.PartitionRecord, changes: MetadataDelta) -> None:
    topic = _existing(image, record.topic_id)
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
    """Insert ``state`` into the topic's partitions, in the order of partition indexes.

    Kafka writes partitions in the order of a hash map, in which the indexes usually, but not always, rise.
    """
    partitions = topic.partitions
    if state.index == len(partitions):
        partitions.append(state)
        return
    at = bisect_left(partitions, state.index, key=lambda one: one.index)
    if at < len(partitions) and partitions[at].index == state.index:
        partitions[at] = state
    else:
        partitions.insert(at, state)


def _change_partition(image: Image, record: schema.PartitionChangeRecord, changes: MetadataDelta) -> None:
    topic = _existing(image, record.topic_id)
    state = topic.partition(record.partition_id)
    if state is None:
        raise InconsistentMetadata(
            f"the metadata log changes partition {topic.name}-{record.partition_id}, which does not exist"
        )
    elected = record.leader != LEADER_UNCHANGED
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


def _clear_eligible_replicas(image: Image, record: schema.ClearElrRecord, changes: MetadataDelta) -> None:
    """Clear the eligible leader replicas of the record's topic, or of all topics if the record has no topic name."""
    if record.topic_name and record.topic_name not in image.topics:
        raise InconsistentMetadata(
            f"the metadata log clears the eligible leader replicas of topic {record.topic_name}, which does not exist"
        )
    for topic in [image.topics[record.topic_name]] if record.topic_name else image.topics.values():
        for state in topic.partitions:
            if state.eligible_leader_replicas or state.last_known_eligible:
                cleared = schema.PartitionChangeRecord(
                    partition_id=state.index,
                    topic_id=topic.topic_id,
                    eligible_leader_replicas=(),
                    last_known_elr=(),
                )
                _change_partition(image, cleared, changes)


def _config(image: Image, record: schema.ConfigRecord, changes: MetadataDelta) -> None:
    """Apply a setting. Its topic may not exist yet: Kafka 3.3 writes a new topic's settings before the topic."""
    if not is_supported(record.resource_type, record.name):
        return
    resource = (record.resource_type, record.resource_name)
    topic = image.topics.get(record.resource_name) if record.resource_type == TOPIC_RESOURCE else None
    if topic is not None:
        _set(topic.configs, record)
        if topic.topic_id not in changes.created:
            changes.configs.add(resource)
        return
    values = image.configs.setdefault(resource, {})
    _set(values, record)
    if not values:
        del image.configs[resource]
    if record.resource_type != TOPIC_RESOURCE:
        changes.configs.add(resource)


def _set(values: dict[str, str], record: schema.ConfigRecord) -> None:
    if record.value is None:
        values.pop(record.name, None)
    else:
        values[record.name] = record.value


def _feature(image: Image, record: schema.FeatureLevelRecord, changes: MetadataDelta) -> None:
    if record.name == KRAFT_VERSION:
        return
    changes.features = True
    if record.feature_level == 0:
        image.features.pop(record.name, None)
    else:
        image.features[record.name] = record.feature_level


def _producer_ids(image: Image, record: schema.ProducerIdsRecord, changes: MetadataDelta) -> None:
    if record.next_producer_id < image.next_producer_id:
        raise InconsistentMetadata(
            f"the metadata log decreases the next producer id from {image.next_producer_id} "
            f"to {record.next_producer_id}"
        )
    image.next_producer_id = record.next_producer_id


def _register(image: Image, record: schema.RegisterBrokerRecord, changes: MetadataDelta) -> None:
    cordoned = record.cordoned_log_dirs
    if image.offline_replicas:
        image.offline_replicas = {each for each in image.offline_replicas if each[2] != record.broker_id}
    image.brokers[record.broker_id] = BrokerRegistration(
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


def _change_broker(
    image: Image, record: schema.BrokerRegistrationChangeRecord, changes: MetadataDelta
) -> None:
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
    image: Image, record: schema.FenceBrokerRecord | schema.UnfenceBrokerRecord, changes: MetadataDelta
) -> None:
    fenced = isinstance(record, schema.FenceBrokerRecord)
    image.brokers[record.id] = replace(_registered(image, record.id), fenced=fenced)


def _unregister(image: Image, record: schema.UnregisterBrokerRecord, changes: MetadataDelta) -> None:
    _registered(image, record.broker_id)
    del image.brokers[record.broker_id]


def _registered(image: Image, node_id: int) -> BrokerRegistration:
    broker = image.brokers.get(node_id)
    if broker is None:
        raise InconsistentMetadata(f"the metadata log refers to broker {node_id}, which is not registered")
    return broker


def _id(value: uuid.UUID | None) -> uuid.UUID:
    return uuid.UUID(int=0) if value is None else value


def _unregister_controller(
    image: Image, record: schema.UnregisterControllerRecord, changes: MetadataDelta
) -> None:
    image.kept.pop(controller_key(record.controller_id), None)


def _quota(image: Image, record: schema.ClientQuotaRecord, changes: MetadataDelta) -> None:
    client_quotas.apply(image.quotas, record)
    changes.quotas = True


def _credential(
    image: Image,
    record: schema.UserScramCredentialRecord | schema.RemoveUserScramCredentialRecord,
    changes: MetadataDelta,
) -> None:
    scram_credentials.apply(image.credentials, record)


def _token(
    image: Image,
    record: schema.DelegationTokenRecord | schema.RemoveDelegationTokenRecord,
    changes: MetadataDelta,
) -> None:
    from broker.metadata import delegation_tokens

    delegation_tokens.apply(image.tokens, record)


def _acl(image: Image, record: schema.AccessControlEntryRecord, changes: MetadataDelta) -> None:
    from broker.metadata.acls import acl_of

    _forget_acl(image, record, changes)
    acl_id = _id(record.id)
    image.acls[acl_id] = changes.acls_added[acl_id] = acl_of(record)


def _forget_acl(
    image: Image,
    record: schema.AccessControlEntryRecord | schema.RemoveAccessControlEntryRecord,
    changes: MetadataDelta,
) -> None:
    acl_id = _id(record.id)
    removed = image.acls.pop(acl_id, None)
    if removed is not None and changes.acls_added.pop(acl_id, None) is None:
        changes.acls_removed[acl_id] = removed


_DELTAS: Final[dict[type, Callable[[Image, Any, MetadataDelta], None]]] = {
    schema.TopicRecord: _topic,
    schema.RemoveTopicRecord: _remove_topic,
    schema.PartitionRecord: _partition,
    schema.PartitionChangeRecord: _change_partition,
    schema.ClearElrRecord: _clear_eligible_replicas,
    schema.ConfigRecord: _config,
    schema.FeatureLevelRecord: _feature,
    schema.ProducerIdsRecord: _producer_ids,
    schema.RegisterBrokerRecord: _register,
    schema.BrokerRegistrationChangeRecord: _change_broker,
    schema.FenceBrokerRecord: _fence,
    schema.UnfenceBrokerRecord: _fence,
    schema.UnregisterBrokerRecord: _unregister,
    schema.UnregisterControllerRecord: _unregister_controller,
    schema.ClientQuotaRecord: _quota,
    schema.UserScramCredentialRecord: _credential,
    schema.RemoveUserScramCredentialRecord: _credential,
    schema.AccessControlEntryRecord: _acl,
    schema.RemoveAccessControlEntryRecord: _forget_acl,
    schema.DelegationTokenRecord: _token,
    schema.RemoveDelegationTokenRecord: _token,
}


def apply(image: Image, record: AnyRecord, changes: MetadataDelta) -> None:
    """Apply one record to the image and note the effect in ``changes``. The caller updates the image's ``offset``."""
    delta = _DELTAS.get(type(record))
    if delta is not None:
        delta(image, record, changes)
    else:
        keep(image.kept, record)
