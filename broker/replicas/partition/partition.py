"""A partition's replica on this node, with the rules its leader keeps.

The log knows bytes and offsets; this class knows who leads, what is committed (the high watermark), and which producers
were checked with their coordinator. `unconfirmed` knows how far the disk is, and `delayed` the requests that wait. Nothing
here waits: callers pass callbacks or watch.

Where there are several replicas, `leading` knows the followers, or `following` the leader (`broker.replicas.replication`). A
partition with a single replica has neither (`leads_alone`), and so has one that has no leader.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.clock import Clock, Domain
from broker.injection.points import FaultInjection
from broker.logging import get_logger
from broker.metadata.topics import is_internal
from broker.replicas.partition.append_result import GONE, AppendResult
from broker.replicas.partition.bounds import check_bounds, clamped
from broker.replicas.partition.delayed_operations import DelayedOperations
from broker.replicas.partition.listeners import PartitionListener
from broker.replicas.partition.offset_purgatory import Callback
from broker.replicas.partition.read_result import ReadResult, TimestampOffset
from broker.replicas.partition.roles import FollowerRole, LeaderRole
from broker.replicas.partition.unconfirmed_writes import HeldWrite, UnconfirmedWrites
from protocol.batch import CorruptBatch, EndTxnMarker, RecordBatch, end_txn_marker
from protocol.errors import NONE, ErrorCode
from storage.config import NEVER
from storage.epochs import UNDEFINED
from storage.files import DamagedFile, StorageError
from storage.log import ClosedLog, Log, Span, TimestampedOffset
from storage.producers import CLIENT, COORDINATOR, AppendOrigin, VerificationGuard
from storage.steps import Steps
from storage.validation import LIMITS, BatchLimits, Checked, Invalid, check, passes_as_sent, run_check, stamp

if TYPE_CHECKING:
    from broker.metadata.values import PartitionState

__all__ = ["AppendResult", "Partition", "ReadResult", "TimestampOffset"]

log_events = get_logger()

NO_INJECTION: Final = FaultInjection()
DAMAGE_LINES_MAX: Final = 20
"""For how many damaged places of one partition there is a line."""


class Partition:
    """One replica on this node. Its attributes are read-only to others."""

    def __init__(
        self,
        topic: str,
        state: PartitionState,
        log: Log,
        clock: Clock,
        *,
        verification_enabled: Callable[[], bool] = lambda: True,
        flush: Callable[[Partition], None] | None = None,
        listener: PartitionListener[Partition] | None = None,
        node_id: int = -1,
        injection: FaultInjection = NO_INJECTION,
        high_watermark: int | None = None,
    ) -> None:
        """``high_watermark`` is what a checkpoint says, where the log's end alone does not tell what is committed."""
        self._served_offset = -1
        """Where the last reader began that got records."""
        self._checked_offset = -1
        """The last offset that was asked for twice in a row, and whose batch was checked for that."""
        self._said: tuple[tuple[str, str], ...] = ()
        """Damaged places (file, reason) that have had their line in the log."""
        self.topic = topic
        self.index = state.index
        self.key = (topic, state.index)
        self.name = f"{topic}-{state.index}"
        self.is_internal = is_internal(topic)
        self.topic_id: uuid.UUID = log.topic_id
        self.log = log
        self._node_id = node_id
        self.apply_state(state)
        self.high_watermark = log.log_end_offset if high_watermark is None else clamped(log, high_watermark)
        self.leading: LeaderRole | None = None
        self.following: FollowerRole | None = None
        self.offline: str | None = None
        """Why the files cannot be used, once they cannot."""
        self._clock = clock
        self._verification_enabled = verification_enabled
        self.listener = listener or PartitionListener()
        """The listener for what happens here."""
        self.unflushed = False
        """Something was appended that is not yet fsynced, and `listener` was told so."""
        self.high_watermark_moved = False
        """The high watermark has moved since it was last checkpointed, and `listener` was told so."""
        self._injection = injection
        self.unconfirmed = UnconfirmedWrites(
            (topic, state.index), log, None if flush is None else partial(flush, self), injection, node_id
        )
        """How far the disk has the log."""
        self.delayed = DelayedOperations()
        """The requests that wait here."""

    def apply_state(self, state: PartitionState) -> None:
        """What the cluster metadata says of the leader and the replicas, here and now."""
        self.leader_id: int = state.leader
        self.leader_epoch: int = state.leader_epoch
        self.replicas: Sequence[int] = state.replicas
        self.isr: Sequence[int] = state.isr
        self.leads_alone = state.leader == self._node_id and len(state.replicas) == 1
        """No other replica has to have a record before it is committed."""

    # -- appending ----------------------------------------------------------------------------------------------

    def check(
        self, batch: RecordBatch, limits: BatchLimits = LIMITS
    ) -> Checked | Invalid | Steps[Checked | Invalid]:
        """What `append` wants to know of a client's batch; steps where its records must be read.

        `append_as_sent` is the short form of both (ADR 23).
        """
        now_ms = clients_now_ms = self._clock.now_ms()
        config = self.log.config
        if config.message_timestamp_before_max_ms != NEVER:
            clients_now_ms = self._clock.now_ms(Domain.REQUESTS) + self._clock.skew_ms
        return check(batch, config, now_ms, clients_now_ms, limits, self.name)

    def append(
        self,
        batch: RecordBatch,
        *,
        required_acks: int,
        guard: VerificationGuard | None = None,
        checked: Checked | Invalid | None = None,
    ) -> AppendResult:
        """Append what a client sent: every check of Kafka's LogValidator and of the producer state applies.

        ``checked`` is what became of the steps of `check`; without it they are done here and now. `append_as_sent` is the
        short form of both (ADR 23).
        """
        if required_acks == -1 and not self.has_enough_replicas():
            return AppendResult(ErrorCode.not_enough_replicas, log_start_offset=self.log.log_start_offset)
        if checked is None:
            checked = run_check(self.check(batch))
        now_ms = self._clock.now_ms()
        valid = stamp(checked, self.log.config, now_ms)
        if isinstance(valid, Invalid):
            self._say_refused(valid.error, valid.message)
            log_start = self.log.log_start_offset if valid.tells_log_start else -1
            return AppendResult(
                valid.error,
                log_start_offset=log_start,
                # Kafka explains single records only; what is wrong with the batch stands in our log.
                message=valid.message if valid.record_errors else None,
                record_errors=valid.record_errors,
            )
        if batch.producer_id >= 0:
            refused = self._check_producer(batch, CLIENT, guard)
            if refused is not None:
                return refused
        return self._append(valid.batch, now_ms, valid.log_append_time_ms)

    def append_as_sent(
        self,
        batch: RecordBatch,
        required_acks: int,
        guard: VerificationGuard | None = None,
        limits: BatchLimits = LIMITS,
    ) -> AppendResult | None:
        """`check` and `append` in one for a batch that is stored as the client has sent it; None where it is not plain
        that it may be."""
        log = self.log
        config = log.config
        now_ms = self._clock.now_ms()
        if not passes_as_sent(batch, config, now_ms, limits):
            return None
        if required_acks == -1 and len(self.isr) < config.min_insync_replicas:
            return None
        if batch.producer_id >= 0 and not log.producers.continues(batch):
            refused = self._check_producer(batch, CLIENT, guard)
            if refused is not None:
                return refused
        return self._append(batch, now_ms, -1)

    def append_internal(
        self,
        records: bytes,
        guard: VerificationGuard | None = None,
        verified: bool = False,
        required_acks: int = -1,
    ) -> AppendResult:
        """Append a coordinator's batch to its topic: offsets are assigned, sequences are not checked.

        ``verified`` says that the caller has checked the producer's guard in this turn.
        """
        if (
            required_acks == -1
            and len(self.isr) < self.log.config.min_insync_replicas
            and not self.has_enough_replicas()
        ):
            return AppendResult(ErrorCode.not_enough_replicas)
        batch = RecordBatch.parse(records)
        if batch.producer_id >= 0 and not verified:
            refused = self._check_producer(batch, COORDINATOR, guard)
            if refused is not None:
                return refused
        return self._append(batch, self._clock.now_ms(), -1)

    def has_enough_replicas(self) -> bool:
        """Whether as many are in sync as ``min.insync.replicas`` wants; it cannot want more than there are."""
        wanted = min(self.log.config.min_insync_replicas, len(self.replicas))
        return len(self.isr) >= wanted

    def _check_producer(
        self, batch: RecordBatch, origin: AppendOrigin, guard: VerificationGuard | None
    ) -> AppendResult | None:
        """The answer for a repeated or a refused batch; None when it may be appended."""
        producers = self.log.producers
        if origin is CLIENT:
            known = producers.duplicate_of(batch)
            if known is not None:
                # Kafka answers with the remembered timestamp even on CreateTime topics.
                return AppendResult(
                    NONE,
                    known.first_offset,
                    known.last_offset,
                    known.timestamp_ms,
                    self.log.log_start_offset,
                    duplicate=True,
                )
        refused = producers.check(batch, origin, guard, self._verification_enabled())
        if refused is None:
            return None
        self._say_refused(refused.error, refused.message)
        return AppendResult(refused.error, log_start_offset=self.log.log_start_offset)

    def _say_refused(self, error: ErrorCode, reason: str) -> None:
        log_events.info(
            "batch refused", topic=self.topic, partition=self.index, error=error.name, reason=reason
        )

    def _append(
        self, batch: RecordBatch, now_ms: int, log_append_time_ms: int, marker: EndTxnMarker | None = None
    ) -> AppendResult:
        if self.offline is not None:
            return AppendResult(ErrorCode.kafka_storage_error)
        log, held = self.log, None
        try:
            if self._injection.points is not None:
                held = self.unconfirmed.intercept()
            if marker is None:
                base_offset = log.append_data(batch, self.leader_epoch, now_ms, batch.max_timestamp)
            else:
                base_offset = log.append_marker(batch, marker, self.leader_epoch, now_ms)
        except ClosedLog:
            return GONE
        except StorageError as error:
            return self.go_offline(error)
        if held is not None or not self.unflushed:
            self._appended(held, base_offset)
        if self.leading is not None:
            self.leading.appended()
        self.advance_high_watermark()
        if marker is not None:
            # A reader forgets them too, but __consumer_offsets may never have one.
            log.producers.forget_replicated(self.high_watermark)
        last_offset = base_offset + batch.last_offset_delta
        return AppendResult(
            NONE, base_offset, last_offset, log_append_time_ms, log.log_start_offset, False, None, ()
        )

    def _appended(self, held: HeldWrite | None, base_offset: int) -> None:
        """The log has more, which the disk may not have yet: it is held at ``log.write``, or not fsynced."""
        if held is not None:
            self.unconfirmed.add(held, base_offset, self._decided)
        if not self.unflushed:
            self.tell_unflushed()

    def append_marker(
        self, producer_id: int, producer_epoch: int, marker: EndTxnMarker, transaction_version: int
    ) -> AppendResult:
        """End a producer's transaction here (WriteTxnMarkers); fenced by producer epoch and coordinator epoch."""
        if len(self.isr) < self.log.config.min_insync_replicas and not self.has_enough_replicas():
            return AppendResult(ErrorCode.not_enough_replicas)
        if self.offline is not None:
            return AppendResult(ErrorCode.kafka_storage_error)
        refused = self.log.producers.check_marker(producer_id, producer_epoch, marker, transaction_version)
        if refused is not None:
            return AppendResult(refused.error)
        now_ms = self._clock.now_ms()
        data = end_txn_marker(
            producer_id,
            producer_epoch,
            committed=marker.committed,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=now_ms,
        )
        return self._append(RecordBatch.parse(data), now_ms, -1, marker)

    def _decided(self, held: HeldWrite) -> None:
        if self.offline is not None:
            return
        if held.refused is not None:
            self.go_offline(StorageError(self.log.directory, held.reason))
            return
        if self.leading is not None:
            self.leading.appended()
        self.advance_high_watermark()
        if self.following is not None:
            self.following.pull()
        self.unconfirmed.release_waiting()

    # -- following ----------------------------------------------------------------------------------------------

    def append_replicated(self, records: bytes) -> ErrorCode:
        """Append what the leader has behind our end, as it is: up to a damaged batch, which is CORRUPT_MESSAGE."""
        if self.offline is not None:
            return ErrorCode.kafka_storage_error
        base_offset = self.log.log_end_offset
        answer = NONE
        try:
            held = self.unconfirmed.intercept()
            self.log.append_replicated(records, self._clock.now_ms())
        except ClosedLog:
            return GONE.error
        except StorageError as error:
            return self.go_offline(error).error
        except CorruptBatch as error:
            log_events.error(
                "copied batch refused", topic=self.topic, partition=self.index, reason=str(error)
            )
            answer = ErrorCode.corrupt_message
            if self.log.log_end_offset == base_offset:
                return answer
        self._appended(held, base_offset)
        self.unconfirmed.flush_if_due()
        return answer

    def update_from_leader(self, high_watermark: int, log_start_offset: int) -> None:
        """What the leader says is committed and deleted holds here too, as far as this log has it.

        Under a new leader the high watermark may go back: it knows less, until its followers have told it. It does not go
        below this log's own start.
        """
        high_watermark = clamped(self.log, high_watermark)
        moved = high_watermark != self.high_watermark
        if moved:
            self.high_watermark = high_watermark
            self.log.producers.forget_replicated(high_watermark)
            self.note_committed()
        log_start_offset = min(log_start_offset, high_watermark)
        if log_start_offset > self.log.log_start_offset:
            self.log.advance_log_start(log_start_offset)
            check_bounds(self)
            self.listener.log_start_moved(self)
            moved = True
        if moved:
            self.delayed.notify()

    def truncate_by(self, work: Callable[[Partition, int], None], offset: int) -> None:
        """Let ``work`` take away what the leader does not have, down to this offset."""
        try:
            work(self, offset)
        except StorageError as error:
            self.go_offline(error)
            return
        except (CorruptBatch, OSError) as error:
            self.go_offline(StorageError(self.log.directory, str(error)))
            return
        self.unconfirmed.cut(offset)
        self.high_watermark = clamped(self.log, self.high_watermark)
        check_bounds(self)
        self.listener.truncated(self)
        self.delayed.notify()

    # -- the end of a replica, and of what is not on the disk ---------------------------------------------------

    def go_offline(self, error: StorageError) -> AppendResult:
        """The files cannot be trusted any more: reads and writes are refused, and waiting requests fail."""
        first = self.offline is None
        self.offline = str(error)
        if first:
            log_events.error(
                "partition offline",
                topic=self.topic,
                partition=self.index,
                file=error.path,
                reason=str(error),
            )
            self.listener.removed(self)
        self.fail_waiting(ErrorCode.kafka_storage_error)
        return AppendResult(ErrorCode.kafka_storage_error)

    def tell_unflushed(self) -> None:
        """Say so, once, if there is something that is not on the disk for good."""
        if not self.unflushed and self.log.flushed_offset < self.log.log_end_offset:
            self.unflushed = True
            self.listener.appended(self)

    def note_flushed(self) -> None:
        """More of the log is on the disk for good: commit what waited for that (``flush.messages``)."""
        if self.log.flushed_offset >= self.log.log_end_offset:
            self.unflushed = False
        if self.following is not None:
            self.following.pull()
            return
        self.advance_high_watermark()

    # -- committing ---------------------------------------------------------------------------------------------

    def advance_high_watermark(self) -> None:
        """Commit what every in-sync replica has, once ``flush.messages`` is satisfied.

        Only a leader can tell. Elsewhere the high watermark stands: a follower's is the one that its leader has told, and
        nothing moves it while there is no leader (Kafka: ``Partition.maybeIncrementLeaderHW``).
        """
        if self.leading is None and not self.leads_alone:
            return
        log, unconfirmed = self.log, self.unconfirmed
        end_offset = log.log_end_offset
        if unconfirmed.held or end_offset - log.flushed_offset >= log.config.flush_messages:
            end_offset = unconfirmed.committable_end_offset()
            if self.leading is None and not self.leads_alone:
                return  # the node has died at the flush
        if self.leading is None:
            if end_offset > self.high_watermark:
                self.high_watermark = end_offset
                if self.delayed.commits.pending or self.delayed.watchers:
                    self.delayed.committed(end_offset)
            return
        end_offset = self.leading.committable(end_offset)
        if end_offset > self.high_watermark:
            self.high_watermark = end_offset
            self.leading.committed()

    def note_committed(self) -> None:
        """The high watermark has moved, and a restart cannot tell it from the log's end."""
        if not self.high_watermark_moved:
            self.high_watermark_moved = True
            self.listener.high_watermark_updated(self)

    def on_committed(self, end_offset: int, callback: Callback) -> None:
        """Call back once the high watermark has reached ``end_offset``: at once if it has, else later."""
        if self.high_watermark >= end_offset:
            callback(NONE)
        else:
            self.delayed.add_commit(end_offset, callback)

    def fail_waiting(self, error: ErrorCode) -> None:
        """Nothing more is committed here: waiting requests fail with ``error``."""
        self.delayed.dismiss(error)
        self.unconfirmed.dismiss(error)
        self.delayed.notify()

    def stop_leading(self, error: ErrorCode) -> None:
        """This replica stops leading (moved, deleted): waiting requests fail with ``error``."""
        self.leader_id = -1
        self.leads_alone = False
        self.fail_waiting(error)

    def close(self) -> None:
        """This replica is gone from the node, with all that refers back to it: none of it waits for the collector."""
        self.log.close(clean=False)
        self.unconfirmed.close()

    # -- deleting -----------------------------------------------------------------------------------------------

    def delete_records(self, before_offset: int) -> tuple[ErrorCode, int]:
        """Move the log start (DeleteRecords); -1 stands for the high watermark. Returns the new low watermark."""
        if before_offset == -1:
            before_offset = self.high_watermark
        if before_offset < 0 or before_offset > self.high_watermark:
            return ErrorCode.offset_out_of_range, -1
        if before_offset > self.log.log_start_offset:
            self.log.advance_log_start(before_offset)
            self._log_start_moved()
        leading = self.leading
        return NONE, self.log.log_start_offset if leading is None else leading.low_watermark

    def _log_start_moved(self) -> None:
        check_bounds(self)
        self.listener.log_start_moved(self)
        if self.leading is not None:
            self.leading.wake()
        self.delayed.notify()

    def drop_oldest(self, segments: int) -> list[Path]:
        """Take so many segments off the beginning of the log; returns their files, which may go later (`Log`)."""
        paths = self.log.drop_oldest(segments, self._clock.now_ms())
        self._log_start_moved()
        return paths

    # -- offsets ------------------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Up to where read_committed readers may read: below the first open transaction and the high watermark."""
        unstable = self.log.producers.first_unstable_offset(self.high_watermark)
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        if unstable < self.log.log_start_offset:
            # DeleteRecords has moved the log start into the transaction: Kafka names the batch that it lies in.
            try:
                return self.log.base_offset_at(self.log.log_start_offset)
            except StorageError:
                return self.log.log_start_offset  # the read says what is wrong
        return unstable

    def _read_end(self, *, read_committed: bool) -> int:
        return self.last_stable_offset if read_committed else self.high_watermark

    # -- reading ------------------------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, *, read_committed: bool, whole_first_batch: bool
    ) -> ReadResult:
        """What a consumer at ``offset`` gets: never filtered, with the aborted transactions beside it."""
        log = self.log
        if self.offline is not None:
            return ReadResult(ErrorCode.kafka_storage_error)
        if offset < log.log_start_offset or offset > log.log_end_offset:
            return ReadResult(ErrorCode.offset_out_of_range)
        high_watermark, last_stable_offset = self.high_watermark, self.last_stable_offset
        end_offset = last_stable_offset if read_committed else high_watermark
        records = b""
        aborted: list[tuple[int, int]] | None = [] if read_committed else None
        try:
            span = log.read(offset, end_offset, max_bytes, whole_first_batch=whole_first_batch)
            if span is not None:
                records = span.bytes()
                self._look_if_stuck(offset, span, records)
                if read_committed:
                    found = log.aborted_transactions(offset, span)
                    aborted = [(entry.producer_id, entry.first_offset) for entry in found]
        except DamagedFile as error:
            self.say_damaged(error.path, offset, str(error))
            return ReadResult(ErrorCode.corrupt_message)
        except StorageError as error:
            self.go_offline(error)
            return ReadResult(ErrorCode.kafka_storage_error)
        return ReadResult(NONE, records, high_watermark, last_stable_offset, log.log_start_offset, aborted)

    def _look_if_stuck(self, offset: int, span: Span, records: bytes) -> None:
        """A reader that asks for the same offset again may have met a damaged batch that it cannot get past.

        The broker checks no CRC when it reads, as Kafka's does not; a reader's own check then fails in silence here.
        """
        if offset != self._served_offset:
            self._served_offset = offset
        elif offset != self._checked_offset:
            self._checked_offset = offset
            try:
                batch = RecordBatch.parse(records)
            except CorruptBatch as error:
                self.say_damaged(str(span.file.path), offset, str(error))
                return
            if not batch.has_valid_crc():
                reason = f"the CRC of the batch at offset {batch.base_offset} does not match"
                self.say_damaged(str(span.file.path), offset, reason)

    def say_damaged(self, file: str, offset: int, reason: str) -> None:
        """One line for each damaged place that a reader meets, however often it asks."""
        if (file, reason) in self._said or len(self._said) >= DAMAGE_LINES_MAX:
            return
        self._said = (*self._said, (file, reason))
        log_events.error(
            "a reader meets a damaged batch",
            topic=self.topic,
            partition=self.index,
            offset=offset,
            file=file,
            reason=reason,
        )

    def readable_bytes(self, offset: int, *, read_committed: bool) -> tuple[int, bool]:
        """(bytes a reader at ``offset`` could get now, whether ``offset`` lies in an older segment than their end)."""
        end_offset = self._read_end(read_committed=read_committed)
        try:
            available = self.log.bytes_between(offset, end_offset)
        except StorageError:
            return 0, True  # the read says what is wrong
        if not available:
            return 0, False
        older = self.log.segment_index(offset) < self.log.segment_index(end_offset)
        return available, older

    def check_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Is the client's view of the leader ours? -1 means that it has none (KIP-320)."""
        if current_leader_epoch in (-1, self.leader_epoch):
            return NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        return ErrorCode.unknown_leader_epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the newest known epoch that is not newer than the one asked for; (-1, -1) if none."""
        return self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)

    def diverging(
        self, last_fetched_epoch: int, fetch_offset: int
    ) -> tuple[ErrorCode, tuple[int, int] | None]:
        """Has the reader's log left ours? (error, (epoch, end offset) where it did)."""
        if last_fetched_epoch < 0:
            return NONE, None
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        if (epoch, end_offset) == UNDEFINED or fetch_offset < self.log.log_start_offset:
            return ErrorCode.offset_out_of_range, None
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return NONE, (epoch, end_offset)
        return NONE, None

    def latest(self, *, read_committed: bool) -> TimestampOffset:
        """ListOffsets -1: the next offset that a reader of this isolation level would get."""
        if self._is_behind_its_epoch:
            return TimestampOffset(ErrorCode.offset_not_available)
        return TimestampOffset(NONE, self._read_end(read_committed=read_committed), -1, self.leader_epoch)

    @property
    def _is_behind_its_epoch(self) -> bool:
        """A new leader whose followers have not told yet what is committed: its high watermark may go below an old one's
        (KIP-207)."""
        return self.leading is not None and self.high_watermark < self.leading.epoch_start_offset

    def earliest(self) -> TimestampOffset:
        """ListOffsets -2 (and -4, without tiers)."""
        start = self.log.log_start_offset
        return TimestampOffset(NONE, start, -1, self.log.epochs.epoch_for_offset(start))

    def max_timestamp(self, *, read_committed: bool) -> Steps[TimestampOffset]:
        """ListOffsets -3: the record with the largest timestamp, markers included."""
        return self._found(self.log.max_timestamp_search(), read_committed=read_committed)

    def offset_for_timestamp(self, timestamp_ms: int, *, read_committed: bool) -> Steps[TimestampOffset]:
        """The first record whose timestamp is not smaller."""
        return self._found(self.log.timestamp_search(timestamp_ms), read_committed=read_committed)

    def _found(
        self, search: Steps[TimestampedOffset | None], *, read_committed: bool
    ) -> Steps[TimestampOffset]:
        try:
            found = yield from search
        except DamagedFile as error:
            self.say_damaged(error.path, self.log.log_start_offset, str(error))
            return TimestampOffset(ErrorCode.corrupt_message)
        except StorageError as error:
            self.go_offline(error)
            return TimestampOffset(ErrorCode.kafka_storage_error)
        if found is None or found.offset >= self._read_end(read_committed=read_committed):
            unsure = self._is_behind_its_epoch
            return TimestampOffset(ErrorCode.offset_not_available if unsure else NONE)
        return TimestampOffset(NONE, *found)
