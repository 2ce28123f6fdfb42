"""The records in flight of a share partition, with the moves of its start offset. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from broker.share.state import TERMINAL, Ending, RecordState, StateBatch

from .in_flight import InFlightBatch, InFlightBatches, InFlightState
from .locks import AcquisitionLocks


class InFlightRecords:
    """The records from the start offset to the end offset, their states and locks."""

    __slots__ = (
        "_done_end",
        "_gap_offset",
        "_gap_scanned",
        "_gaps_end",
        "batches",
        "delivery_complete_count",
        "end_offset",
        "locks",
        "start_offset",
    )

    def __init__(self) -> None:
        self.start_offset = 0
        self.end_offset = 0
        """Last offset that was acquired; the next offset to fetch if nothing is in flight."""
        self.delivery_complete_count = 0
        """Number of records from the start offset on that are acknowledged or archived."""
        self.batches = InFlightBatches()
        self.locks = AcquisitionLocks()
        self._done_end = 0
        """The start offset may pass all records in flight below this offset."""
        self._gap_offset: int | None = None
        self._gaps_end = 0
        """The end offset when the state was loaded."""
        self._gap_scanned = (0, -1)
        """There is no gap between these two offsets."""

    def restore(self, start_offset: int, batches: Sequence[StateBatch]) -> None:
        """Take over the stored states. Raises ValueError if they are below the start offset."""
        self.start_offset = self.end_offset = expected = start_offset
        for first, last, value, count in batches:
            if first < start_offset or last < first:
                raise ValueError(f"batch from {first} to {last}, start offset {start_offset}")
            if self._gap_offset is None and first > expected:
                self._gap_offset = expected
            expected = last + 1
            state = RecordState(value)
            self.add(InFlightBatch(first, last, InFlightState(state, count)))
            if state in TERMINAL:
                self.delivery_complete_count += last - first + 1
            elif state is RecordState.AVAILABLE:
                self.batches.set_available(first, last)
        if batches:
            self.end_offset = self._gaps_end = batches[-1].last_offset
            self.move_start()

    @property
    def in_flight_count(self) -> int:
        """The number of offsets between start and end, whatever the state of their records."""
        return self.end_offset - self.start_offset + 1 if self.batches else 0

    def counted(self, first_offset: int, last_offset: int) -> int:
        """The number of offsets of a range that are not below the start offset."""
        return max(0, last_offset - max(first_offset, self.start_offset) + 1)

    def add(self, batch: InFlightBatch) -> None:
        self.batches.add(batch)
        self._done_end = min(self._done_end, batch.first_offset)

    def unlock(self, state: InFlightState) -> None:
        if state.lock is not None:
            self.locks.release(state.lock)
            state.lock = None

    def archive_range(
        self, first_offset: int, last_offset: int, former: RecordState, ending: Ending | None = None
    ) -> bool:
        """Archive the records of a range that are in a state. Return whether there are any."""
        found = False
        for batch in self.batches.overlapping(first_offset, last_offset):
            is_whole = first_offset <= batch.first_offset and batch.last_offset <= last_offset
            if batch.offsets is None and not is_whole and batch.state.state is former:
                self.batches.split(batch)
            for state, first, last in batch.states(first_offset, last_offset):
                if state.state is former:
                    self.unlock(state)
                    state.is_final = found = True
                    state.leave(RecordState.ARCHIVED, 0, False, ending)
                    self.delivery_complete_count += self.counted(first, last)
        return found

    def skip_compacted(self, fetch_offset: int, base_offset: int) -> None:
        """Archive the available records from the offset that was read to the first batch: compaction has removed them."""
        self.archive_range(fetch_offset, base_offset - 1, RecordState.AVAILABLE, Ending.COMPACTED)
        # Kafka does not move it here, and reads the same offset again and again if nothing is acquired behind it.
        self.move_gap(max(self.gap or 0, base_offset))

    # -- the start offset ---------------------------------------------------------------------------------------

    def advance_start(self, log_start_offset: int) -> None:
        """Move the start offset to the log start offset, and archive available records below it.

        Acquired records below it stay acquired until they are released, or their lock runs out.
        """
        if log_start_offset <= self.start_offset:
            return
        if self.batches:
            below = self.start_offset, log_start_offset - 1
            self.archive_range(*below, RecordState.AVAILABLE, Ending.BELOW_LOG_START)
            for state, first, last in self.batches.states(*below):
                if state.state in TERMINAL:
                    self.delivery_complete_count -= last - first + 1
        if self.gap is not None:
            self.move_gap(max(self.gap, log_start_offset))
        self.start_offset = log_start_offset
        self.end_offset = max(self.end_offset, log_start_offset)

    def move_start(self) -> bool:
        """Move the start offset over the records that are acknowledged or archived. Return whether it has moved."""
        former, done_end, index = self.start_offset, None, 0
        for batch in self.batches:
            if self.gap is not None and batch.last_offset >= self.gap:
                break
            done = -1
            for state, _, last in batch.states(self._done_end, batch.last_offset):
                if not state.is_done:
                    break
                done = last
            if done >= 0:
                done_end = done + 1
                self.delivery_complete_count -= self.counted(batch.first_offset, done)
            if done != batch.last_offset:
                break
            index += 1
        if done_end is None:
            return False
        self._done_end = done_end
        if index == len(self.batches):
            self.start_offset = self.end_offset = max(former, done_end)
        elif done_end > self.batches[index].first_offset:
            self.start_offset = max(former, done_end)
        else:
            next_offset = self.batches[index].first_offset
            self.start_offset = max(former, next_offset if self.gap is None else min(next_offset, self.gap))
        self.batches.remove_first(index)
        return self.start_offset > former

    def make_room(self) -> bool:
        """Move the start offset if that is overdue. Return whether it has moved.

        Kafka moves it with the next change after records were archived without one, and after the last gap was acquired.
        If all room for records in flight is used, there will be no such change.
        """
        if self.first_gap() is None:
            self._gap_offset = None
        return self.move_start()

    # -- records without a stored state ---------------------------------------------------------------------------

    @property
    def gap(self) -> int | None:
        """The offset from which on there may be gaps: records without a stored state, that were in flight when the former
        leader ended. None if there are none. Gaps are acquired like new records, until the end offset has moved.
        """
        return self._gap_offset if self._gaps_end == self.end_offset else None

    def first_gap(self) -> int | None:
        """The first offset of the first gap."""
        if self.gap is None:
            return None
        first, offset = self._gap_scanned
        if not first <= self.gap <= offset:
            first = offset = self.gap
        index = max(self.batches.floor(offset), 0)
        while index < len(self.batches) and self.batches[index].first_offset <= offset:
            offset = max(offset, self.batches[index].last_offset + 1)
            index += 1
        self._gap_scanned = first, offset
        return offset if index < len(self.batches) else None

    def move_gap(self, offset: int) -> None:
        if self.gap is not None:
            self._gap_offset = offset
