"""Share groups (KIP-932) on the topics of the workload.

Invariants, in addition to the checks of the workload:

- A record whose acceptance was acknowledged is not delivered again, by no leader and after no crash.
- Each record that a group may read is accepted or rejected by a member, or was acquired as often as the limit allows,
  or is still available: none is skipped. After the faults the members come to the end of the log.
- No record is acquired by two members at the same time in one share partition, or more often than the limit allows. Locks
  end in time, and not before.
- A group that reads committed records only gets no record of an aborted transaction.
- Each rejected record is in the group's dead-letter queue, unless the broker has logged that it could not be written;
  no other record is there, except those that were acquired as often as the limit allows.
- What a leader holds for acknowledged is so at the share coordinator. The stored start offset does not go back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from random import Random
from typing import Any, Final

from broker.clock import Domain
from broker.metadata.topics import SHARE_GROUP_STATE
from broker.share.coordinator.shard import ShareCoordinatorShard
from broker.share.manager import ManagedSharePartition, SharePartitionManager
from broker.share.partition import Acquired
from broker.share.settings import EARLIEST, settings_of
from broker.share.state import RecordState, SharePartitionKey, StoredState
from protocol.errors import ErrorCode
from protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.simulation.ending import content
from tests.simulation.ledger import Broken
from tests.simulation.reach import Reach
from tests.simulation.share_ledger import Place, ShareLedger
from tests.simulation.share_members import ShareMember
from tests.simulation.share_watch import ShareWatch
from tests.simulation.wire import GROUP, NONE, Gone, Wire

INCREMENTAL_ALTER_CONFIGS, ALTER_OFFSETS, DELETE_OFFSETS = 44, 91, 92
GROUP_RESOURCE: Final = 32
ORDERS, COPIES, TRIMMED, PHOENIX = "orders", "copies", "trimmed", "phoenix"
"""Topics of the workload. The last two exist only with other reaches."""
ALL, COMMITTED, MOVED = "share-all", "share-committed", "share-moved"
"""The groups: one for each isolation level, and one whose start offsets an administrator moves."""
QUEUE: Final = "dlq.shared"
NOT_IN_QUEUE: Final = "records not written to the dead-letter queue"
PAUSE_S: Final = (2.0, 15.0)


class Shares(Reach):
    """The `Reach` (optional part of the workload) with share groups, for the run of one seed."""

    clients = (*(f"{group}-{index}" for group in (ALL, COMMITTED, MOVED) for index in (1, 2)), "share-admin")

    def __init__(self, random: Random, nodes: int) -> None:
        super().__init__(random, nodes)
        self._lock_ms = random.choice((1_500, 6_000))
        self._limit = random.choice((2, 3, 5))
        self._has_queue = random.random() < 0.7
        self._ledgers = {
            group: ShareLedger(
                group,
                delivery_count_limit=self._limit,
                lock_ms=self._lock_ms,
                dead_letter_topic=QUEUE if self._has_queue and group != MOVED else "",
            )
            for group in (ALL, COMMITTED, MOVED)
        }
        self._ledgers[MOVED].resets = True
        self._watch = ShareWatch(self._acquired)
        self._configured = asyncio.Event()
        self._stored: dict[tuple[ShareCoordinatorShard, SharePartitionKey], tuple[int, int]] = {}

    def arguments(self, topic_settings: str) -> list[str]:
        random = self.random
        settings = {
            "group.share.min.record.lock.duration.ms": 1_000,
            "group.share.record.lock.duration.ms": self._lock_ms,
            "group.share.delivery.count.limit": self._limit,
            "group.share.partition.max.record.locks": random.choice((100, 2_000)),
            "group.share.min.session.timeout.ms": 1_000,
            "group.share.session.timeout.ms": 6_000,
            "group.share.min.heartbeat.interval.ms": 100,
            "group.share.heartbeat.interval.ms": 1_000,
            "group.share.assignment.interval.ms": random.choice((0, 1_000)),
            "share.coordinator.state.topic.num.partitions": 2,
            "share.coordinator.snapshot.update.records.per.snapshot": random.choice((0, 3, 500)),
            "share.coordinator.cold.partition.snapshot.interval.ms": 20_000,
            "share.coordinator.state.topic.prune.interval.ms": 15_000,
            "errors.deadletterqueue.auto.create.topics.enable": "true",
        }
        return [each for name, value in settings.items() for each in ("--set", f"{name}={value}")]

    def watching(self) -> AbstractContextManager[object]:
        return self._watch.watching()

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        stage = self.stage
        self._watch.now_ms = lambda: stage.cluster.clock.now_ms(Domain.GROUPS)
        others = [name for name in (TRIMMED, PHOENIX) if name in stage.cluster.metadata.topics]
        subscriptions = {
            ALL: [[ORDERS]],
            COMMITTED: [[ORDERS], [ORDERS, *others]],
            MOVED: [[ORDERS], [COPIES, *others], others or [COPIES]],
        }
        yield self._administrate(stage.wire("share-admin"))
        for group, ledger in self._ledgers.items():
            for index in (1, 2):
                member = ShareMember(stage.wire(f"{group}-{index}"), stage, ledger, subscriptions[group])
                yield self._run(member, drains=index == 1 and group != MOVED)

    async def _run(self, member: ShareMember, *, drains: bool) -> None:
        await self._configured.wait()
        await member.run()
        if drains:
            await member.drain([ORDERS])

    # ---- the administrator

    async def _administrate(self, wire: Wire) -> None:
        while not self._configured.is_set():
            try:
                await self._configure(wire)
            except Gone:
                await wire.back_off()
        while not self.stage.stop.now:
            await asyncio.sleep(wire.random.uniform(*PAUSE_S))
            try:
                await self._move(wire)
            except Gone:
                await wire.back_off()
        wire.close()

    async def _configure(self, wire: Wire) -> None:
        """Set the groups' settings, and wait for all nodes to know them."""
        resources = []
        for group, ledger in self._ledgers.items():
            settings = {"share.auto.offset.reset": EARLIEST}
            if group == COMMITTED:
                settings["share.isolation.level"] = "read_committed"
            if ledger.dead_letter_topic:
                settings["errors.deadletterqueue.topic.name"] = ledger.dead_letter_topic
                settings["errors.deadletterqueue.copy.record.enable"] = "true"
            configs = [
                AlterableConfig(name=name, config_operation=0, value=value)
                for name, value in settings.items()
            ]
            resources.append(
                AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=configs)
            )
        request = IncrementalAlterConfigsRequest(resources=resources, validate_only=False)
        answer = await wire.ask_any(INCREMENTAL_ALTER_CONFIGS, 1, request)
        errors = [ErrorCode(each.error_code).name for each in answer.responses if each.error_code]
        if errors:
            raise Gone(str(errors))
        if all(
            settings_of(node.config, node.metadata, group).auto_offset_reset == EARLIEST
            for node in self.stage.cluster.running_nodes()
            for group in self._ledgers
        ):
            self._configured.set()

    async def _move(self, wire: Wire) -> None:
        """Move or delete the start offsets of a group. That is refused while it has members."""
        random = wire.random
        if random.random() < 0.7:
            api, partitions = (
                ALTER_OFFSETS,
                [
                    AlterShareGroupOffsetsRequestPartition(
                        partition_index=index, start_offset=random.choice((0, random.randint(0, 300)))
                    )
                    for index in (0, 1)
                ],
            )
            request: Any = AlterShareGroupOffsetsRequest(
                group_id=MOVED,
                topics=[AlterShareGroupOffsetsRequestTopic(topic_name=ORDERS, partitions=partitions)],
            )
        else:
            api, request = (
                DELETE_OFFSETS,
                DeleteShareGroupOffsetsRequest(
                    group_id=MOVED, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=ORDERS)]
                ),
            )
        answer = await wire.ask_coordinator(GROUP, MOVED, api, 0, request)
        error = ErrorCode(answer.error_code)
        wire.say(f"api {api}: {error.name}")
        if error is not NONE:
            wire.forget_coordinator(GROUP, MOVED)

    # ---- inside the nodes

    def _acquired(self, managed: ManagedSharePartition, acquired: list[Acquired]) -> None:
        ledger = self._ledgers[managed.key.group_id]
        known = ledger.at(self._place(managed.key, managed.partition.topic))
        known.log_start = max(known.log_start, managed.partition.log_start_offset)
        for first, last, _ in acquired:
            known.acquired.update(range(first, last + 1))

    @staticmethod
    def _place(key: SharePartitionKey, topic: str) -> Place:
        return Place(topic, key.topic_id, key.partition)

    def heard(self, event: Mapping[str, Any]) -> None:
        if event["event"] == NOT_IN_QUEUE:
            topic = self.stage.cluster.metadata.topics[event["topic"]]
            place = Place(topic.name, topic.topic_id, event["partition"])
            offsets = range(event["first_offset"], event["last_offset"] + 1)
            self._ledgers[event["group"]].at(place).not_in_queue.update(offsets)

    def look(self) -> None:
        shards = list(self._shards())
        stored = {key: offset.stored for shard in shards for key, offset in shard.state.offsets.items()}
        for shard in shards:
            for key, offset in shard.state.offsets.items():
                now = offset.stored.state_epoch, offset.stored.start_offset
                before = self._stored.get((shard, key), now)
                if now < before and key.group_id != MOVED:
                    raise Broken(f"{key}: (state epoch, start offset) goes back from {before} to {now}")
                self._stored[shard, key] = now
        for node in self.stage.cluster.running_nodes():
            if isinstance(node.share, SharePartitionManager):
                for managed in node.share._partitions.values():
                    self._watch.look(managed)
                    if managed.is_active and managed.key.group_id != MOVED and managed.key in stored:
                        _check_written(managed, stored[managed.key])

    def _shards(self) -> Iterator[ShareCoordinatorShard]:
        """The share coordinators: the leaders of ``__share_group_state`` in their current epochs."""
        topic = self.stage.cluster.metadata.topics.get(SHARE_GROUP_STATE)
        for state in topic.partitions if topic is not None else ():
            node = self.stage.cluster.running(state.leader)
            if node is None or not node.share_coordinator.known():
                continue
            for index, shard in node.share_coordinator._runtime.items():
                is_current = shard.partition.leader_epoch == state.leader_epoch
                if index == state.index and is_current and not shard.is_loading and not shard.is_closed:
                    yield shard

    # ---- at the end

    def check(self) -> None:
        self.look()
        stored = {
            key: offset.stored for shard in self._shards() for key, offset in shard.state.offsets.items()
        }
        queued = self._queued()
        topics = self.stage.cluster.metadata.topics
        for group, ledger in self._ledgers.items():
            for place in ledger.places:
                topic = topics.get(place.topic)
                if topic is None or topic.topic_id != place.topic_id:
                    continue
                key = SharePartitionKey(group, place.topic_id, place.partition)
                leader = self.stage.cluster.running(topic.partitions[place.partition].leader)
                replica = leader.replicas.get(place.topic, place.partition) if leader is not None else None
                if replica is None:
                    raise Broken(f"{place} has no leader although all nodes run")
                everything, committed = (
                    {offset for offset, _ in content(replica, read_committed=read_committed)}
                    for read_committed in (False, True)
                )
                aborted = everything - committed if group == COMMITTED else set()
                visible = [each for each in everything - aborted if each >= replica.log_start_offset]
                ledger.check(place, stored.get(key, StoredState()), visible, aborted)
                ledger.check_dead_letters(place, queued.get((group, place.topic, place.partition), set()))
            delivered = sum(len(each.delivered) for each in ledger.places.values())
            accepted = sum(len(each.accepted) for each in ledger.places.values())
            self.stage.say(f"{group}: {delivered} records delivered, {accepted} accepted")

    def _queued(self) -> dict[tuple[str, str, int], set[int]]:
        """The dead letters, by group, topic and partition."""
        found: dict[tuple[str, str, int], set[int]] = {}
        topic = self.stage.cluster.metadata.topics.get(QUEUE)
        for state in topic.partitions if topic is not None else ():
            node = self.stage.cluster.running(state.leader)
            replica = node.replicas.get(QUEUE, state.index) if node is not None else None
            if replica is None:
                raise Broken(f"{QUEUE}-{state.index} has no leader although all nodes run")
            for batch in replica.log.batches():
                for record in batch.records():
                    headers = {name: (value or b"").decode() for name, value in record.headers}
                    source = (
                        headers["__dlq.errors.group"],
                        headers["__dlq.errors.topic"],
                        int(headers["__dlq.errors.partition"]),
                    )
                    found.setdefault(source, set()).add(int(headers["__dlq.errors.offset"]))
        return found


def _check_written(managed: ManagedSharePartition, stored: StoredState) -> None:
    """Check that the share coordinator has the records that are acknowledged in a leader's memory."""
    states = [each for each in stored.batches if each.state == RecordState.ACKNOWLEDGED]
    for each in managed.state.in_flight():
        if each.state is not RecordState.ACKNOWLEDGED or each.in_transition:
            continue
        for offset in range(each.first_offset, each.last_offset + 1):
            if offset >= stored.start_offset and not any(
                at.first_offset <= offset <= at.last_offset for at in states
            ):
                raise Broken(
                    f"{managed.key}: {offset} is acknowledged at the leader in epoch {managed.leader_epoch}, "
                    f"but stored is {stored}"
                )
