"""The records that a share partition has in flight, in batches, as Kafka's InFlightState and InFlightBatch. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush, heapreplace

from broker.share.state import TERMINAL, Ending, RecordState
from protocol.slotted import slotted

from .locks import AcquisitionLock

NO_MEMBER = ""


@slotted(eq=False)
class InFlightState:
    """The delivery state of one record, or of all records of one batch."""

    state: RecordState
    delivery_count: int
    member_id: str = NO_MEMBER
    """The member that has acquired the records, or was the last to do so."""
    lock: AcquisitionLock | None = None
    rollback: tuple[str, int] | None = None
    """While ``state`` is being written: the member that had acquired the records, and the delivery count limit then."""
    is_final: bool = False
    """Whether the records were archived meanwhile, so that no failed write makes them available again."""
    ending: Ending | None = None
    """Why the records are not acquired any more."""

    @property
    def is_available(self) -> bool:
        return self.state is RecordState.AVAILABLE and self.rollback is None

    @property
    def is_done(self) -> bool:
        """Whether the start offset may pass the records."""
        return self.state in TERMINAL and self.rollback is None

    def leave(
        self, state: RecordState, delivery_count_limit: int, dead_letters: bool, ending: Ending | None
    ) -> None:
        """Change the state of acquired records. Records that were delivered too often are archived instead of available.

        If ``ending`` is None, the former one stays.
        """
        if state is RecordState.AVAILABLE and self.delivery_count >= delivery_count_limit:
            state = RecordState.ARCHIVING if dead_letters else RecordState.ARCHIVED
        self.state = state
        self.ending = ending or self.ending


class InFlightBatch:
    """Offsets with one state, or, after a part of them has changed, with one state for each offset from then on."""

    __slots__ = ("delivery_count_max", "first_offset", "last_offset", "offsets", "state")

    def __init__(self, first_offset: int, last_offset: int, state: InFlightState) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.state = state
        """The state of all records. Not used any more if there are ``offsets``."""
        self.offsets: list[InFlightState] | None = None
        self.delivery_count_max = state.delivery_count
        """The highest delivery count that one of the records has had."""

    @property
    def size(self) -> int:
        return self.last_offset - self.first_offset + 1

    def states(self, first_offset: int, last_offset: int) -> Iterator[tuple[InFlightState, int, int]]:
        """The states of the records within a range: state, first offset, last offset."""
        first, last = max(first_offset, self.first_offset), min(last_offset, self.last_offset)
        if self.offsets is None:
            yield self.state, first, last
        else:
            for offset in range(first, last + 1):
                yield self.offsets[offset - self.first_offset], offset, offset


class InFlightBatches:
    """The batches of a share partition by offset, and the records among them that are available."""

    __slots__ = ("_available", "_bases", "_batches")

    def __init__(self) -> None:
        self._batches: list[InFlightBatch] = []
        self._bases: list[int] = []
        """The first offsets of ``_batches``."""
        self._available: list[tuple[int, int]] = []
        """Heap of (first, last offset) within one batch. Each available record is in such a range, and others may be."""

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[InFlightBatch]:
        return iter(self._batches)

    def __getitem__(self, index: int) -> InFlightBatch:
        return self._batches[index]

    def floor(self, offset: int) -> int:
        """Index of the last batch that does not begin above the offset, -1 if there is none."""
        return bisect_right(self._bases, offset) - 1

    def overlapping(self, first_offset: int, last_offset: int) -> Sequence[InFlightBatch]:
        """The batches with offsets of a range."""
        if last_offset < first_offset:
            return ()
        low = bisect_right(self._bases, first_offset)
        if low and self._batches[low - 1].last_offset >= first_offset:
            low -= 1
        return self._batches[low : bisect_right(self._bases, last_offset)]

    def between(self, first_offset: int, last_offset: int) -> Sequence[InFlightBatch]:
        """The batches that begin within a range."""
        return self._batches[bisect_left(self._bases, first_offset) : bisect_right(self._bases, last_offset)]

    def states(self, first_offset: int, last_offset: int) -> Iterator[tuple[InFlightState, int, int]]:
        """The states of the records within a range: state, first offset, last offset."""
        for batch in self.overlapping(first_offset, last_offset):
            yield from batch.states(first_offset, last_offset)

    def add(self, batch: InFlightBatch) -> None:
        index = bisect_left(self._bases, batch.first_offset)
        self._bases.insert(index, batch.first_offset)
        self._batches.insert(index, batch)

    def remove_first(self, count: int) -> None:
        del self._bases[:count], self._batches[:count]

    def split(self, batch: InFlightBatch) -> list[InFlightState]:
        """Give each offset of a batch its own state. They share the lock."""
        if batch.offsets is None:
            whole = batch.state
            lock = whole.lock if whole.state is RecordState.ACQUIRED else None
            batch.offsets = [
                InFlightState(whole.state, whole.delivery_count, whole.member_id, lock, ending=whole.ending)
                for _ in range(batch.size)
            ]
            if lock is not None:
                lock.holders += batch.size - 1
                whole.lock = None
            elif whole.state is RecordState.AVAILABLE:
                self.set_available(batch.first_offset, batch.last_offset)
        return batch.offsets

    def set_available(self, first_offset: int, last_offset: int) -> None:
        """Records of one batch have become available."""
        heappush(self._available, (first_offset, last_offset))

    def first_available(self) -> int | None:
        """The first offset that is available, and whose state is not being written."""
        while self._available:
            first_offset, last_offset = self._available[0]
            states = self.states(first_offset, last_offset)
            found = next((offset for state, offset, _ in states if state.is_available), None)
            if found == first_offset:
                return found
            if found is None:
                heappop(self._available)
            else:
                heapreplace(self._available, (found, last_offset))
        return None
