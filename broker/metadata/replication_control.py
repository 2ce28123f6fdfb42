"""Creation and deletion of topics and partitions, elections and reassignments (Kafka's ``ReplicationControlManager``)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING

from broker.metadata import changes as records_of_changes
from broker.metadata.configs import Settings
from broker.metadata.creation import (
    MorePartitions,
    NewTopic,
    TopicDefaults,
    check_more_partitions,
    check_new_topic,
    check_total,
    check_total_of_more,
)
from broker.metadata.elections import (
    Decide,
    decisions,
    reassignments,
    record_for_election,
    record_for_failed_replica,
    record_for_isr,
    record_for_move,
)
from broker.metadata.features import is_elr_enabled
from broker.metadata.files import new_id
from broker.metadata.image import Image
from broker.metadata.partition_change import Election
from broker.metadata.results import ApiError, CreatedTopic
from broker.metadata.values import PartitionState, Topic
from broker.metadata.writer import MetadataWriter
from protocol.errors import ErrorCode
from protocol.records.cluster_metadata import MetadataRecord
from storage.directory import PartitionKey

if TYPE_CHECKING:
    from broker.config import BrokerConfig

Take = Callable[[int], object]
"""Called with a number of partitions before they are created or deleted. Raises `ApiError` if the quota is exceeded."""


def unlimited(partitions: int) -> None:
    """Allow any number of partitions: the ``take`` of a client without a quota."""


class ReplicationControlManager:
    """Makes changes of topics. Each change waits until no other change of its topics is pending."""

    def __init__(
        self, image: Image, settings: Settings, config: BrokerConfig, writer: MetadataWriter, random: Random
    ) -> None:
        self._image = image
        self._settings = settings
        self._config = config
        self._writer = writer
        self._random = random

    # -- topics -------------------------------------------------------------------------------------------------

    async def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False, take: Take = unlimited
    ) -> list[CreatedTopic | ApiError]:
        """Create topics. Returns for each, in order, the topic or the error. Raises ApiError to refuse the whole request.

        All topics are in one commit: after a crash all of them exist or none. ``take`` is called for each topic with
        its number of partitions (KIP-599), as in `delete_topics` and `create_partitions`.
        """
        defaults = self.topic_defaults
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
                topic_id,
                new.name,
                assignment,
                configs,
                self._directories,
                self._image.live_brokers,
                clears_elr=is_elr_enabled(self._image.features),
            )
            results.append(CreatedTopic(new.name, topic_id, len(assignment), len(assignment[0]), configs))
        if records and not validate_only:
            created = [result.name for result in results if isinstance(result, CreatedTopic)]
            await self._writer.commit(records, created)
        return results

    async def delete_topics(
        self, topic_ids: Sequence[uuid.UUID], *, take: Take = unlimited
    ) -> list[ApiError | None]:
        """Delete topics. Returns for each topic, in order, None or the error."""
        await self._writer.settled(
            topic.name for topic in map(self._image.topics_by_id.get, topic_ids) if topic is not None
        )
        results: list[ApiError | None] = []
        doomed: dict[uuid.UUID, Topic] = {}
        for topic_id in topic_ids:
            topic = self._image.topics_by_id.get(topic_id)
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
        """Add partitions to topics. Returns for each topic None or the error.

        Raises ApiError to refuse the whole request.
        """
        await self._writer.settled(more.name for more in wanted)
        check_total_of_more(self._image, wanted)
        results: list[ApiError | None] = []
        records: list[MetadataRecord] = []
        for more in wanted:
            try:
                topic, assignment = check_more_partitions(self._image, more, self._random)
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
        """Raise the leader epoch of a partition to at least ``epoch``, for a log imported from another cluster."""
        topic = self._image.topics[name]
        state = topic.partitions[index]
        if epoch > state.leader_epoch:
            await self._writer.commit(
                [records_of_changes.record_for_leader_epoch(topic, state, epoch)], [name]
            )

    # -- replicas and leaders ----------------------------------------------------------------------------------

    async def alter_partition(self, topic: str, index: int, leader_epoch: int, isr: Sequence[int]) -> None:
        """Handle AlterPartition: change the ISR as the leader proposes.

        Raises ApiError for an outdated leader epoch or an ineligible replica.
        """
        await self._change_partition(
            (topic, index),
            lambda _, known, state: record_for_isr(
                self._image, known, state, leader_epoch, isr, self._settings
            ),
        )

    async def lose_replica(self, topic: str, topic_id: uuid.UUID, index: int, node_id: int) -> None:
        """Remove a replica whose files have failed from the ISR, and elect another leader if one is in sync.

        Nothing happens if the topic was deleted and created again since, because the new topic has other files.
        """

        def decide(_: int, known: Topic, state: PartitionState) -> MetadataRecord | None:
            if known.topic_id != topic_id:
                return None
            self._image.offline_replicas.add((topic_id, index, node_id))
            return record_for_failed_replica(self._image, known, state, node_id, self._settings)

        (refusal,) = await self._change_partitions([(topic, index)], decide)
        if refusal is not None and self._image.topics_by_id.get(topic_id) is not None:
            raise refusal

    async def elect(self, partitions: Sequence[PartitionKey], kind: Election) -> list[ApiError | None]:
        """Handle ElectLeaders. Returns for each partition None if a leader was elected, otherwise Kafka's error."""
        return await self._change_partitions(
            partitions,
            lambda number, topic, state: record_for_election(self._image, topic, state, kind, self._settings),
        )

    async def move_leader(self, topic: str, index: int, node_id: int) -> None:
        """Make another in-sync replica the leader of a partition. Raises ApiError if it cannot be the leader."""
        await self._change_partition(
            (topic, index),
            lambda number, topic, state: record_for_move(self._image, topic, state, node_id),
        )

    async def reassign(
        self, wanted: Sequence[tuple[PartitionKey, Sequence[int] | None]], *, keeps_factor: bool = False
    ) -> list[ApiError | None]:
        """Start moving partitions to these brokers (None: cancel the reassignment). Returns for each None or the error.

        A reassignment ends when its last new replica is in sync. ``keeps_factor``: refuse changes of the replication factor.
        """
        targets = [target for _, target in wanted]
        decide = reassignments(self._image, targets, self._settings, keeps_factor=keeps_factor)
        return await self._change_partitions([key for key, _ in wanted], decide)

    async def _change_partition(self, key: PartitionKey, decide: Decide) -> None:
        """Change one partition. Raises the error of ``decide``."""
        (refusal,) = await self._change_partitions([key], decide)
        if refusal is not None:
            raise refusal

    async def _change_partitions(
        self,
        partitions: Sequence[PartitionKey],
        decide: Decide,
    ) -> list[ApiError | None]:
        """Change several partitions in one commit. Returns for each, in order, None or the error."""
        names = {name for name, _ in partitions}
        await self._writer.settled(names)
        results, records = decisions(self._image, partitions, decide)
        if records:
            await self._writer.commit(records, names)
        return results

    @property
    def topic_defaults(self) -> TopicDefaults:
        config = self._config
        return TopicDefaults(
            config.num_partitions, config.default_replication_factor, self._settings.log_defaults()
        )

    @property
    def _directories(self) -> Mapping[int, uuid.UUID]:
        """Log directory of each broker; the zero uuid (``DirectoryId.MIGRATING``) if the broker has not registered one."""
        return {
            broker.node_id: broker.log_dirs[0] if broker.log_dirs else uuid.UUID(int=0)
            for broker in self._image.brokers.values()
        }
