"""The cluster's metadata as the rest of the broker uses it: the image, and all changes of it.

Readers use the image. A change first waits until no other change of the same topic is pending. Then it is checked against
the image, written and synced. Then the image is updated, the listeners are called, and the caller continues.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from broker.logging import get_logger
from broker.metadata import changes as records_of_changes
from broker.metadata.auto_topic_creation import AutoTopicCreationManager
from broker.metadata.client_control import ClientControlManager
from broker.metadata.cluster_control import ClusterControlManager
from broker.metadata.config_control import ConfigurationControlManager
from broker.metadata.configs import Settings
from broker.metadata.deltas import apply
from broker.metadata.features import check_levels, is_elr_enabled
from broker.metadata.files import LOG_DIRECTORY, DirectoryIdentity, identify, new_id, write_identity
from broker.metadata.image import Image
from broker.metadata.listeners import MetadataListener, notify
from broker.metadata.log import MetadataLog, Sync
from broker.metadata.producer_id_control import ProducerIdControlManager
from broker.metadata.replication_control import ReplicationControlManager
from broker.metadata.restoration import copy_of
from broker.metadata.startup import startup_commits
from broker.metadata.values import BrokerRegistration, Endpoint, MetadataDelta, Topic
from broker.metadata.writer import MetadataWriter
from protocol.records.cluster_metadata import MetadataRecord
from protocol.uuids import uuid_text
from storage.directory import NO_EPOCH
from storage.files import AppendFile

if TYPE_CHECKING:
    from broker.clock import Clock
    from broker.config import BrokerConfig
    from broker.metadata.acl_control import AclControlManager
    from broker.metadata.token_control import DelegationTokenControlManager

log = get_logger()


class ClusterMetadata:
    """The metadata of the cluster, for all nodes of this process. All changes are made here, as by Kafka's controller."""

    def __init__(
        self, identity: DirectoryIdentity, image: Image, config: BrokerConfig, clock: Clock, random: Random
    ) -> None:
        self.identity = identity
        self.settings = Settings(image, config)
        self._image = image
        self._config = config
        self._random = random
        self._clock = clock
        self._listeners: list[MetadataListener] = []
        self._writer = MetadataWriter(clock)
        self._producer_ids = ProducerIdControlManager(image, self._writer.commit)
        self.config_control = ConfigurationControlManager(image, self._writer)
        self.client_control = ClientControlManager(image, self._writer)
        self.cluster_control = ClusterControlManager(image, self.settings, self._writer, self._producer_ids)
        self.replication_control = ReplicationControlManager(
            image, self.settings, config, self._writer, random
        )
        self.auto_topic_creation = AutoTopicCreationManager(image, config, self.replication_control)

    @classmethod
    def open(
        cls,
        log_directory: Path,
        *,
        config: BrokerConfig,
        clock: Clock,
        random: Random,
        endpoints: Sequence[Endpoint] = (),
        others: Callable[[ClusterMetadata], Sequence[BrokerRegistration]] = lambda cluster: (),
        features: Mapping[str, int] | None = None,
        previous_epoch: int = NO_EPOCH,
        sync: Sync = AppendFile.sync,
    ) -> ClusterMetadata:
        """Open or format the log directory. Returns once its new records (registrations, leader epochs) are durable.

        ``endpoints`` are the addresses that are registered for this node. ``others`` returns the other brokers
        that start now. ``features`` are the requested feature levels. Other features get the default level in a new
        cluster, and keep their level in an existing cluster. ``previous_epoch`` is the broker epoch in the directory's
        clean shutdown file.
        """
        check_levels(features or {})
        now_ms = clock.now_ms()
        node_id = config.node_id
        identity = identify(
            log_directory,
            node_id,
            cluster_id=config.cluster_id,
            new_id=lambda: new_id(random),
            now_ms=now_ms,
        )
        image = Image()
        cluster = cls(identity, image, config, clock, random)
        metadata_log = MetadataLog.open(
            log_directory / LOG_DIRECTORY,
            image,
            node_id=node_id,
            apply=cluster._applied,
            now_ms=now_ms,
            sync=sync,
        )
        cluster._writer.begin(metadata_log)
        brokers = [
            cluster.new_registration(
                node_id, endpoints, config.broker_rack, identity.directory_id, previous_epoch
            ),
            *others(cluster),
        ]
        commits = startup_commits(
            image,
            brokers,
            features,
            lambda: metadata_log.next_offset,
            cluster.settings,
            config.log_defaults.min_insync_replicas,
        )
        metadata_log.commit_now(commits, now_ms)
        return cluster

    def new_registration(
        self,
        node_id: int,
        endpoints: Sequence[Endpoint],
        rack: str | None,
        directory_id: uuid.UUID,
        previous_epoch: int = NO_EPOCH,
    ) -> BrokerRegistration:
        """Build the registration of a broker that is about to start.

        Until it is registered, its epoch is ``previous_epoch``, the broker epoch in its clean shutdown file.
        """
        return BrokerRegistration(
            node_id,
            epoch=previous_epoch,
            incarnation_id=new_id(self._random),
            endpoints=tuple(endpoints),
            rack=rack,
            log_dirs=(directory_id,),
        )

    @cached_property
    def acl_control(self) -> AclControlManager:
        """The manager of ACLs, created on first use, because there are no ACLs without an authorizer."""
        from broker.metadata.acl_control import AclControlManager

        return AclControlManager(self._image, self._writer, lambda: new_id(self._random))

    @cached_property
    def token_control(self) -> DelegationTokenControlManager:
        """The manager of delegation tokens, created on first use, because there are no tokens without a secret key."""
        from broker.metadata.token_control import DelegationTokenControlManager

        return DelegationTokenControlManager(
            self._image, self._writer, self._config, self._clock, self._random
        )

    @property
    def image(self) -> Image:
        return self._image

    @property
    def cluster_id(self) -> str:
        return self.identity.cluster_id

    def take_new_cluster_id(self, directories: Mapping[int, Path]) -> None:
        """Replace the cluster id by a new, random one, also in the data directories of all nodes (by node id).

        The first is the directory that `open` reads. If the process dies in between, the next start replaces the former
        id in the other directories (`introduce`).
        """
        now_ms = self._clock.now_ms()
        former, cluster_id = self.cluster_id, uuid_text(new_id(self._random))
        for node_id, directory in directories.items():
            identity = identify(
                directory,
                node_id,
                cluster_id=cluster_id,
                new_id=lambda: new_id(self._random),
                now_ms=now_ms,
            )
            write_identity(
                directory, replace(identity, cluster_id=cluster_id, former_cluster_id=former), now_ms
            )
        self.identity = replace(self.identity, cluster_id=cluster_id, former_cluster_id=former)

    @property
    def epoch(self) -> int:
        """Offset of the last record that was applied to the image."""
        return self._image.offset

    @property
    def leader_epoch(self) -> int:
        """Leader epoch of the controller. Each start of the process begins a new epoch."""
        return self._writer.leader_epoch

    @property
    def features(self) -> Mapping[str, int]:
        return self._image.features

    @property
    def brokers(self) -> Mapping[int, BrokerRegistration]:
        return self._image.brokers

    @property
    def topics(self) -> Mapping[str, Topic]:
        return self._image.topics

    def topic(self, name: str) -> Topic | None:
        return self._image.topics.get(name)

    def topic_by_id(self, topic_id: uuid.UUID | None) -> Topic | None:
        return self._image.topics_by_id.get(topic_id) if topic_id is not None else None

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """Name of the topic that has this id now; None if no topic has it."""
        topic = self.topic_by_id(topic_id)
        return None if topic is None else topic.name

    async def saved(self) -> Image:
        """Wait until no change is pending and return a copy of the image."""
        await self.auto_topic_creation.settled()
        await self._writer.all_settled()
        return copy_of(self._image)

    def subscribe(self, listener: MetadataListener) -> None:
        """Call the methods of ``listener`` on every change, in the turn of the event loop in which the image changes."""
        self._listeners.append(listener)

    def unsubscribe(self, listener: object) -> None:
        """Stop calling the listener."""
        self._listeners = [one for one in self._listeners if one is not listener]

    async def update_features(self, levels: Mapping[str, int]) -> None:
        """Set finalized feature levels. Raises UnsupportedFeature for a level that this broker does not support."""
        check_levels(levels)
        records: list[MetadataRecord] = []
        if is_elr_enabled(levels):
            records += records_of_changes.records_that_enable_elr(
                self._image, self._config.log_defaults.min_insync_replicas
            )
        await self._writer.commit([*records, *records_of_changes.records_for_features(levels)])

    async def change_config(
        self, resource_type: int, resource_name: str, values: Mapping[str, str | None]
    ) -> None:
        """Set settings of one resource, or remove those whose value is None. The caller has checked the values."""
        await self._writer.commit(
            records_of_changes.records_for_config_change(resource_type, resource_name, values)
        )

    def allocate_producer_id(self, node_id: int | None = None) -> int | Awaitable[int]:
        """Return a new producer id, or an awaitable of one if the node has to wait for a block of producer ids."""
        return self._producer_ids.allocate(self.identity.node_id if node_id is None else node_id)

    def defer_syncs(self) -> None:
        """From now on, apply changes without waiting for an fsync. Serve no client until `sync_deferred` returns."""
        self._writer.defer_syncs()

    async def sync_deferred(self) -> None:
        """Return once all changes since `defer_syncs` are durable."""
        await self._writer.sync_deferred()

    async def leave(self) -> None:
        """Fence all brokers in the metadata log, because they stop cleanly.

        If Kafka opens the log directory next, it then registers these brokers without waiting for a session
        timeout.
        """
        await self.auto_topic_creation.settled()
        await self.cluster_control.leave()

    async def close(self) -> None:
        """Close the metadata log after all changes that were started are durable."""
        await self.auto_topic_creation.settled()
        await self._writer.close()

    def abandon(self) -> None:
        """Close only the file descriptor of the metadata log, as if the process were killed."""
        self._writer.abandon()

    def _applied(self, records: Sequence[MetadataRecord], last_offset: int) -> None:
        """Apply the records of a durable commit to the image, and call the listeners. Called by `MetadataLog`."""
        changes = MetadataDelta()
        for record in records:
            apply(self._image, record, changes)
        self._image.offset = last_offset
        for listener in tuple(self._listeners):
            notify(listener, self._image, changes)
