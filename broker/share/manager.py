"""The share partitions and share sessions of one node (KIP-932), as Kafka's SharePartitionManager.

The leader of a topic partition keeps a share partition in memory for each group that fetches from it. The first fetch loads
it through the persister. A change of record states is written through the persister before it takes effect; that records are
acquired is not written.
"""

from __future__ import annotations

from asyncio import sleep
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from broker.clock import NOTHING_DONE, Domain
from broker.coordinator_runtime.shard import verdict_at
from broker.injection.crash import crash_point
from broker.injection.points import FaultInjection, InjectionPoint
from broker.logging import get_logger
from broker.loop.coroutines import fork, start_in_background
from broker.metadata.features import SHARE_VERSION
from broker.metadata.listeners import MetadataListener
from broker.metadata.values import BROKER_RESOURCE, GROUP_RESOURCE
from broker.replicas.partition import Partition
from broker.replicas.partition.listeners import PartitionListener
from broker.share.dead_letters import Attempt, DeadLetterQueues
from broker.share.messages import outcome_of
from broker.share.partition import Acknowledged, Change, DeadLetters, InFlight, Refused, SharePartition
from broker.share.sessions import SessionKey, ShareSessionCache
from broker.share.settings import EARLIEST, LATEST, ShareGroupSettings, duration_ms, settings_of
from broker.share.state import NO_START_OFFSET, Outcome, SharePartitionKey, StateBatch, StoredState
from protocol.errors import NONE, ErrorCode

if TYPE_CHECKING:
    from broker.clock import Clock, Timer
    from broker.config import BrokerConfig
    from broker.loop.life import NodeLife
    from broker.loop.slices import Slices
    from broker.metadata.cluster import ClusterMetadata
    from broker.metadata.values import PartitionState, Topic
    from broker.peers import Peers
    from broker.replicas.manager import ReplicaManager

DEAD_LETTERS_SINCE: Final = 2
"""First ``share.version`` with dead-letter queues (KIP-1191)."""
NOT_HOSTED: Final = outcome_of(ErrorCode.unknown_topic_or_partition)
ATTEMPTS_KEPT: Final = 200
"""Number of the newest attempts at the dead-letter queue that a share partition keeps, for views."""
SETTINGS_MAX: Final = 1_000
"""Number of groups whose settings a node keeps. Requests may have any group id."""
SERVER_ERROR: Final = "Unable to complete operation due to server error."
FENCING: Final = (
    ErrorCode.not_leader_or_follower,
    ErrorCode.group_id_not_found,
    ErrorCode.unknown_topic_or_partition,
)
"""Errors of a write after which the share partition is removed from memory: the next fetch loads it again."""

log = get_logger()


class Persister(Protocol):
    """The part of `broker.share.persister.Persister` that the leader uses."""

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> tuple[Outcome, StoredState]: ...

    async def write(self, key: SharePartitionKey, state: StoredState) -> Outcome: ...


class ManagedSharePartition:
    """A share partition in memory, and the fetches that wait for it."""

    __slots__ = (
        "attempts",
        "beside",
        "dead_letters",
        "dead_letters_lost",
        "due_ms",
        "is_active",
        "is_fenced",
        "key",
        "leader_epoch",
        "partition",
        "seen_offset",
        "state",
        "timer",
        "watchers",
    )

    def __init__(
        self, key: SharePartitionKey, partition: Partition, beside: list[ManagedSharePartition]
    ) -> None:
        self.key = key
        self.partition = partition
        self.beside = beside
        """The share partitions of all groups that fetch from this topic partition, this one included."""
        self.leader_epoch = partition.leader_epoch
        self.state = SharePartition()
        self.seen_offset = -1
        """The offset that a fetch has last looked at. It decides on the order in which a fetch reads partitions."""
        self.is_active = False
        """Whether the state is loaded, and the share partition not removed since."""
        self.is_fenced = False
        """Whether the share partition was removed from memory. The next fetch creates another one."""
        self.watchers: dict[Callable[[], object], None] = {}
        """Called when records may have become available. Each looks at the state within the call: a release wakes no
        fetch, since its record cannot be acquired before the state is written (Kafka: checkAndComplete)."""
        self.timer: Timer | None = None
        """The timer of the first lock that runs out, or an earlier one."""
        self.due_ms: float = 0
        self.dead_letters = self.dead_letters_lost = 0
        """Number of records that were written to the dead-letter queue, and of those that could not be."""
        self.attempts: deque[Attempt] = deque(maxlen=ATTEMPTS_KEPT)

    def notify(self) -> None:
        for watcher in tuple(self.watchers):
            watcher()

    def notify_all_groups(self) -> None:
        """Call the watchers of all groups, because a fetch has acquired records of the topic partition, as in Kafka."""
        for each in self.beside:
            each.notify()


