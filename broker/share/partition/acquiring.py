"""One acquisition of records of a share partition, as Kafka's SharePartition.acquire. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter, itemgetter
from typing import Final

from broker.share.state import Ending, RecordState

from .in_flight import InFlightBatch, InFlightState
from .locks import AcquisitionLock
from .records import InFlightRecords
from .values import Acquired, DeliverySettings, Fetched, Limits

_base_offset: Final = itemgetter(0)
_last_offset: Final = attrgetter("last_offset")


class Acquisition:
    """Acquires records of what was read from the log for one member."""

    __slots__ = (
        "_acquired",
        "_base_offset",
        "_fetched",
        "_last_offset",
        "_limits",
        "_member_id",
        "_now_ms",
        "_records",
        "_room",
        "_settings",
        "_throttled_from",
    )

    def __init__(
        self,
        records: InFlightRecords,
        member_id: str,
        fetched: Fetched,
        limits: Limits,
        settings: DeliverySettings,
        now_ms: int,
    ) -> None:
        self._records = records
        self._member_id = member_id
        self._fetched = fetched
        self._limits = limits
        self._settings = settings
        self._now_ms = now_ms
        self._acquired: list[Acquired] = []
        self._throttled_from = max(2, (settings.delivery_count_limit + 1) // 2)
        """Delivery count from which on fewer records are delivered at once, to find the one that makes consumers fail."""
        self._base_offset, self._last_offset = fetched.batches[0][0], fetched.batches[-1][1]
        self._room = min(limits.records_max, settings.partition_max_record_locks - records.in_flight_count)
        """How many more records to acquire."""
        if self._room <= 0:
            # No room for new records. Those up to the end offset may be delivered again.
            self._room = min(limits.records_max, records.end_offset - fetched.fetch_offset + 1)
            self._last_offset = min(self._last_offset, records.end_offset)

    def run(self) -> list[Acquired]:
        """Acquire records. Return their offsets in ascending order."""
        records = self._records
        if self._room <= 0:
            return []
        if self._fetched.fetch_offset < self._base_offset:
            records.skip_compacted(self._fetched.fetch_offset, self._base_offset)
        if self._last_offset < self._base_offset:
            return []
        first_offset, floor = self._base_offset, records.batches.floor(self._base_offset)
        if floor < 0:
            first_offset = max(first_offset, records.start_offset)
        elif records.batches[floor].last_offset >= first_offset:
            first_offset = records.batches[floor].first_offset
        found = records.batches.between(min(first_offset, self._base_offset), self._last_offset)
        if not found:
            self._acquire_new(first_offset, self._last_offset)
        else:
            self._acquire_found(found, first_offset)
            self._acquire_new(found[-1].last_offset + 1, self._last_offset)
        if self._acquired:
            records.move_gap(self._acquired[-1].last_offset + 1)
        return self._without_aborted() if self._fetched.aborted else self._acquired

    def _acquire_found(self, batches: Sequence[InFlightBatch], gap_offset: int) -> None:
        """Acquire what is available of batches in flight, and the gaps before them."""
        records = self._records
        if records.gap is None:
            available = records.batches.first_available()
            low = len(batches) if available is None else bisect_left(batches, available, key=_last_offset)
            batches = batches[low:]
        for batch in batches:
            if records.gap is not None:
                self._acquire_new(gap_offset, batch.first_offset - 1)
                gap_offset = batch.last_offset + 1
            if self._room <= 0:
                return
            if batch.offsets is not None or batch.state.is_available:
                self._acquire_again(batch)

    def _acquire_new(self, first_offset: int, last_offset: int) -> None:
        """Acquire records that are not in flight: whole record batches, or with a record limit only so many of them."""
        records, room = self._records, self._room
        if not records.batches:
            first_offset = max(first_offset, records.end_offset)
        if room <= 0 or last_offset < first_offset:
            return
        end = last_offset
        if room < end - first_offset + 1:
            end = self._end_of_batch(first_offset + room - 1)
            if records.gap is not None:
                end = min(end, last_offset)
        if self._limits.record_limit and end - first_offset + 1 > room:
            # The records beyond the limit are in flight, too, but available.
            ranges = [(first_offset, first_offset + room - 1)]
            batch = self._add(first_offset, end)
            self._take(batch, records.batches.split(batch)[:room], *ranges[0])
        else:
            ranges = self._ranges(first_offset, end)
            for first, last in ranges:
                if first <= last:
                    batch = self._add(first, last)
                    self._take(batch, [batch.state], first, last)
        if records.batches[0].first_offset == first_offset:
            records.start_offset = first_offset
        records.end_offset = max(records.end_offset, end)
        self._acquired += [Acquired(first, last, 1) for first, last in ranges]
        self._room -= ranges[-1][1] - first_offset + 1

    def _add(self, first_offset: int, last_offset: int) -> InFlightBatch:
        batch = InFlightBatch(first_offset, last_offset, InFlightState(RecordState.AVAILABLE, 0))
        self._records.add(batch)
        return batch

    def _acquire_again(self, batch: InFlightBatch) -> None:
        """Acquire the available records of a batch in flight: the whole batch if its records have one state."""
        is_throttled = self._is_throttled(batch)
        if is_throttled and self._acquired:
            self._room = 0
            return
        is_whole = self._base_offset <= batch.first_offset and batch.last_offset <= self._last_offset
        exceeds_limit = self._limits.record_limit and batch.size > self._room
        if batch.offsets is None and is_whole and not exceeds_limit and not is_throttled:
            self._take(batch, [batch.state], batch.first_offset, batch.last_offset)
            count = batch.state.delivery_count
            self._acquired.append(Acquired(batch.first_offset, batch.last_offset, count))
            self._room -= batch.size
            return
        self._records.batches.split(batch)
        chosen = self._chosen(batch)
        if chosen:
            self._take(batch, [state for state, _ in chosen], chosen[0][1], chosen[-1][1])
            self._acquired += _joined(chosen)
            self._room = 0 if is_throttled else self._room - len(chosen)

    def _chosen(self, batch: InFlightBatch) -> list[tuple[InFlightState, int]]:
        """The available records of a batch that are to be acquired, with their offsets."""
        chosen: list[tuple[InFlightState, int]] = []
        limit = self._settings.delivery_count_limit
        room, throttled_max = self._room if self._limits.record_limit else -1, -1
        for state, offset, _ in batch.states(self._first_available, self._last_offset):
            if not state.is_available:
                continue
            # A record that is delivered for the last time is delivered alone.
            is_last = limit > 2 and state.delivery_count == limit - 1
            if is_last and chosen:
                break
            if throttled_max < 0 and state.delivery_count >= self._throttled_from:
                throttled_max = max(1, batch.size >> (state.delivery_count - self._throttled_from + 1))
            chosen.append((state, offset))
            if is_last or len(chosen) in (room, throttled_max):
                break
        return chosen

    def _is_throttled(self, batch: InFlightBatch) -> bool:
        """Whether available records of a batch were delivered so often that one of them may be the reason."""
        return batch.delivery_count_max >= self._throttled_from and any(
            state.is_available and state.delivery_count >= self._throttled_from
            for state, _, _ in batch.states(self._first_available, self._last_offset)
        )

    @property
    def _first_available(self) -> int:
        """The first offset that may be acquired again: not below the first record batch that was read."""
        available = self._records.batches.first_available()
        return self._base_offset if available is None else max(self._base_offset, available)

    def _take(
        self, batch: InFlightBatch, states: Sequence[InFlightState], first_offset: int, last_offset: int
    ) -> None:
        lock = AcquisitionLock(
            self._member_id,
            first_offset,
            last_offset,
            self._now_ms + self._settings.record_lock_duration_ms,
            len(states),
        )
        self._records.locks.add(lock)
        for state in states:
            state.state, state.member_id, state.lock = RecordState.ACQUIRED, self._member_id, lock
            state.delivery_count += 1
            batch.delivery_count_max = max(batch.delivery_count_max, state.delivery_count)

    def _end_of_batch(self, offset: int) -> int:
        """Last offset of the record batch with an offset, or the offset itself if there is no such record batch."""
        batches = self._fetched.batches
        index = bisect_right(batches, offset, key=_base_offset) - 1
        return max(offset, batches[index][1]) if index >= 0 else offset

    def _ranges(self, first_offset: int, last_offset: int) -> list[tuple[int, int]]:
        """Split a range at the first record batch after each ``batch_size`` offsets.

        With a batch size of 0 the first range is empty if a record batch begins at its offset, as in Kafka.
        """
        found, first, batch_size = [], first_offset, self._limits.batch_size
        if not self._limits.record_limit and last_offset - first_offset + 1 > batch_size:
            batches = self._fetched.batches
            low = bisect_left(batches, first_offset, key=_base_offset)
            high = bisect_right(batches, last_offset, key=_base_offset)
            for base_offset, _ in batches[low:high]:
                if base_offset - first >= batch_size:
                    found.append((first, base_offset - 1))
                    first = base_offset
        return [*found, (first, last_offset)]

    def _without_aborted(self) -> list[Acquired]:
        """Archive the acquired records of aborted transactions, and return the others."""
        aborted, others = self._fetched.aborted, []
        for first, last in aborted:
            self._records.archive_range(first, last, RecordState.ACQUIRED, Ending.ABORTED)
        for each in self._acquired:
            offset, index = each.first_offset, bisect_left(aborted, each.first_offset, key=itemgetter(1))
            while index < len(aborted) and aborted[index][0] <= each.last_offset:
                first, last = aborted[index]
                if offset < first:
                    others.append(each._replace(first_offset=offset, last_offset=first - 1))
                offset, index = last + 1, index + 1
            if offset <= each.last_offset or offset == each.first_offset:
                others.append(each._replace(first_offset=offset))
        return others


def _joined(chosen: Sequence[tuple[InFlightState, int]]) -> list[Acquired]:
    """Acquired records as ranges with the same delivery count."""
    joined: list[Acquired] = []
    for state, offset in chosen:
        if joined and joined[-1][1:] == (offset - 1, state.delivery_count):
            joined[-1] = joined[-1]._replace(last_offset=offset)
        else:
            joined.append(Acquired(offset, offset, state.delivery_count))
    return joined
