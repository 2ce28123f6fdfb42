"""The cluster's metadata as the rest of the broker sees it: what exists now, and how to change it.

A reader looks at the image. A change waits until no other change of the same topic is under way, checks against the
image, writes, and waits for the disk. Then the image has changed, the listeners were called, and the caller goes on.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
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
from broker.metadata.creation import (
    MorePartitions,
    NewTopic,
    TopicDefaults,
    check_more_partitions,
    check_new_topic,
    check_total,
)
from broker.metadata.deltas import apply
from broker.metadata.elections import (
    Decide,
    Election,
    decisions,
    moves,
    record_for_election,
    record_for_failed_replica,
    record_for_isr,
    record_for_move,
)
from broker.metadata.features import check_levels
from broker.metadata.files import LOG_DIRECTORY, DirectoryIdentity, identify, new_id
from broker.metadata.image import Image
from broker.metadata.listeners import MetadataListener, tell
from broker.metadata.log import MetadataLog, Sync
from broker.metadata.producer_id_control import ProducerIdControlManager
from broker.metadata.restoration import copy_of
from broker.metadata.results import RECORDS_PER_REQUEST_MAX, ApiError, CreatedTopic
from broker.metadata.startup import startup_commits
from broker.metadata.values import BrokerRegistration, Endpoint, MetadataDelta, PartitionState, Topic
from broker.metadata.writer import MetadataWriter
from protocol.errors import ErrorCode
from protocol.records.cluster_metadata import MetadataRecord
from storage.directory import PartitionKey
from storage.files import AppendFile

if TYPE_CHECKING:
    from broker.clock import Clock
    from broker.config import BrokerConfig
    from broker.metadata.acl_control import AclControlManager
    from broker.metadata.token_control import DelegationTokenControlManager

log = get_logger()


Take = Callable[[int], object]
"""Asked before so many partitions are created or deleted; raises `ApiError` where that is too much."""


def unlimited(partitions: int) -> None:
    """There is no quota."""


class ClusterMetadata:
    """The metadata of the cluster, for all nodes of this process, and the only way to change it: Kafka's controller."""

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
        self.auto_topic_creation = AutoTopicCreationManager(self, config, lambda: self._topic_defaults)

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
        sync: Sync = AppendFile.sync,
    ) -> ClusterMetadata:
        """Open or format the directory. Returns once this start is durable: registered, with new leader epochs.

        ``endpoints`` are what other nodes and Kafka's tools may know us by; ``others`` are the brokers that start with
        us. ``features`` are levels that were asked for; without them a new cluster gets ours and an old one keeps its own.
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
            cluster.introduce(node_id, endpoints, config.broker_rack, identity.directory_id),
            *others(cluster),
        ]
        commits = startup_commits(image, brokers, features, metadata_log.next_offset)
        metadata_log.commit_now(commits, now_ms)
        return cluster

    def introduce(
        self, node_id: int, endpoints: Sequence[Endpoint], rack: str | None, directory_id: uuid.UUID
    ) -> BrokerRegistration:
        """A broker as it is about to be registered."""
        return BrokerRegistration(
            node_id,
            epoch=-1,
            incarnation_id=new_id(self._random),
            endpoints=tuple(endpoints),
            rack=rack,
            fenced=False,
            log_dirs=(directory_id,),
        )

    @cached_property
    def acl_control(self) -> AclControlManager:
        """Made when it is first needed: without an authorizer there are no ACLs."""
        from broker.metadata.acl_control import AclControlManager

        return AclControlManager(self._image, self._writer, lambda: new_id(self._random))

    @cached_property
    def token_control(self) -> DelegationTokenControlManager:
        """Made when it is first needed: without a secret key there are no delegation tokens."""
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

    @property
    def epoch(self) -> int:
        """The offset of the last record that counts."""
        return self._image.offset

    @property
    def leader_epoch(self) -> int:
        """Of the controller: each start of the process begins a new one."""
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
        """Of the topic that has this id now."""
        topic = self.topic_by_id(topic_id)
        return None if topic is None else topic.name

    async def saved(self) -> Image:
        """The image as it is once no change is under way: a copy of it, that stays as it is."""
        await self.auto_topic_creation.settled()
        await self._writer.all_settled()
        return copy_of(self._image)

    def subscribe(self, listener: MetadataListener) -> None:
        """Tell ``listener`` of every change from now on, in the turn in which the image changes."""
        self._listeners.append(listener)

    def unsubscribe(self, listener: object) -> None:
        """It is not called any more."""
        self._listeners = [one for one in self._listeners if one is not listener]

    async def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False, take: Take = unlimited
    ) -> list[CreatedTopic | ApiError]:
        """Create what can be created; one result for each topic, in order. Raises ApiError for the request as a whole.

        All that is created is one commit: after a crash either all of it is there or nothing. ``take`` is asked for
        each partition (KIP-599), here and below.
        """
        defaults = self._topic_defaults
        check_total(wanted, defaults)
        await self._writer.settled(new.name for new in wanted)
        results: list[CreatedTopic | ApiError] = []
        records: list[MetadataRecord] = []
        names: set[str] = set()
        for new in wanted:
            if new.name in names:
                results.append(ApiError(ErrorCode.invalid_request, "Duplicate topic name."))
                continue
            names.add(new.name)
            try:
                assignment = check_new_topic(self._image, new, defaults, self._random)
                take(len(assignment))
            except ApiError as refusal:
                results.append(refusal)
                continue
            topic_id = new.topic_id or new_id(self._random)
            configs = {name: value for name, value in new.configs.items() if value is not None}
            records += records_of_changes.records_for_new_topic(
                topic_id, new.name, assignment, configs, self._directories, self._image.live_brokers
            )
            results.append(CreatedTopic(new.name, topic_id, len(assignment), len(assignment[0]), configs))
        if records and not validate_only:
            created = [result.name for result in results if isinstance(result, CreatedTopic)]
            await self._writer.commit(records, created)
        return results

    async def delete_topics(
        self, topic_ids: Sequence[uuid.UUID], *, take: Take = unlimited
    ) -> list[ApiError | None]:
        """Delete topics; None for each one that is gone now."""
        await self._writer.settled(
            topic.name for topic in map(self.topic_by_id, topic_ids) if topic is not None
        )
        results: list[ApiError | None] = []
        doomed: dict[uuid.UUID, Topic] = {}
        for topic_id in topic_ids:
            topic = self.topic_by_id(topic_id)
            if topic is None or topic_id in doomed:
                results.append(
                    ApiError(ErrorCode.unknown_topic_id, "This server does not host this topic ID.")
                )
                continue
            try:
                take(len(topic.partitions))
                doomed[topic_id] = topic
                results.append(None)
            except ApiError as refusal:
                results.append(refusal)
        if doomed:
            records = [
                record
                for topic in doomed.values()
                for record in records_of_changes.records_for_removed_topic(topic)
            ]
            await self._writer.commit(records, [topic.name for topic in doomed.values()])
        return results

    async def create_partitions(
        self, wanted: Sequence[MorePartitions], *, validate_only: bool = False, take: Take = unlimited
    ) -> list[ApiError | None]:
        """Grow topics; None for each one that has its partitions now."""
        await self._writer.settled(more.name for more in wanted)
        results: list[ApiError | None] = []
        records: list[MetadataRecord] = []
        for more in wanted:
            try:
                topic, assignment = check_more_partitions(
                    self._image, more, RECORDS_PER_REQUEST_MAX - len(records), self._random
                )
                take(len(assignment))
                records += records_of_changes.records_for_new_partitions(
                    topic, assignment, self._directories, self._image.live_brokers
                )
                results.append(None)
            except ApiError as refusal:
                results.append(refusal)
        if records and not validate_only:
            grown = [more.name for more, result in zip(wanted, results, strict=True) if result is None]
            await self._writer.commit(records, grown)
        return results

    async def begin_leader_epoch(self, name: str, index: int, epoch: int) -> None:
        """Let a partition be led in this epoch, if it is a later one: its log comes from a cluster that got further."""
        topic = self._image.topics[name]
        state = topic.partitions[index]
        if epoch > state.leader_epoch:
            await self._writer.commit(
                [records_of_changes.record_for_leader_epoch(topic, state, epoch)], [name]
            )

    async def update_features(self, levels: Mapping[str, int]) -> None:
        """Set finalized feature levels; UnsupportedFeature for one that this broker does not have."""
        check_levels(levels)
        await self._writer.commit(records_of_changes.records_for_features(levels))

    async def change_config(
        self, resource_type: int, resource_name: str, values: Mapping[str, str | None]
    ) -> None:
        """Set or (None) unset settings of one resource. The caller has checked them."""
        await self._writer.commit(
            records_of_changes.records_for_config_change(resource_type, resource_name, values)
        )

    def allocate_producer_id(self, node_id: int | None = None) -> int | Awaitable[int]:
        """A producer id that was never given out before; an awaitable only where the node has to wait for a block."""
        return self._producer_ids.allocate(self.identity.node_id if node_id is None else node_id)

    # -- replicas and leaders ----------------------------------------------------------------------------------

    async def alter_partition(self, topic: str, index: int, leader_epoch: int, isr: Sequence[int]) -> None:
        """A leader proposes an ISR (AlterPartition). ApiError if it leads no more, or proposes an ineligible replica."""
        await self._change_partition(
            (topic, index),
            lambda _, known, state: record_for_isr(self._image, known, state, leader_epoch, isr),
        )

    async def lose_replica(self, topic: str, topic_id: uuid.UUID, index: int, node_id: int) -> None:
        """The files of a replica failed: another one leads, if any is in sync.

        A topic that was created by the same name meanwhile has other files.
        """

        def decide(_: int, known: Topic, state: PartitionState) -> MetadataRecord | None:
            is_same = known.topic_id == topic_id
            return record_for_failed_replica(self._image, known, state, node_id) if is_same else None

        (refusal,) = await self._change_partitions([(topic, index)], decide)
        if refusal is not None and self.topic_by_id(topic_id) is not None:
            raise refusal

    async def elect(self, partitions: Sequence[PartitionKey], kind: Election) -> list[ApiError | None]:
        """ElectLeaders; None for each partition that has a new leader now, Kafka's code where that makes no sense."""
        return await self._change_partitions(
            partitions, lambda number, topic, state: record_for_election(self._image, topic, state, kind)
        )

    async def move_leader(self, topic: str, index: int, node_id: int) -> None:
        """Let another replica in sync lead a partition. ApiError if it cannot."""
        await self._change_partition(
            (topic, index),
            lambda number, topic, state: record_for_move(self._image, topic, state, node_id),
        )

    async def reassign(
        self, wanted: Sequence[tuple[PartitionKey, Sequence[int] | None]], *, keeps_factor: bool = False
    ) -> list[ApiError | None]:
        """Begin to move partitions to these brokers; None gives a move up. Each ends by itself, with the last in sync.

        One result for each, in order. ``keeps_factor``: a move that changes the number of replicas is refused.
        """
        targets = [target for _, target in wanted]
        decide = moves(self._image, targets, self.settings.allows_unclean_election, keeps_factor=keeps_factor)
        return await self._change_partitions([key for key, _ in wanted], decide)

    async def _change_partition(self, key: PartitionKey, decide: Decide) -> None:
        """Change one partition; raises what speaks against it."""
        (refusal,) = await self._change_partitions([key], decide)
        if refusal is not None:
            raise refusal

    async def _change_partitions(
        self,
        partitions: Sequence[PartitionKey],
        decide: Decide,
    ) -> list[ApiError | None]:
        """Change what can be changed, in one commit; ``decide`` gets the position in the list with each."""
        names = {name for name, _ in partitions}
        await self._writer.settled(names)
        results, records = decisions(self._image, partitions, decide)
        if records:
            await self._writer.commit(records, names)
        return results

    def defer_syncs(self) -> None:
        """Apply changes without waiting for the disk, until `sync_deferred`. No client may be served meanwhile."""
        self._writer.defer_syncs()

    async def sync_deferred(self) -> None:
        """Return once all changes since `defer_syncs` are durable."""
        await self._writer.sync_deferred()

    async def leave(self) -> None:
        """Before a clean end: the log says that the brokers are gone, so that Kafka registers them again at once."""
        await self.auto_topic_creation.settled()
        await self.cluster_control.leave()

    async def close(self) -> None:
        """End cleanly: what was asked for before is done."""
        await self.auto_topic_creation.settled()
        await self._writer.close()

    def abandon(self) -> None:
        """End as by a kill: the descriptor is closed and nothing else happens."""
        self._writer.abandon()

    @property
    def _topic_defaults(self) -> TopicDefaults:
        config = self._config
        return TopicDefaults(
            config.num_partitions, config.default_replication_factor, self.settings.log_defaults()
        )

    @property
    def _directories(self) -> Mapping[int, uuid.UUID]:
        """A broker of an early metadata.version has none that is known (``DirectoryId.MIGRATING``)."""
        return {
            broker.node_id: broker.log_dirs[0] if broker.log_dirs else uuid.UUID(int=0)
            for broker in self._image.brokers.values()
        }

    def _applied(self, records: Sequence[MetadataRecord], last_offset: int) -> None:
        """The log calls this when a commit is durable."""
        changes = MetadataDelta()
        for record in records:
            apply(self._image, record, changes)
        self._image.offset = last_offset
        for listener in tuple(self._listeners):
            tell(listener, self._image, changes)
