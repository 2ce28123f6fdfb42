"""What readers get of a partition, from a leader or from a follower: records, offsets by time, where epochs end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.logging import get_logger
from broker.replicas.partition.roles import LeaderRole
from protocol.batch import CorruptBatch, RecordBatch
from protocol.errors import NONE, ErrorCode
from protocol.named_tuple import NamedTuple
from protocol.slotted import slotted
from storage.epochs import UNDEFINED
from storage.files import DamagedFile, StorageError
from storage.log import Log, Span, TimestampedOffset
from storage.steps import Steps

DAMAGE_LINES_MAX: Final = 20
"""For how many damaged places of one partition there is a line."""

log_events = get_logger()


class ReadResult(NamedTuple):
    """Bytes for a Fetch: whole batches but for a possibly cut last one, and the offsets they were read under."""

    error: ErrorCode
    records: bytes = b""
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset) in marker order; None for read_uncommitted."""


@slotted(frozen=True)
class TimestampOffset:
    """An answer of ListOffsets; offset and timestamp -1 when there is none."""

    error: ErrorCode
    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = -1


class ReadablePartition:
    """The reading half of `broker.replicas.partition.Partition`, which keeps what stands here up to date."""

    topic: str
    index: int
    log: Log
    leader_epoch: int
    high_watermark: int
    leading: LeaderRole | None
    offline: str | None
    _served_offset: int
    """Where the last reader began that got records."""
    _checked_offset: int
    """The last offset that was asked for twice in a row, and whose batch was checked for that."""
    _said: tuple[tuple[str, str], ...]
    """Damaged places (file, reason) that have had their line in the log."""

    def go_offline(self, error: StorageError) -> object:
        """The files cannot be trusted any more."""
        raise NotImplementedError

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