class SharePartitionManager(MetadataListener):
    """The share partitions and share sessions of one node."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        metadata: ClusterMetadata,
        replicas: ReplicaManager,
        persister: Persister,
        peers: Peers | None,
        slices: Slices,
        life: NodeLife,
        injection: FaultInjection | None = None,
    ) -> None:
        self._injection = injection or FaultInjection()
        self._config = config
        self._clock = clock
        self._metadata = metadata
        self._replicas = replicas
        self._persister = persister
        self._slices = slices
        self._life = life
        self._dead_letters = DeadLetterQueues(config, clock, metadata, replicas, peers)
        self._partitions: dict[SharePartitionKey, ManagedSharePartition] = {}
        self._of_logs: dict[tuple[UUID, int], list[ManagedSharePartition]] = {}
        """The same share partitions, by topic id and partition."""
        self._settings: dict[str, ShareGroupSettings] = {}
        self.sessions = ShareSessionCache(config.group_share_max_share_sessions)
        metadata.subscribe(self)
        replicas.add_listener(_RemovedLogs(self._drop_partition))

    # -- settings -----------------------------------------------------------------------------------------------

    @property
    def is_enabled(self) -> bool:
        """Whether the cluster supports share groups: its ``share.version`` is 1 or higher."""
        return self._metadata.features.get(SHARE_VERSION, 0) >= 1

    def settings(self, group_id: str) -> ShareGroupSettings:
        known = self._settings.get(group_id)
        if known is None:
            known = settings_of(self._config, self._metadata, group_id)
            if self._metadata.features.get(SHARE_VERSION, 0) < DEAD_LETTERS_SINCE:
                known = replace(known, dead_letter_topic="")
            if len(self._settings) >= SETTINGS_MAX:
                self._settings.clear()
            self._settings[group_id] = known
        return known

    def on_config_changed(self, resource_type: int, resource_name: str) -> None:
        if resource_type == GROUP_RESOURCE:
            self._settings.pop(resource_name, None)
        elif resource_type == BROKER_RESOURCE:
            self._settings.clear()

    def on_features_changed(self) -> None:
        self._settings.clear()
        if not self.is_enabled:
            self.sessions.remove_all()
            for managed in list(self._partitions.values()):
                self._drop(managed)

    # -- loading ------------------------------------------------------------------------------------------------

    def open(
        self, key: SharePartitionKey, topic: str, on_failed: Callable[[ErrorCode], None]
    ) -> ManagedSharePartition | ErrorCode:
        """Return the share partition, or an error if this node does not lead the topic partition.

        If it is not in memory, this call begins to load it, and ``on_failed`` is called if that fails.
        """
        managed = self._partitions.get(key)
        if managed is None:
            found = self._replicas.leader(topic, key.partition)
            if isinstance(found, ErrorCode):
                return found
            beside = self._of_logs.setdefault((key.topic_id, key.partition), [])
            managed = self._partitions[key] = ManagedSharePartition(key, found, beside)
            beside.append(managed)
            start_in_background(self._load(managed, on_failed), self._life)
        return managed

    async def _load(self, managed: ManagedSharePartition, on_failed: Callable[[ErrorCode], None]) -> None:
        outcome, stored = await self._persister.read(managed.key, managed.leader_epoch)
        error = client_error(outcome).error
        if error is NONE and stored.start_offset == NO_START_OFFSET:
            error, start_offset = await self._reset_offset(managed)
            stored = stored._replace(start_offset=start_offset)
        if managed.is_fenced:
            return
        change = None
        if error is NONE:
            try:
                change = managed.state.load(stored, self.settings(managed.key.group_id))
            except ValueError as damage:
                error, outcome = ErrorCode.unknown_server_error, outcome._replace(message=str(damage))
        if error is not NONE:
            log.info(
                "share partition not loaded", **_named(managed), error=error.name, reason=outcome.message
            )
            self._drop(managed)
            on_failed(error)
            return
        managed.is_active = True
        if change is not None:
            self._send_dead_letters(managed, change)
        managed.notify()

    async def _reset_offset(self, managed: ManagedSharePartition) -> tuple[ErrorCode, int]:
        """The start offset of a share partition of which no record was acknowledged (``share.auto.offset.reset``)."""
        reset, replica = self.settings(managed.key.group_id).auto_offset_reset, managed.partition
        if reset == LATEST:
            found = replica.latest(read_committed=False)
        elif reset == EARLIEST:
            found = replica.earliest()
        else:
            since_ms = self._clock.now_ms() - duration_ms(reset)
            found = await self._slices.run(replica.offset_for_timestamp(since_ms, read_committed=False))
        if found.error is NONE and found.offset < 0:
            return ErrorCode.offset_not_available, found.offset
        return found.error, found.offset

    def loaded(self) -> Mapping[SharePartitionKey, ManagedSharePartition]:
        """The share partitions in memory, those that are being loaded included."""
        return self._partitions

    # -- acknowledging ------------------------------------------------------------------------------------------

    async def acknowledge(
        self, member_id: str, batches: Mapping[SharePartitionKey, Sequence[Acknowledged]]
    ) -> dict[SharePartitionKey, Outcome]:
        """Acknowledge records, all batches of a partition or none. Returns when the new states are written."""
        waiters = {
            key: fork(self._acknowledge(key, member_id, acknowledged), self._life)
            for key, acknowledged in batches.items()
        }
        return {key: await waiter for key, waiter in waiters.items()}

    async def _acknowledge(
        self, key: SharePartitionKey, member_id: str, batches: Sequence[Acknowledged]
    ) -> Outcome:
        managed = self._partitions.get(key)
        if managed is None:
            return NOT_HOSTED
        settings = self.settings(key.group_id)
        now_ms = self._clock.now_ms(Domain.GROUPS)
        refused, change = None, None
        try:
            change = managed.state.acknowledge(member_id, batches, settings, now_ms)
        except Refused as error:
            refused = Outcome(error.error, error.message)
        self.watch_locks(managed)
        managed.notify()
        return refused or await self._write(managed, change)

    async def _write(self, managed: ManagedSharePartition, change: Change | None) -> Outcome:
        """Write a change, and commit it; roll it back if the write fails. Returns the error for the client."""
        if change is None or not change.batches:
            return Outcome(NONE)
        # In Kafka the write takes a request. A fetch of the same ShareFetch must not see its result.
        await sleep(0)
        outcome = client_error(await self._persist(managed, change))
        if outcome.error is not NONE:
            if managed.state.roll_back(change):
                managed.notify()
            if outcome.error in FENCING:
                log.info("share partition fenced", **_named(managed), reason=outcome.message)
                self._drop(managed)
            return outcome
        if managed.state.commit(change):
            managed.notify()
        self._send_dead_letters(managed, change)
        return outcome

    async def _persist(self, managed: ManagedSharePartition, change: Change) -> Outcome:
        if self._injection.points is not None:
            error = await verdict_at(self._injection, self._step("share.write", managed, change.batches))
            if error is not NONE:
                return Outcome(error)
        state = change.stored._replace(leader_epoch=managed.leader_epoch, batches=change.batches)
        crash_point("share.write.before")
        outcome = await self._persister.write(managed.key, state)
        crash_point("share.write.after")
        return outcome

    def _step(
        self,
        point: str,
        managed: ManagedSharePartition,
        ranges: Iterable[StateBatch | DeadLetters | InFlight],
    ) -> InjectionPoint:
        """A step at which a fault rule may act, about ranges of offsets."""
        return InjectionPoint(
            point,
            self._replicas.node_id,
            managed.partition.topic,
            managed.key.partition,
            group_id=managed.key.group_id,
            offsets=tuple((each.first_offset, each.last_offset) for each in ranges),
        )

    def _send_dead_letters(self, managed: ManagedSharePartition, change: Change) -> None:
        for letters in change.dead_letters:
            start_in_background(self._archive(managed, letters), self._life)

    async def _archive(self, managed: ManagedSharePartition, letters: DeadLetters) -> None:
        """Write records to the dead-letter queue, and then archive them, whether or not that has failed (KIP-1191)."""
        settings = self.settings(managed.key.group_id)
        error = await verdict_at(self._injection, self._step("share.dlq", managed, [letters]))
        crash_point("share.dlq.before")
        attempt = await self._dead_letters.send(managed.key, managed.partition, letters, settings, error)
        managed.attempts.append(attempt)
        if attempt.failure:
            managed.dead_letters_lost += letters.last_offset - letters.first_offset + 1
        else:
            managed.dead_letters += letters.last_offset - letters.first_offset + 1
        crash_point("share.dlq.after")
        error = await verdict_at(self._injection, self._step("share.archive", managed, [letters]))
        if error is NONE:
            await self._write(managed, managed.state.archive([letters]))

    # -- locks --------------------------------------------------------------------------------------------------

    def watch_locks(self, managed: ManagedSharePartition) -> None:
        """Set the timer to the first lock of the share partition that runs out. A timer that is earlier stays."""
        due_ms = managed.state.next_expiry_ms()
        if due_ms is None or managed.is_fenced or (managed.timer is not None and managed.due_ms <= due_ms):
            return
        if managed.timer is not None:
            managed.timer.cancel()
        delay_ms = due_ms - self._clock.now_ms(Domain.GROUPS)
        managed.due_ms = due_ms
        managed.timer = self._clock.call_later_ms(delay_ms, partial(self._expire, managed), Domain.GROUPS)

    def _expire(self, managed: ManagedSharePartition) -> object:
        managed.timer = None
        now_ms = self._clock.now_ms(Domain.GROUPS)
        locked = managed.state.in_flight() if self._injection.points is not None else ()
        due = [each for each in locked if each.lock_expires_ms is not None and each.lock_expires_ms <= now_ms]
        if not due:
            return self._expire_locks(managed)
        at = self._step("share.expire", managed, due)
        self._injection.intercept(at, partial(self._expire_locks, managed), lambda error: None)
        return None

    def _expire_locks(self, managed: ManagedSharePartition) -> object:
        if managed.is_fenced:
            return NOTHING_DONE
        settings = self.settings(managed.key.group_id)
        change = managed.state.expire(self._clock.now_ms(Domain.GROUPS), settings)
        self.watch_locks(managed)
        if change is None:
            return NOTHING_DONE
        managed.notify()
        start_in_background(self._write_expired(managed, change), self._life)
        return None

    async def _write_expired(self, managed: ManagedSharePartition, change: Change) -> None:
        """Write the end of locks. The records are available already, and stay so if the write fails, as in Kafka."""
        outcome = await self._persist(managed, change)
        if outcome.error is not NONE:
            log.info("end of record locks not written", **_named(managed), reason=outcome.message)
        managed.state.commit(change)
        self._send_dead_letters(managed, change)

    # -- the end of sessions and share partitions ---------------------------------------------------------------

    def release_session(self, key: SessionKey) -> None:
        """End the session of a member, and release the records that it holds in the session's partitions."""
        session = self.sessions.remove(key)
        if session is None:
            return
        settings = self.settings(key.group_id)
        for topic_id, index in session.partitions:
            if topic_id is None:
                continue
            managed = self._partitions.get(SharePartitionKey(key.group_id, topic_id, index))
            if managed is None or not managed.is_active:
                continue
            change = managed.state.release(key.member_id, settings)
            managed.notify()
            start_in_background(self._write(managed, change), self._life)

    def on_disconnected(self, connection_id: int) -> None:
        """End the session that was created on a closed connection."""
        session = self.sessions.of_connection(connection_id)
        if session is None or not self._life.alive:
            return
        if self.sessions.is_current(session):
            self.release_session(session.key)
        if not self.sessions.has_members(session.key.group_id):
            # The next fetch reads the state again: this is how AlterShareGroupOffsets takes effect.
            for managed in list(self._partitions.values()):
                if managed.key.group_id == session.key.group_id:
                    self._drop(managed)

    def on_leader_changed(self, topic: Topic, partition: PartitionState) -> None:
        if partition.leader != self._replicas.node_id:
            self._drop_partition(topic.topic_id, partition.index)

    def on_topic_deleted(self, topic: Topic) -> None:
        for partition in topic.partitions:
            self._drop_partition(topic.topic_id, partition.index)

    def _drop_partition(self, topic_id: UUID, index: int) -> None:
        for managed in tuple(self._of_logs.get((topic_id, index), ())):
            self._drop(managed)

    def _drop(self, managed: ManagedSharePartition) -> None:
        """Remove a share partition from memory. Fetches that wait for it get none of its records any more."""
        if self._partitions.get(managed.key) is managed:
            del self._partitions[managed.key]
            managed.beside.remove(managed)
            if not managed.beside:
                del self._of_logs[managed.key.topic_id, managed.key.partition]
        managed.is_active, managed.is_fenced = False, True
        if managed.timer is not None:
            managed.timer.cancel()
            managed.timer = None
        managed.notify()

    def close(self) -> None:
        """Stop the lock timers, because the node stops."""
        self._metadata.unsubscribe(self)
        for managed in list(self._partitions.values()):
            self._drop(managed)


