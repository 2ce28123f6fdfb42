"""Warnings about internal topics with retention, or with another number of partitions than their coordinator uses.

Kafka creates and changes such topics without a warning. Earlier releases of Odradek created them when a Metadata request
named an internal topic before its coordinator was looked up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.logging import get_logger
from broker.metadata.internal_topics import coordinator_partitions
from broker.metadata.listeners import MetadataListener
from broker.metadata.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from broker.metadata.values import TOPIC_RESOURCE
from storage.config import LogConfig

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.metadata.cluster import ClusterMetadata
    from broker.metadata.values import Topic

_RETENTION: Final = {
    CONSUMER_OFFSETS: "retention deletes committed offsets and groups",
    TRANSACTION_STATE: "retention deletes transactional ids and their transactions",
}
_MOVED: Final = {
    CONSUMER_OFFSETS: "groups are looked for in other partitions after a restart",
    TRANSACTION_STATE: "transactional ids are looked for in other partitions after a restart",
}

log = get_logger()


class InternalTopicWarnings(MetadataListener):
    """Logs a warning for each internal topic with retention: at start, and after changes of topics.

    After partitions were added, or a topic was created, also logs a warning if the topic's number of partitions
    differs from the number that its coordinator uses until the next start.
    """

    def __init__(self, metadata: ClusterMetadata, config: BrokerConfig) -> None:
        self._metadata = metadata
        self._known = {name: coordinator_partitions(name, metadata.topic, config) for name in _MOVED}
        metadata.subscribe(self)
        for name in _RETENTION:
            self._check_compaction(metadata.topic(name))

    def on_topic_created(self, topic: Topic) -> None:
        self._check_compaction(topic)
        self._check_partitions(topic)

    def on_partitions_added(self, topic: Topic, first_new: int) -> None:
        self._check_partitions(topic)

    def on_config_changed(self, resource_type: int, resource_name: str) -> None:
        if resource_type == TOPIC_RESOURCE:
            self._check_compaction(self._metadata.topic(resource_name))

    def _check_compaction(self, topic: Topic | None) -> None:
        if topic is None or topic.name not in _RETENTION:
            return
        effective = LogConfig.from_properties(topic.configs, self._metadata.settings.log_defaults())
        if not effective.delete:
            return
        log.warning(
            _RETENTION[topic.name],
            topic=topic.name,
            partitions=len(topic.partitions),
            cleanup_policy=",".join(effective.cleanup_policy),
            cure=f"odradek topic config {topic.name} --set cleanup.policy=compact",
        )

    def _check_partitions(self, topic: Topic) -> None:
        known = self._known.get(topic.name)
        if known is not None and known != len(topic.partitions):
            log.warning(
                _MOVED[topic.name],
                topic=topic.name,
                partitions=len(topic.partitions),
                partitions_until_restart=known,
            )
