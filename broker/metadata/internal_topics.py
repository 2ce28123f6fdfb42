"""Partitions, replicas and settings with which the coordinators' topics are created, as in Kafka.

`DefaultAutoTopicCreationManager.creatableTopic`, `GroupCoordinatorService.groupMetadataTopicConfigs`,
`TransactionStateManager.transactionTopicConfigs`, `ShareCoordinatorService.shareGroupStateTopicConfigs`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from broker.metadata.creation import USE_DEFAULT, NewTopic
from broker.metadata.topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE, is_internal

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.config.settings import TopicSpec
    from broker.metadata.values import Topic

PARTITIONS_SETTING: Final = {
    CONSUMER_OFFSETS: "offsets.topic.num.partitions",
    TRANSACTION_STATE: "transaction.state.log.num.partitions",
    SHARE_GROUP_STATE: "share.coordinator.state.topic.num.partitions",
}


def startup_topic(spec: TopicSpec, config: BrokerConfig) -> NewTopic:
    """Return the topic to create for a ``--topic`` option of the command line."""
    new = NewTopic(spec.name, spec.partitions, spec.replication_factor, configs=dict(spec.configs))
    return creatable_topic(new, config)


def creatable_topic(new: NewTopic, config: BrokerConfig) -> NewTopic:
    """Return ``new``; for an internal topic, fields that are not set get the values of `internal_topic`."""
    if not is_internal(new.name):
        return new
    own = internal_topic(new.name, config)
    replication_factor = new.replication_factor
    return replace(
        new,
        partitions=own.partitions if new.partitions == USE_DEFAULT else new.partitions,
        replication_factor=own.replication_factor
        if replication_factor == USE_DEFAULT
        else replication_factor,
        configs={**own.configs, **new.configs},
    )


def default_partitions(name: str, config: BrokerConfig) -> int:
    """Return the number of partitions of a topic that is created without a number of partitions."""
    return internal_topic(name, config).partitions if is_internal(name) else config.num_partitions


def coordinator_partitions(name: str, find: Callable[[str], Topic | None], config: BrokerConfig) -> int:
    """Return the partition count with which a coordinator maps its keys to partitions until the next start.

    This is the count of the topic, or if the topic does not exist, of the setting.
    """
    topic = find(name)
    if topic is not None:
        return len(topic.partitions)
    if name == CONSUMER_OFFSETS:
        return config.offsets_topic_num_partitions
    if name == SHARE_GROUP_STATE:
        return config.share_coordinator_state_topic_num_partitions
    return config.transaction_state_log_num_partitions


def internal_topic(name: str, config: BrokerConfig) -> NewTopic:
    """Return the definition of the coordinators' topic ``name``. Its replication factor may exceed the number of brokers."""
    if name == CONSUMER_OFFSETS:
        return NewTopic(
            name,
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
    if name == TRANSACTION_STATE:
        return NewTopic(
            name,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    if name == SHARE_GROUP_STATE:
        return NewTopic(
            name,
            config.share_coordinator_state_topic_num_partitions,
            config.share_coordinator_state_topic_replication_factor,
            configs={
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
                "retention.ms": "-1",
                "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
            },
        )
    raise ValueError(f"{name} is not a topic that a coordinator needs")
