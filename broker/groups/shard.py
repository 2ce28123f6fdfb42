"""One partition of ``__consumer_offsets`` that this node leads: its state in memory, its log and its timers.

The state machines decide, and this module carries out their decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from broker.clock import Clock, Domain
from broker.clock import Timer as ClockTimer
from broker.coordinator_runtime.batching import split
from broker.coordinator_runtime.damaged_records import DamagedRecords
from broker.coordinator_runtime.loader import load_log
from broker.coordinator_runtime.replayed_shard import ReplayedShard
from broker.coordinator_runtime.shard import COORDINATOR_SEQUENCE
from broker.groups import classic, timeouts
from broker.groups.coordinator_state import GroupCoordinatorState
from broker.groups.effects import (
    REGEX_TIMER,
    Answer,
    Append,
    Arm,
    Assigned,
    Cancel,
    Effect,
    Response,
    Timer,
)
from broker.groups.group import ClassicGroup, ClassicGroupConfig, ClassicGroupState
from broker.groups.records import GROUP_METADATA_VERSION, LogRecord
from broker.injection.crash import crash_point
from broker.injection.points import FaultInjection
from broker.logging import get_logger
from broker.loop.coroutines import Waiter, start_in_background
from broker.replicas.partition import Partition
from protocol.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, RecordBatch, build_batch
from protocol.errors import NONE, ErrorCode
from protocol.named_tuple import NamedTuple
from protocol.records.group_log import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    UnknownKey,
    decode_key,
)
from protocol.schema import Key, MalformedRecord, Value
from storage.producers import NO_OFFSET

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.loop.life import NodeLife
    from storage.producers import VerificationGuard


log = get_logger()


class Producer(NamedTuple):
    """The transactional producer that commits offsets, and the proof of its verification (KIP-890)."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    guard: VerificationGuard | None = None
    verified: bool = False


NO_PRODUCER: Final = Producer()


def group_of(key: Key) -> str | None:
    """Return the group id in a record's key; None for a key without a group."""
    found: str | None = getattr(key, "group", None) or getattr(key, "group_id", None)
    return found


def _group_of(raw_key: bytes) -> str | None:
    try:
        key = decode_key(raw_key)
    except MalformedRecord:
        return None
    return None if isinstance(key, UnknownKey) else group_of(key)


