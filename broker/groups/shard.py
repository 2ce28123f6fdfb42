"""One partition of ``__consumer_offsets`` that this node leads: its memory, its log, its timers.

The shell around the pure parts. What is appended is in memory at once, so that the next request sees it, and is answered
once it is committed; should that never be, the node leads the partition no more, and drops the memory with it.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast

from broker.clock import Clock, Domain
from broker.clock import Timer as ClockTimer
from broker.coordinator_runtime.damaged_records import DamagedRecords
from broker.coordinator_runtime.shard import CoordinatorShard
from broker.groups import classic
from broker.groups.coordinator_state import GroupCoordinatorState
from broker.groups.effects import REGEX_TIMER, Answer, Append, Arm, Assigned, Cancel, Effect, Timer
from broker.groups.group import ClassicGroup, ClassicGroupConfig, ClassicGroupState
from broker.groups.records import GROUP_METADATA_VERSION, LogRecord
from broker.injection.crash import crash_point
from broker.injection.points import FaultInjection
from broker.logging import get_logger
from broker.loop.deferred import Deferred
from broker.replicas.partition import Partition
from protocol.batch import HEADER_BYTES, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, RecordBatch, build_batch
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
from storage.salvage import Damaged, unreadable

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from storage.producers import VerificationGuard

COORDINATOR_SEQUENCE: Final = 0
"""Kafka's coordinators give every batch this sequence, with a producer or without, and no replica checks it."""
RECORD_OVERHEAD_BYTES: Final = 32
"""At most what a record adds to its key and value: lengths, deltas, no headers."""
LOAD_TURN_RECORDS: Final = 500
"""How much of a log is replayed before other work gets its turn."""

T = TypeVar("T")
log = get_logger()


