"""The interface for components that follow the metadata: replicas, coordinators."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from broker.metadata.image import Image
from broker.metadata.values import TOPIC_RESOURCE, MetadataDelta, PartitionState, Topic

if TYPE_CHECKING:
    from broker.metadata.acls import Acl


class MetadataListener:
    """Base class of components that follow the metadata. A subclass overrides the methods that it needs.

    The methods are called when the image has changed, in the same turn of the event loop. They must not wait and must not
    fail: the change is durable, and other listeners have yet to be called.
    """

    def on_topic_created(self, topic: Topic) -> None:
        """Called after a topic was created, with all its partitions and settings."""

    def on_partitions_added(self, topic: Topic, first_new: int) -> None:
        """Called after partitions were added to a topic: those with index ``first_new`` and above."""

    def on_topic_deleted(self, topic: Topic) -> None:
        """Called after a topic was deleted; ``topic`` is its last state."""

    def on_config_changed(self, resource_type: int, resource_name: str) -> None:
        """Called after settings of a resource have changed.

        The resource types are topic (2), broker (4), client metrics (16) and group (32). Type 4 with the name ""
        means the settings for all brokers.
        """

    def on_quotas_changed(self) -> None:
        """Called after client quotas have changed."""

    def on_features_changed(self) -> None:
        """Called after feature levels have changed."""

    def on_acls_changed(self, removed: Collection[Acl], added: Collection[Acl]) -> None:
        """Called after ACLs were removed, and then others added. An ACL may be in both collections."""

    def on_leader_changed(self, topic: Topic, partition: PartitionState) -> None:
        """Called after leader, leader epoch, replicas or in-sync replicas of a partition have changed."""


def notify(listener: MetadataListener, image: Image, changes: MetadataDelta) -> None:
    """Call the listener's methods for the changes of a commit.

    Deletions come first, because a topic may be deleted and created again under the same name.
    """
    for topic in changes.deleted.values():
        listener.on_topic_deleted(topic)
    for topic in changes.created.values():
        listener.on_topic_created(topic)
    for topic_id, first_new in changes.grown.items():
        listener.on_partitions_added(image.topics_by_id[topic_id], first_new)
    for topic_id, index in sorted(changes.leaders, key=lambda key: (key[0].int, key[1])):
        topic = image.topics_by_id[topic_id]
        listener.on_leader_changed(topic, topic.partitions[index])
    for resource_type, resource_name in sorted(changes.configs):
        if resource_type != TOPIC_RESOURCE or resource_name in image.topics:
            listener.on_config_changed(resource_type, resource_name)
    if changes.quotas:
        listener.on_quotas_changed()
    if changes.features:
        listener.on_features_changed()
    if changes.acls_removed or changes.acls_added:
        listener.on_acls_changed(changes.acls_removed.values(), changes.acls_added.values())
