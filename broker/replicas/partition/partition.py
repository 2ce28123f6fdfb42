"""One partition replica on this node, with the leader's rules.

The log has the batches. `Partition` has the leader and leader epoch, the high watermark, and the rules of a leader for
appends and reads. Its attribute `unconfirmed` tracks the writes that the disk has not confirmed, `delayed` the waiting
requests. Nothing here suspends: callers pass callbacks, or watch the partition.

With several replicas, the leader has `leading`, which tracks the followers, and a follower has `following`, which fetches
from the leader (`broker.replicas.replication`). Both are None for a single replica (`leads_alone`), or without a leader.
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
from storage.producers import CLIENT, COORDINATOR, AppendOrigin, AppendRefused, VerificationGuard
from storage.steps import Steps
from storage.validation import LIMITS, BatchLimits, Checked, Invalid, check, passes_as_sent, run_check, stamp

if TYPE_CHECKING:
    from broker.metadata.values import PartitionState

__all__ = ["AppendResult", "Partition", "ReadResult", "TimestampOffset"]

log_events = get_logger()

NO_INJECTION: Final = FaultInjection()
DAMAGE_LINES_MAX: Final = 20
"""Maximum number of log lines about damaged batches of one partition."""


class Partition:
    """One replica of a partition on this node. Other classes must not assign its attributes."""

    def __init__(
        self,
        topic: str,
        state: PartitionState,
        log: Log,
        clock: Clock,
        *,
        verification_enabled: Callable[[], bool] = lambda: True,
        requires_first_sequence_0: bool = False,
        flush: Callable[[Partition], None] | None = None,
        listener: PartitionListener[Partition] | None = None,
        node_id: int = -1,
        injection: FaultInjection = NO_INJECTION,
        high_watermark: int | None = None,
    ) -> None:
        """``high_watermark`` is the checkpointed one; None for a single replica, whose high watermark is the log end."""
        self._served_offset = -1
        """Offset of the last read that returned records."""
        self._checked_offset = -1
        """Last offset that was read twice in a row, so that the CRC of its batch was checked."""
        self._logged_damage: tuple[tuple[str, str], ...] = ()
        """Damaged places (file, reason) that are already logged."""
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
        """Reason why the partition is offline, that is, its files cannot be used; None if it is online."""
        self._clock = clock
        self._verification_enabled = verification_enabled
        self._requires_first_sequence_0 = requires_first_sequence_0
        """Whether an idempotent producer must begin with sequence 0 while the log end offset is 0 (KAFKA-15591)."""
        self.listener = listener or PartitionListener()
        """Listener for the events of this partition."""
        self.unflushed = False
        """Whether there are records that are not fsynced, and `listener` was called for them."""
        self.high_watermark_moved = False
        """Whether the high watermark moved since its last checkpoint, and `listener` was called for that."""
        self._injection = injection
        self.unconfirmed = UnconfirmedWrites(
            (topic, state.index), log, None if flush is None else partial(flush, self), injection, node_id
        )
        """Tracks the writes that the disk has not confirmed."""
        self.delayed = DelayedOperations()
        """The requests that wait for this partition."""

    def apply_state(self, state: PartitionState) -> None:
        """Set leader, leader epoch, replicas and ISR from the cluster metadata."""
        self.leader_id: int = state.leader
        self.leader_epoch: int = state.leader_epoch
        self.replicas: Sequence[int] = state.replicas
        self.isr: Sequence[int] = state.isr
        self.leads_alone = state.leader == self._node_id and len(state.replicas) == 1
        """Whether this node leads the only replica, so that a record is committed without a follower."""

    # -- appending ----------------------------------------------------------------------------------------------

    def check(
        self, batch: RecordBatch, limits: BatchLimits = LIMITS
    ) -> Checked | Invalid | Steps[Checked | Invalid]:
        """Validate a client's batch for `append`. Returns a generator if the records have to be read for that.

        `append_as_sent` is the fast path of `check` and `append` (ADR 23).
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
        """Append a client's batch, with all checks of Kafka's LogValidator and of the producer state.

        ``checked`` is the result of `check`; if it is None, the batch is checked here. `append_as_sent` is the fast path
        (ADR 23).
        """
        if required_acks == -1 and not self.has_enough_replicas():
            return AppendResult(ErrorCode.not_enough_replicas, log_start_offset=self.log.log_start_offset)
        if checked is None:
            checked = run_check(self.check(batch))
        now_ms = self._clock.now_ms()
        valid = stamp(checked, self.log.config, now_ms)
        if isinstance(valid, Invalid):
            self._log_refused(valid.error, valid.message)
            log_start = self.log.log_start_offset if valid.tells_log_start else -1
            return AppendResult(
                valid.error,
                log_start_offset=log_start,
                # Kafka sends a message only about single records; problems of the whole batch are only logged.
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
        """Do `check` and `append` for a batch that is stored exactly as sent.

        Returns None if the batch needs the full `check` and `append`.
        """
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
        """Append a coordinator's batch to its internal topic: assign offsets, do not check sequences.

        ``verified`` means that the caller has checked the producer's verification guard in this turn.
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
        """Whether the ISR has at least ``min.insync.replicas`` members, or all replicas if there are fewer."""
        wanted = min(self.log.config.min_insync_replicas, len(self.replicas))
        return len(self.isr) >= wanted

    def _check_producer(
        self, batch: RecordBatch, origin: AppendOrigin, guard: VerificationGuard | None
    ) -> AppendResult | None:
        """Result for a duplicate or refused batch; None if the batch may be appended."""
        producers = self.log.producers
        if origin is CLIENT:
            known = producers.duplicate_of(batch)
            if known is not None:
                self.advance_high_watermark()  # as after each append (``Partition.appendRecordsToLeader``)
                # Kafka returns the cached timestamp even on CreateTime topics.
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
            if batch.base_sequence <= 0 or self.log.log_end_offset or not self._requires_first_sequence_0:
                return None
            refused = AppendRefused(
                ErrorCode.out_of_order_sequence_number,
                f"producer {batch.producer_id} epoch {batch.producer_epoch}: sequence {batch.base_sequence} "
                "is out of order, the partition was never written",
            )
        self._log_refused(refused.error, refused.message)
        return AppendResult(refused.error, log_start_offset=self.log.log_start_offset)

    def _log_refused(self, error: ErrorCode, reason: str) -> None:
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
            # `last_stable_offset` does this as well, but __consumer_offsets may have no readers.
            log.producers.forget_replicated(self.high_watermark)
        last_offset = base_offset + batch.last_offset_delta
        return AppendResult(
            NONE, base_offset, last_offset, log_append_time_ms, log.log_start_offset, False, None, ()
        )

    def _appended(self, held: HeldWrite | None, base_offset: int) -> None:
        """Register an append as not confirmed by the disk: ``held`` at the point ``log.write``, or not fsynced."""
        if held is not None:
            self.unconfirmed.add(held, base_offset, self._decided)
        if not self.unflushed:
            self.notify_unflushed()

    def append_marker(
        self, producer_id: int, producer_epoch: int, marker: EndTxnMarker, transaction_version: int
    ) -> AppendResult:
        """Append an end transaction marker (WriteTxnMarkers), unless its producer epoch or coordinator epoch is fenced."""
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
        """Append the leader's batches unchanged.

        Returns CORRUPT_MESSAGE at a damaged batch; the batches before the damaged one are appended.
        """
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
        """Apply the leader's high watermark and log start offset, as far as this log reaches.

        The high watermark may move back under a new leader, whose high watermark is lower until its followers have fetched.
        It does not move below the log start.
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
        """Call ``work`` to truncate the log to ``offset``, then adjust the high watermark and the held writes.

        The partition goes offline if ``work`` fails.
        """
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

    # -- going offline, fsync -----------------------------------------------------------------------------------

    def go_offline(self, error: StorageError) -> AppendResult:
        """Stop using the files: reads and writes return KAFKA_STORAGE_ERROR, and waiting requests fail with this error."""
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

    def notify_unflushed(self) -> None:
        """Call the listener if there are records that are not fsynced, unless it was called already."""
        if not self.unflushed and self.log.flushed_offset < self.log.log_end_offset:
            self.unflushed = True
            self.listener.appended(self)

    def note_flushed(self) -> None:
        """Commit or acknowledge the records that waited for an fsync (``flush.messages``), after the fsync has ended."""
        if self.log.flushed_offset >= self.log.log_end_offset:
            self.unflushed = False
        if self.following is not None:
            self.following.pull()
            return
        self.advance_high_watermark()

    # -- committing ---------------------------------------------------------------------------------------------

    def advance_high_watermark(self) -> None:
        """Move the high watermark to the offset that every in-sync replica has reached, once ``flush.messages`` permits.

        Only a leader moves it (Kafka: ``Partition.maybeIncrementLeaderHW``). A follower's high watermark is the leader's,
        and without a leader it does not move.
        """
        if self.leading is None and not self.leads_alone:
            return
        log, unconfirmed = self.log, self.unconfirmed
        end_offset = log.log_end_offset
        if unconfirmed.held or end_offset - log.flushed_offset >= log.config.flush_messages:
            end_offset = unconfirmed.committable_end_offset()
            if self.leading is None and not self.leads_alone:
                return  # the node died during the flush
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
        """Report that the high watermark has moved, so that it is checkpointed. Calls the listener once per checkpoint."""
        if not self.high_watermark_moved:
            self.high_watermark_moved = True
            self.listener.high_watermark_updated(self)

    def on_committed(self, end_offset: int, callback: Callback) -> None:
        """Call ``callback`` with NONE once the high watermark is at ``end_offset``, or before with an error."""
        if self.high_watermark >= end_offset:
            callback(NONE)
        else:
            self.delayed.add_commit(end_offset, callback)

    def fail_waiting(self, error: ErrorCode) -> None:
        """Fail all waiting requests with ``error``."""
        self.delayed.dismiss(error)
        self.unconfirmed.dismiss(error)
        self.delayed.notify()

    def stop_leading(self, error: ErrorCode) -> None:
        """Stop leading, because the partition moves or is deleted; waiting requests fail with ``error``."""
        self.leader_id = -1
        self.leads_alone = False
        self.fail_waiting(error)

    def close(self) -> None:
        """Close the log of a removed replica, and break reference cycles, so that the partition is freed without the
        garbage collector."""
        self.log.close(clean=False)
        self.unconfirmed.close()

    # -- deleting -----------------------------------------------------------------------------------------------

    def delete_records(self, before_offset: int) -> tuple[ErrorCode, int]:
        """Advance the log start to ``before_offset`` (-1: the high watermark). Returns (error, low watermark or -1)."""
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
        """Remove the oldest ``segments`` segments from the log. Returns their files, which the caller deletes."""
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
        """End of the records that read_committed readers may read: the start of the first open transaction, or the high
        watermark if that is lower.
        """
        unstable = self.log.producers.first_unstable_offset(self.high_watermark)
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        if unstable < self.log.log_start_offset:
            # DeleteRecords moved the log start into the transaction: as in Kafka, return the base offset of the batch there.
            try:
                return self.log.base_offset_at(self.log.log_start_offset)
            except StorageError:
                return self.log.log_start_offset  # the read reports the error
        return unstable

    def _read_end(self, *, read_committed: bool) -> int:
        return self.last_stable_offset if read_committed else self.high_watermark

    # -- reading ------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        read_committed: bool,
        whole_first_batch: bool,
        last_offset: int | None = None,
    ) -> ReadResult:
        """Read batches from ``offset`` on, at most to the batch with ``last_offset``.

        For read_committed the result lists aborted transactions; nothing is filtered.
        """
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
            span = log.read(
                offset, end_offset, max_bytes, whole_first_batch=whole_first_batch, last_offset=last_offset
            )
            if span is not None:
                records = span.bytes()
                self._look_if_stuck(offset, span, records)
                if read_committed:
                    found = log.aborted_transactions(offset, span)
                    aborted = [(entry.producer_id, entry.first_offset) for entry in found]
        except DamagedFile as error:
            self.log_damaged(error.path, offset, str(error))
            return ReadResult(ErrorCode.corrupt_message)
        except StorageError as error:
            self.go_offline(error)
            return ReadResult(ErrorCode.kafka_storage_error)
        return ReadResult(NONE, records, high_watermark, last_stable_offset, log.log_start_offset, aborted)

    def _look_if_stuck(self, offset: int, span: Span, records: bytes) -> None:
        """Check the CRC of the first batch if the same offset is read twice in a row, and log a damaged batch.

        Like Kafka, the broker checks no CRC on reads. A reader whose own check fails would otherwise repeat its read
        without a trace in the broker's log.
        """
        if offset != self._served_offset:
            self._served_offset = offset
        elif offset != self._checked_offset:
            self._checked_offset = offset
            try:
                batch = RecordBatch.parse(records)
            except CorruptBatch as error:
                self.log_damaged(str(span.file.path), offset, str(error))
                return
            if not batch.has_valid_crc():
                reason = f"the CRC of the batch at offset {batch.base_offset} does not match"
                self.log_damaged(str(span.file.path), offset, reason)

    def log_damaged(self, file: str, offset: int, reason: str) -> None:
        """Log a damaged batch once, however often it is read."""
        if (file, reason) in self._logged_damage or len(self._logged_damage) >= DAMAGE_LINES_MAX:
            return
        self._logged_damage = (*self._logged_damage, (file, reason))
        log_events.error(
            "damaged batch read",
            topic=self.topic,
            partition=self.index,
            offset=offset,
            file=file,
            reason=reason,
        )

    def readable_bytes(self, offset: int, *, read_committed: bool) -> tuple[int, bool]:
        """Number of bytes from ``offset`` to the end offset of this isolation level, and whether the end is in a
        later segment. If the files cannot be read, the result is (0, True).
        """
        end_offset = self._read_end(read_committed=read_committed)
        try:
            available = self.log.bytes_between(offset, end_offset)
        except StorageError:
            return 0, True  # the read reports the error
        if not available:
            return 0, False
        older = self.log.segment_index(offset) < self.log.segment_index(end_offset)
        return available, older

    def check_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Error code for the leader epoch that a client sent (KIP-320), by comparison with the epoch of this replica.
        NONE if the client sent no epoch (-1).
        """
        if current_leader_epoch in (-1, self.leader_epoch):
            return NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        return ErrorCode.unknown_leader_epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest known epoch that is at most ``epoch``; (-1, -1) if there is none."""
        return self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)

    def diverging(
        self, last_fetched_epoch: int, fetch_offset: int
    ) -> tuple[ErrorCode, tuple[int, int] | None]:
        """Compare a reader's log with this log by leader epochs (KIP-595).

        Returns (NONE, None) if the logs agree or the reader sent no epoch, and (error, None) if they cannot be
        compared. If the reader's log has diverged, returns (NONE, (epoch, end offset)): the largest epoch of this
        log that is at most the reader's, and its end offset.
        """
        if last_fetched_epoch < 0:
            return NONE, None
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        if (epoch, end_offset) == UNDEFINED or fetch_offset < self.log.log_start_offset:
            return ErrorCode.offset_out_of_range, None
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return NONE, (epoch, end_offset)
        return NONE, None

    def latest(self, *, read_committed: bool) -> TimestampOffset:
        """Result of ListOffsets for the timestamp -1 (latest): the end offset for readers of this isolation level."""
        if self._is_behind_its_epoch:
            return TimestampOffset(ErrorCode.offset_not_available)
        return TimestampOffset(NONE, self._read_end(read_committed=read_committed), -1, self.leader_epoch)

    @property
    def _is_behind_its_epoch(self) -> bool:
        """Whether this is a new leader whose followers have not confirmed its epoch's start: its high watermark may be below
        the previous leader's (KIP-207)."""
        return self.leading is not None and self.high_watermark < self.leading.epoch_start_offset

    def earliest(self) -> TimestampOffset:
        """Result of ListOffsets for the timestamps -2 (earliest) and -4 (earliest local: no tiered storage)."""
        start = self.log.log_start_offset
        return TimestampOffset(NONE, start, -1, self.log.epochs.epoch_for_offset(start))

    def max_timestamp(self, *, read_committed: bool) -> Steps[TimestampOffset]:
        """Result of ListOffsets for the timestamp -3: the record with the largest timestamp, markers included."""
        bytes_max = self.log.config.max_decompressed_message_bytes
        return self._found(self.log.max_timestamp_search(bytes_max), read_committed=read_committed)

    def offset_for_timestamp(self, timestamp_ms: int, *, read_committed: bool) -> Steps[TimestampOffset]:
        """The first record whose timestamp is at least ``timestamp_ms``."""
        bytes_max = self.log.config.max_decompressed_message_bytes
        return self._found(self.log.timestamp_search(timestamp_ms, bytes_max), read_committed=read_committed)

    def _found(
        self, search: Steps[TimestampedOffset | None], *, read_committed: bool
    ) -> Steps[TimestampOffset]:
        try:
            found = yield from search
        except CorruptBatch:  # a record is larger than max.decompressed.message.bytes
            return TimestampOffset(ErrorCode.invalid_record)
        except DamagedFile as error:
            self.log_damaged(error.path, self.log.log_start_offset, str(error))
            return TimestampOffset(ErrorCode.corrupt_message)
        except StorageError as error:
            self.go_offline(error)
            return TimestampOffset(ErrorCode.kafka_storage_error)
        if found is None or found.offset >= self._read_end(read_committed=read_committed):
            unsure = self._is_behind_its_epoch
            return TimestampOffset(ErrorCode.offset_not_available if unsure else NONE)
        return TimestampOffset(NONE, *found)