class GroupShard(ReplayedShard):
    """The groups of one partition of ``__consumer_offsets``, while this node leads it."""

    def __init__(
        self,
        partition: Partition,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        life: NodeLife,
        injection: FaultInjection | None = None,
    ) -> None:
        super().__init__(partition, clock, injection)
        self.config = config
        self.life = life
        self.state = GroupCoordinatorState(self._classic_group_config())
        self._timers: dict[tuple[str, Timer], tuple[ClockTimer, int]] = {}
        """(group id, timer) -> the clock's timer, and its start time in the clock domain GROUPS."""
        self._load_began_ms = 0

    def _classic_group_config(self) -> ClassicGroupConfig:
        config = self.config()
        return ClassicGroupConfig(
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            group_size_max=config.group_max_size,
        )

    @property
    def commit_timeout_ms(self) -> int:
        return self.config().offsets_commit_timeout_ms

    # -- loading and unloading ----------------------------------------------------------------------------------

    def load(self) -> Iterator[None]:
        self._load_began_ms = self.clock.now_ms(Domain.REQUESTS)
        self.state.offsets.note_high_watermark(self.partition.high_watermark)
        topic, index = self.partition.topic, self.partition.index
        damaged = DamagedRecords(topic, index, "groups", _group_of, self.state.group_ids)
        yield from load_log(self.partition, partial(self._replay, damaged), damaged)
        if damaged:
            self._end_without_marker()
            damaged.report()

    def _replay(self, damaged: DamagedRecords, batch: RecordBatch) -> None:
        self.state.replay(batch)
        if damaged and not batch.is_control:
            for record in batch.records():
                damaged.note_read(record.key)

    def _end_without_marker(self) -> None:
        """Commit or drop pending offsets whose marker is damaged, according to the log's list of aborted transactions."""
        log = self.partition.log
        for producer_id, offset in self.state.offsets.pending_producers():
            entry = log.producers.entries.get(producer_id)
            if entry is None or entry.current_txn_first_offset == NO_OFFSET:
                committed = not log.was_aborted(producer_id, offset)
                self.state.offsets.end_transaction(producer_id, committed, log.log_end_offset)

    def loaded(self) -> None:
        self.state.settle()
        now_ms = self.clock.now_ms()
        for group in tuple(self.state.groups.values()):
            self.run(group, timeouts.loaded(group, now_ms))
        if self.state.records or self.state.skipped:
            log.info(
                "offsets partition loaded",
                partition=self.partition.index,
                records=self.state.records,
                skipped=self.state.skipped,
                groups=len(self.state.group_ids()),
                took_ms=self.clock.now_ms(Domain.REQUESTS) - self._load_began_ms,
            )

    def unload(self, error: ErrorCode = ErrorCode.not_coordinator) -> None:
        self.refusal = error
        now_ms = self.clock.now_ms()
        for group in tuple(self.state.groups.values()):
            self.run(group, classic.fail_and_unload(group, error, now_ms))
        super().unload(error)
        # The next coordinator will start the timers for members of consumer groups again.
        for key in tuple(self._timers):
            self._cancel(key)
        assert not self._waiting

    def abandon(self) -> None:
        """Cancel the timers, because the node was killed. Waiting coroutines are closed at the end of ``life``."""
        super().abandon()
        self.refusal = ErrorCode.not_coordinator
        for key in tuple(self._timers):
            self._cancel(key)

    # -- writing ------------------------------------------------------------------------------------------------

    async def write(self, records: Sequence[LogRecord], producer: Producer = NO_PRODUCER) -> ErrorCode:
        """Append one batch and apply its records. Returns NONE once the batch is committed, or an error for clients."""
        error, end_offset = self.append_records(records, producer)
        return await self.committed(end_offset) if error is NONE else self.client_error(error)

    async def may_append(self, group_id: str | None) -> ErrorCode:
        """Wait while a fault rule delays the append (`broker.injection.points`); return NONE or the client's error.

        Records that a rule delays are not applied yet, and their request fails when the leadership ends. The caller
        must decide again after this wait: a member may have left by then, or lost a partition to another member.
        """
        verdict = self.verdict_at_append("group.append", group_id=group_id)
        return self.client_error(await self.await_verdict(verdict))

    def append_records(
        self,
        records: Sequence[LogRecord],
        producer: Producer = NO_PRODUCER,
        *,
        deleted: ErrorCode = ErrorCode.unknown_member_id,
    ) -> tuple[ErrorCode, int]:
        """Append one batch and apply its records. Returns (error, offset after the last record).

        ``deleted`` is the error for members that wait in a classic group that the records delete.
        """
        now_ms = self.clock.now_ms()
        transactional = producer.producer_id != NO_PRODUCER_ID
        batch = build_batch(
            [
                (now_ms, key.encode(), None if value is None else value.encode(version))
                for key, value, version in records
            ],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=COORDINATOR_SEQUENCE,
            transactional=transactional,
            compression=self.config().offsets_topic_compression_codec,
        )
        if len(batch) > self.partition.log.config.max_message_bytes:
            return ErrorCode.message_too_large, -1
        with self.held_commits:
            crash_point("group.append.before")
            # As in Kafka, without min.insync.replicas: a small ISR only delays the commit, until the request times out.
            result = self.append(batch, guard=producer.guard, verified=producer.verified, required_acks=1)
            if result.error is not NONE:
                return result.error, -1
            self.state.offsets.note_high_watermark(self.partition.high_watermark)
            crash_point("group.append.after")
            for offset, (key, value, _) in enumerate(records, result.base_offset):
                # For the record of a classic group there is nothing to apply: its state machine already has that state.
                if value is None or not isinstance(key, GroupMetadataKey):
                    self._apply(offset, producer.producer_id, key, value, deleted)
        return NONE, result.last_offset + 1

    def _apply(
        self, offset: int, producer_id: int, key: Key, value: Value | None, deleted: ErrorCode
    ) -> None:
        if isinstance(key, GroupMetadataKey):
            group = self.state.groups.get(key.group)
            if group is not None:
                self.run(group, classic.fail_and_unload(group, deleted, self.clock.now_ms()))
        elif isinstance(key, ConsumerGroupMetadataKey) and value is None:
            self._cancel((key.group_id, REGEX_TIMER))
        self.state.apply(offset, producer_id, key, value)

    async def write_tombstones(self, find: Callable[[], Sequence[Key] | ErrorCode]) -> ErrorCode:
        """Write tombstones for the keys that ``find`` returns, in batches. Returns NONE once all are committed, or an error.

        If a fault rule delays the append, ``find`` is called again afterwards, since some keys may be in use again.
        """
        doomed = find()
        if self.is_intercepted and not isinstance(doomed, ErrorCode) and doomed:
            error = await self.may_append(group_of(doomed[0]))
            if error is not NONE:
                return error
            doomed = find()
        if isinstance(doomed, ErrorCode):
            return doomed
        end_offset = self.partition.log_end_offset
        max_message_bytes = self.partition.log.config.max_message_bytes
        with self.held_commits:
            for keys in split(doomed, lambda key: len(key.encode()), max_message_bytes):
                error, end_offset = self.append_records([LogRecord(key) for key in keys])
                if error is not NONE:
                    return self.client_error(error)
        return await self.committed(end_offset)

    async def read(self) -> ErrorCode:
        """Wait until all appended records are committed, so that no client sees records that could be truncated."""
        return await self.committed(self.partition.log_end_offset)

    # -- effects ------------------------------------------------------------------------------------------------

    def run(self, group: ClassicGroup, effects: Sequence[Effect]) -> None:
        """Carry out the effects of one event of a group, in order.

        An event (a timer, a member that leaves, the end of a leadership) may respond to requests of several members and set
        several timers; the state machine determines the order. An `Answer` wakes the request that has its token. An
        `Append` delays the responses after it until the commit, and is awaited in a coroutine of its own, since another
        event may respond to the request in the meantime.
        """
        append: Append | None = None
        behind: list[Answer] = []
        for effect in effects:
            match effect:
                case Arm():
                    self.arm(group.group_id, effect, partial(self._expired, group, effect.timer))
                case Cancel(timer):
                    self._cancel((group.group_id, timer))
                case Append():
                    assert append is None
                    append = effect
                case Answer() if append is not None:
                    behind.append(effect)
                case Answer(token, response):
                    _waiter(token).wake(response)
        if append is not None:
            group.last_append = append
            start_in_background(self._store(group, append, behind), self.life)

    async def _store(self, group: ClassicGroup, append: Append, behind: Sequence[Answer]) -> None:
        """Write a group's record.

        The responses in ``behind`` are sent once the record is committed; errors are sent instead if the append
        fails.
        """
        error = await self.may_append(group.group_id) if self.is_intercepted else NONE
        if error is NONE and group.last_append is not append:
            await self._skip_outdated(group, append, behind)
            return
        if error is NONE:
            record = LogRecord(GroupMetadataKey(group.group_id), append.value, GROUP_METADATA_VERSION)
            error, end_offset = self.append_records([record])
            if error is NONE and self.partition.high_watermark < end_offset:
                error = await self.committed_in_time(end_offset)
                if error is ErrorCode.request_timed_out:
                    # The record may still be committed, but members get an error, as from Kafka.
                    late = self.client_error(error)
                    self.run(group, classic.on_append_late(group, append, late, self.clock.now_ms()))
                    _respond(behind, late)
                    behind = ()
                    error = await self.committed_eventually(end_offset)
            error = self.client_error(error)
        self.run(group, classic.on_append_committed(group, append, error, self.clock.now_ms()))
        _respond(behind, error)
        if group.state is ClassicGroupState.DEAD and self.state.groups.get(group.group_id) is group:
            del self.state.groups[group.group_id]
        elif isinstance(append.purpose, Assigned) and group.state is ClassicGroupState.STABLE:
            log.debug(
                "group is stable",
                group=group.group_id,
                generation=group.generation,
                members=len(group.members),
            )

    async def _skip_outdated(self, group: ClassicGroup, append: Append, behind: Sequence[Answer]) -> None:
        """Skip the record of ``append``: it is outdated, since a fault rule held it.

        A later record of the group was written in the meantime, or the group was deleted. The responses in
        ``behind`` are sent once the later record is committed; errors are sent instead if that fails, or the group
        was deleted.
        """
        deleted = group.state is ClassicGroupState.DEAD
        error = ErrorCode.unknown_member_id if deleted else await self.read()
        self.run(group, classic.on_append_late(group, append, error, self.clock.now_ms()))
        _respond(behind, error)

    # -- timers -------------------------------------------------------------------------------------------------

    def arm(self, group_id: str, arm: Arm, then: Callable[[], None]) -> None:
        key = (group_id, arm.timer)
        if arm.if_absent and key in self._timers:
            return
        self._cancel(key)
        timer = self.clock.call_later_ms(arm.delay_ms, partial(self._fired, key, then), Domain.GROUPS)
        self._timers[key] = (timer, self.clock.now_ms(Domain.GROUPS))

    def is_armed(self, group_id: str, timer: Timer) -> bool:
        return (group_id, timer) in self._timers

    def armed_for_ms(self, group_id: str, timer: Timer) -> int | None:
        """Milliseconds since a timer was last started; None if it is not running. Requests restart a session timer."""
        armed = self._timers.get((group_id, timer))
        return None if armed is None else self.clock.now_ms(Domain.GROUPS) - armed[1]

    def cancel(self, group_id: str, timer: Timer) -> None:
        self._cancel((group_id, timer))

    def _cancel(self, key: tuple[str, Timer]) -> None:
        armed = self._timers.pop(key, None)
        if armed is not None:
            armed[0].cancel()

    def _fired(self, key: tuple[str, Timer], then: Callable[[], None]) -> None:
        self._timers.pop(key, None)
        then()

    def _expired(self, group: ClassicGroup, timer: Timer) -> None:
        members = len(group.members)
        self.run(group, timeouts.expired(group, timer, self.clock.now_ms()))
        if len(group.members) < members:
            log.info(
                "group has lost members",
                group=group.group_id,
                timer=timer.what.value,
                member=timer.member_id,
                members_left=len(group.members),
            )


def _waiter(token: object) -> Waiter[Response]:
    """Return the waiter of a request. The waiter itself is the token of the request in an `Answer`."""
    return cast("Waiter[Response]", token)


def _respond(answers: Sequence[Answer], error: ErrorCode) -> None:
    """Send the responses that waited for an append, or errors instead if the append has failed."""
    for answer in answers:
        response = answer.response
        _waiter(answer.token).wake(response if error is NONE else type(response)(error_code=error))
