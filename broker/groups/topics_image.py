"""The cluster's topics for consumer groups (Kafka's ``TopicsImage``), updated with each change of the metadata."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from broker.groups.consumer.topics import topic_hash
from broker.metadata.listeners import MetadataListener

if TYPE_CHECKING:
    from broker.metadata.cluster import ClusterMetadata
    from broker.metadata.values import PartitionState, Topic


class MetadataTopics(MetadataListener):
    """The topics of the cluster as one node sees them. The hash of a topic is cached until the topic changes."""

    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata
        self._hashes: dict[str, int] = {}
        self.changes = 0
        self.last_version_with_new_topics = metadata.image.offset

    # -- metadata changes ---------------------------------------------------------------------------------------

    def on_topic_created(self, topic: Topic) -> None:
        self.last_version_with_new_topics = self._metadata.image.offset
        self._changed(topic.name)

    def on_partitions_added(self, topic: Topic, first_new: int) -> None:
        self._changed(topic.name)

    def on_topic_deleted(self, topic: Topic) -> None:
        self._changed(topic.name)

    def on_leader_changed(self, topic: Topic, partition: PartitionState) -> None:
        """Drop the hash of a topic whose replicas may have moved to other racks; without racks its hash does not change."""
        if any(broker.rack for broker in self._metadata.brokers.values()):
            self._changed(topic.name)

    def _changed(self, name: str) -> None:
        self._hashes.pop(name, None)
        self.changes += 1

    # -- queries ------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Offset of the last record that was applied from the metadata log, as in Kafka."""
        return self._metadata.image.offset

    def names(self) -> Iterable[str]:
        return self._metadata.topics

    def topic_id(self, name: str) -> UUID | None:
        topic = self._metadata.topic(name)
        return None if topic is None else topic.topic_id

    def topic_name(self, topic_id: UUID) -> str | None:
        topic = self._metadata.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def partition_count(self, topic_id: UUID) -> int:
        topic = self._metadata.topic_by_id(topic_id)
        return 0 if topic is None else len(topic.partitions)

    def topic_hash(self, name: str) -> int | None:
        found = self._hashes.get(name)
        if found is not None:
            return found
        topic = self._metadata.topic(name)
        if topic is None:
            return None
        racks = {node_id: broker.rack for node_id, broker in self._metadata.brokers.items() if broker.rack}
        of_partitions = [
            [racks[replica] for replica in partition.replicas if replica in racks]
            for partition in topic.partitions
        ]
        found = self._hashes[name] = topic_hash(topic.topic_id, name, of_partitions)
        return found