class Producer(NamedTuple):
    """The transactional producer on whose behalf offsets are written, and what its verification left behind."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    guard: VerificationGuard | None = None
    verified: bool = False


NO_PRODUCER: Final = Producer()


class _Commit:
    """An append that waits for the high watermark, or for ``offsets.commit.timeout.ms`` to pass."""

    __slots__ = ("done", "then", "timer")

    def __init__(self, then: Callable[[ErrorCode], None]) -> None:
        self.then = then
        self.done = False
        self.timer: ClockTimer | None = None

    def finish(self, error: ErrorCode) -> None:
        if self.done:
            return
        self.done = True
        if self.timer is not None:
            self.timer.cancel()
        self.then(CoordinatorShard.client_error(error))


def group_of(key: Key) -> str | None:
    """The group that a record is about."""
    found: str | None = getattr(key, "group", None) or getattr(key, "group_id", None)
    return found


def _group_of(raw_key: bytes) -> str | None:
    try:
        key = decode_key(raw_key)
    except MalformedRecord:
        return None
    return None if isinstance(key, UnknownKey) else group_of(key)


class GroupShard(CoordinatorShard):
    """The groups of one partition, while this node leads it."""

    def __init__(
        self,
        partition: Partition,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        injection: FaultInjection | None = None,
    ) -> None:
        super().__init__(partition, injection)
        self.clock = clock
        self.config = config
        self.state = GroupCoordinatorState(self._classic_group_config())
        self._timers: dict[tuple[str, Timer], tuple[ClockTimer, int]] = {}
        """Each with the time at which it was set, by the clock of groups."""
        self._commits: dict[_Commit, None] = {}
        self._load_began_ms = 0

    def _classic_group_config(self) -> ClassicGroupConfig:
        config = self.config()
        return ClassicGroupConfig(
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            group_size_max=config.group_max_size,
        )

    # -- loading and unloading ----------------------------------------------------------------------------------

    def load(self) -> Iterator[None]:
        self._load_began_ms = self.clock.now_ms(Domain.REQUESTS)
        self.state.offsets.note_high_watermark(self.partition.high_watermark)
        source = self.partition.log
        topic, index = self.partition.topic, self.partition.index
        damaged = DamagedRecords(topic, index, "groups", _group_of, self.state.group_ids)
        offset = source.log_start_offset
        while offset < source.log_end_offset:
            before, replayed = offset, 0
            for found in source.sound_batches(offset):
                if isinstance(found, Damaged):
                    damaged.note(found)
                    replayed += 1
                else:
                    self._replay(found, damaged)
                    replayed += found.record_count
                offset = max(offset, found.next_offset)
                if replayed >= LOAD_TURN_RECORDS:
                    break
            if offset == before:
                break
            if offset < source.log_end_offset:
                yield
        if damaged:
            self._end_without_marker()
            damaged.report()

    def _replay(self, batch: RecordBatch, damaged: DamagedRecords) -> None:
        reason = self.state.replay(batch)
        if reason is not None:
            found = unreadable(batch, str(self.partition.log.directory), reason)
            damaged.note(found)
        elif damaged and not batch.is_control:
            for record in batch.records():
                damaged.seen(record.key)

    def _end_without_marker(self) -> None:
        """Offsets whose marker was damaged must not stay pending for good: the log knows which transactions have ended."""
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
            self.run(group, classic.loaded(group, now_ms))
        if self.state.records or self.state.skipped:
            log.info(
                "offsets partition loaded",
                partition=self.partition.index,
                records=self.state.records,
                skipped=self.state.skipped,
                groups=len(self.state.groups) + len(self.state.consumer_groups),
                took_ms=self.clock.now_ms(Domain.REQUESTS) - self._load_began_ms,
            )

    def unload(self, error: ErrorCode = ErrorCode.not_coordinator) -> None:
        self.refusal = error
        now_ms = self.clock.now_ms()
        for group in tuple(self.state.groups.values()):
            self.run(group, classic.fail_and_unload(group, error, now_ms))
        for commit in tuple(self._commits):
            commit.finish(error)
        # What members of consumer groups are waited for is the next coordinator's matter.
        for key in tuple(self._timers):
            self._cancel(key)
        assert not self._commits
        super().unload(error)

    def abandon(self) -> None:
        """The node is killed: waiting requests are forgotten and get no response."""
        super().abandon()
        self.refusal = ErrorCode.not_coordinator
        armed = (timer for timer, _ in self._timers.values())
        for timer in (*armed, *(commit.timer for commit in self._commits)):
            if timer is not None:
                timer.cancel()
        for commit in self._commits:
            commit.done = True
        self._timers.clear()
        self._commits.clear()

    # -- writing ------------------------------------------------------------------------------------------------

    def write(
        self,
        records: Sequence[LogRecord],
        committed: Callable[[ErrorCode], None],
        *,
        producer: Producer = NO_PRODUCER,
        late: Callable[[], None] | None = None,
        check: Callable[[], ErrorCode] | None = None,
    ) -> None:
        """Append one batch and take it into memory; ``committed`` is called once, with an error meant for clients.

        ``check`` says whether it may be written still, when a rule has held it up.
        """
        was_held = self.is_intercepted

        def append(committed: Callable[[ErrorCode], None]) -> None:
            if was_held and check is not None and (refused := check()) is not NONE:
                committed(refused)
                return
            error, end_offset = self.append_records(records, producer)
            if error is not NONE:
                committed(self.client_error(error))
            else:
                self.when_committed(end_offset, committed, late)

        self.at_append(records[0].key, append, committed)

    def at_append(
        self,
        key: Key,
        append: Callable[[Callable[[ErrorCode], None]], None],
        committed: Callable[[ErrorCode], None],
    ) -> None:
        """Append, unless a rule holds it up or has it fail (`broker.injection.points`).

        What is held is not in memory yet; its request fails when the leadership goes.
        """
        if not self.is_intercepted:
            append(committed)
            return
        held = _Commit(committed)
        held.then = partial(self._finished, held, committed)
        self._commits[held] = None

        def go_on() -> None:
            if not held.done:
                held.done = True
                self._commits.pop(held)
                append(committed)

        self.intercept_append("group.append", go_on, held.finish, group_id=group_of(key))

    def append_records(
        self,
        records: Sequence[LogRecord],
        producer: Producer = NO_PRODUCER,
        *,
        deleted: ErrorCode = ErrorCode.unknown_member_id,
    ) -> tuple[ErrorCode, int]:
        """The only way into the log: (error, offset after the last record).

        ``deleted`` is what members hear that wait in a classic group which the records delete.
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
        crash_point("group.append.before")
        # As Kafka's, however small the ISR is: the commit then waits for the high watermark, or until its time is up.
        result = self.append(batch, guard=producer.guard, verified=producer.verified, required_acks=1)
        if result.error is not NONE:
            return result.error, -1
        self.state.offsets.note_high_watermark(self.partition.high_watermark)
        crash_point("group.append.after")
        for offset, (key, value, _) in enumerate(records, result.base_offset):
            # A group's own record says what its state machine already holds.
            if value is None or not isinstance(key, GroupMetadataKey):
                self._take_in(offset, producer.producer_id, key, value, deleted)
        return NONE, result.last_offset + 1

    def _take_in(
        self, offset: int, producer_id: int, key: Key, value: Value | None, deleted: ErrorCode
    ) -> None:
        if isinstance(key, GroupMetadataKey):
            group = self.state.groups.get(key.group)
            if group is not None:
                self.run(group, classic.fail_and_unload(group, deleted, self.clock.now_ms()))
        elif isinstance(key, ConsumerGroupMetadataKey) and value is None:
            self._cancel((key.group_id, REGEX_TIMER))
        self.state.apply(offset, producer_id, key, value)

    def write_tombstones(
        self, find: Callable[[], Sequence[Key] | ErrorCode], committed: Callable[[ErrorCode], None]
    ) -> None:
        """Delete what is found, in as many batches as it takes; the last one is waited for.

        It is looked for again where a rule has held it up: what was found may be needed by then.
        """
        found = find()
        was_held = self.is_intercepted

        def append(committed: Callable[[ErrorCode], None]) -> None:
            doomed = find() if was_held else found
            if isinstance(doomed, ErrorCode):
                committed(doomed)
            else:
                self._write_tombstones(doomed, committed)

        if isinstance(found, ErrorCode):
            committed(found)
        elif found:
            self.at_append(found[0], append, committed)
        else:
            self.when_committed(self.partition.log_end_offset, committed)

    def _write_tombstones(self, keys: Sequence[Key], committed: Callable[[ErrorCode], None]) -> None:
        room = self.partition.log.config.max_message_bytes - HEADER_BYTES
        pieces: list[list[LogRecord]] = [[]]
        size = 0
        for key in keys:
            key_bytes = len(key.encode()) + RECORD_OVERHEAD_BYTES
            if size + key_bytes > room and pieces[-1]:
                pieces.append([])
                size = 0
            pieces[-1].append(LogRecord(key))
            size += key_bytes
        end_offset = 0
        for piece in pieces:
            error, end_offset = self.append_records(piece) if piece else (NONE, end_offset)
            if error is not NONE:
                committed(self.client_error(error))
                return
        self.when_committed(end_offset, committed)

    def when_committed(
        self, end_offset: int, then: Callable[[ErrorCode], None], late: Callable[[], None] | None = None
    ) -> None:
        """Once the high watermark is there; at once, as a rule: then there is neither timer nor register.

        A client is not kept waiting for longer than ``offsets.commit.timeout.ms``; what it is then told as an error may
        come true all the same. ``late`` is called then, and ``then`` when it is known.
        """
        if self.partition.high_watermark >= end_offset:
            then(NONE)
            return
        commit = _Commit(then)
        self.partition.on_committed(end_offset, commit.finish)
        if commit.done:
            return
        self._commits[commit] = None
        commit.then = partial(self._finished, commit, then)
        commit.timer = self.clock.call_later_ms(
            self.config().offsets_commit_timeout_ms,
            late or partial(commit.finish, ErrorCode.request_timed_out),
            Domain.GROUPS,
        )

    def _finished(self, commit: _Commit, then: Callable[[ErrorCode], None], error: ErrorCode) -> None:
        self._commits.pop(commit, None)
        then(error)

    def read(self, answer: Callable[[ErrorCode], T]) -> T | Future[T]:
        """Answer from memory, once all that is in it is committed: no client may see what could be truncated."""
        end_offset = self.partition.log_end_offset
        if self.partition.high_watermark >= end_offset:
            return answer(NONE)
        reply: Deferred[T] = Deferred()
        self.when_committed(end_offset, lambda error: reply.resolve(answer(error)))
        return reply.outcome()

    # -- effects ------------------------------------------------------------------------------------------------

    def run(self, group: ClassicGroup, effects: Sequence[Effect]) -> None:
        """Do what the state machine of a group wants done."""
        append: Append | None = None
        held: list[Answer] = []
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
                    held.append(effect)
                case Answer(token, response):
                    cast("Deferred[object]", token).resolve(response)
        if append is not None:
            record = LogRecord(GroupMetadataKey(group.group_id), append.value, GROUP_METADATA_VERSION)
            committed = partial(self._stored, group, append, held)
            self.write([record], committed, late=partial(self._late, group, append, held))

    def _late(self, group: ClassicGroup, append: Append, held: list[Answer]) -> None:
        """It is not committed in time, and may be still: members are told that it failed, as by Kafka."""
        error = self.client_error(ErrorCode.request_timed_out)
        self.run(group, classic.on_append_late(group, append, error, self.clock.now_ms()))
        self._refuse(held, error)

    @staticmethod
    def _refuse(held: list[Answer], error: ErrorCode) -> None:
        for answer in held:
            cast("Deferred[object]", answer.token).resolve(type(answer.response)(error_code=error))
        held.clear()

    def _stored(self, group: ClassicGroup, append: Append, held: list[Answer], error: ErrorCode) -> None:
        self.run(group, classic.on_append_committed(group, append, error, self.clock.now_ms()))
        if error is not NONE:
            self._refuse(held, error)
        for answer in held:
            cast("Deferred[object]", answer.token).resolve(answer.response)
        if group.state is ClassicGroupState.DEAD and self.state.groups.get(group.group_id) is group:
            del self.state.groups[group.group_id]
        elif isinstance(append.purpose, Assigned) and group.state is ClassicGroupState.STABLE:
            log.debug(
                "group is stable",
                group=group.group_id,
                generation=group.generation,
                members=len(group.members),
            )

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
        """How long ago a timer was set that has not fired; of a member's session: since when the member was not heard of."""
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
        self.run(group, classic.expired(group, timer, self.clock.now_ms()))
        if len(group.members) < members:
            log.info(
                "group has lost members",
                group=group.group_id,
                timer=timer.what.value,
                member=timer.member_id,
                left=len(group.members),
            )
