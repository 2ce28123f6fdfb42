"""The topics that coordinators keep their state in: sizes and settings, as Kafka creates them by itself.

`GroupCoordinatorService.groupMetadataTopicConfigs`, `TransactionCoordinator.transactionTopicConfigs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata.creation import NewTopic
from broker.metadata.topics import CONSUMER_OFFSETS, TRANSACTION_STATE

if TYPE_CHECKING:
    from broker.config import BrokerConfig


def internal_topic(name: str, config: BrokerConfig) -> NewTopic:
    """How the topic ``name`` is created. That its replication fits the cluster is the configuration's concern."""
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
    raise ValueError(f"{name} is not a topic that a coordinator needs")