class _RemovedLogs(PartitionListener[Partition]):
    """Drops the share partitions of logs that were deleted, moved to another node, or failed."""

    def __init__(self, drop: Callable[[UUID, int], None]) -> None:
        self._drop = drop

    def removed(self, partition: Partition) -> None:
        self._drop(partition.topic_id, partition.index)


def client_error(outcome: Outcome) -> Outcome:
    """The error that a client gets for an error of the persister (``SharePartition.fetchPersisterError``)."""
    error = outcome.error
    if error in _FOR_CLIENTS:
        return outcome._replace(error=_FOR_CLIENTS[error])
    if error in (ErrorCode.sasl_authentication_failed, ErrorCode.unsupported_version):
        return Outcome(ErrorCode.unknown_server_error, SERVER_ERROR)
    return outcome._replace(error=ErrorCode.unknown_server_error)


_FOR_CLIENTS: Final = {
    NONE: NONE,
    ErrorCode.not_coordinator: ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_not_available: ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress: ErrorCode.coordinator_not_available,
    ErrorCode.group_id_not_found: ErrorCode.group_id_not_found,
    ErrorCode.unknown_topic_or_partition: ErrorCode.unknown_topic_or_partition,
    ErrorCode.fenced_leader_epoch: ErrorCode.not_leader_or_follower,
    ErrorCode.fenced_state_epoch: ErrorCode.not_leader_or_follower,
}


def _named(managed: ManagedSharePartition) -> dict[str, object]:
    """The fields of a log line about a share partition."""
    return {
        "group": managed.key.group_id,
        "topic": managed.partition.topic,
        "partition": managed.key.partition,
    }
