"""The segments of one log, with compact arrays for searches over all of them: there may be 100,000."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate

from storage.segment import Segment


class SegmentList:
    """Segments in offset order. All but the last are sealed, so their sizes and timestamps do not change."""

    __slots__ = ("_aborting", "_bases", "_latest", "_running_latest", "_starts", "all")

    def __init__(self, segments: list[Segment]) -> None:
        self.all = segments
        self._bases = array("q", [segment.base_offset for segment in segments])
        # Each of the following arrays is created when it is first needed.
        # Positions at which the segments would begin in one large file. Dropping the first segments changes no other entry.
        self._starts: array[int] | None = None
        # Largest timestamp of each sealed segment, and the running maximum.
        self._latest: array[int] | None = None
        self._running_latest: array[int] = array("q")
        # Base offsets of the segments that may list aborted transactions.
        self._aborting: list[int] | None = None

    # -- by offset ----------------------------------------------------------------------------------------------

    def index_of(self, offset: int) -> int:
        """Index of the segment whose range contains ``offset``."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def next_base(self, index: int) -> int | None:
        """Base offset of the segment after the segment at ``index``; None if that segment is the last."""
        return self._bases[index + 1] if index + 1 < len(self._bases) else None

    # -- by size ------------------------------------------------------------------------------------------------

    def _loaded_starts(self) -> array[int]:
        starts = self._starts
        if starts is None:
            sizes = (segment.size for segment in self.all[:-1])
            starts = self._starts = array("q", accumulate(sizes, initial=0) if self.all else ())
        return starts

    @property
    def size(self) -> int:
        """Total bytes of all segments."""
        if not self.all:
            return 0
        starts = self._loaded_starts()
        return starts[-1] - starts[0] + self.all[-1].size

    def bytes_from(self, first: int, last: int) -> int:
        """Total bytes of the segments from index ``first`` up to (excluding) ``last``."""
        starts = self._loaded_starts()
        return starts[last] - starts[first]

    # -- by time ------------------------------------------------------------------------------------------------

    def _loaded_latest(self) -> array[int]:
        latest = self._latest
        if latest is None:
            latest = self._latest = array("q", [segment.max_timestamp_ms for segment in self.all[:-1]])
            self._running_latest = array("q", accumulate(latest, max))
        return latest

    def first_since(self, timestamp_ms: int) -> int:
        """Index of the first segment that may have a record at or after ``timestamp_ms``; if no sealed segment has one, the
        index of the active segment.
        """
        self._loaded_latest()
        return bisect_left(self._running_latest, timestamp_ms)

    def largest_timestamp_ms(self) -> int:
        """Largest timestamp in all segments; -1 if there is none."""
        if not self.all:
            return -1
        self._loaded_latest()
        sealed = self._running_latest[-1] if self._running_latest else -1
        return max(sealed, self.all[-1].max_timestamp_ms)

    # -- by aborted transactions --------------------------------------------------------------------------------

    def _loaded_aborting(self) -> list[int]:
        aborting = self._aborting
        if aborting is None:
            aborting = self._aborting = [each.base_offset for each in self.all if each.has_aborted]
        return aborting

    def aborting_from(self, index: int) -> Iterator[Segment]:
        """Yield the segments from ``index`` on whose transaction indexes may have entries."""
        aborting = self._loaded_aborting()
        for at in range(bisect_left(aborting, self._bases[index]), len(aborting)):
            yield self.all[self.index_of(aborting[at])]

    def note_aborted(self, segment: Segment) -> None:
        """Note that the first aborted transaction of a segment was indexed."""
        if segment is self.all[-1] and self._aborting is not None:
            self._aborting.append(segment.base_offset)
        else:
            self._aborting = None

    # -- changes ------------------------------------------------------------------------------------------------

    def append(self, segment: Segment) -> None:
        """Add a new active segment. The previous one must have been sealed."""
        if self.all:
            sealed = self.all[-1]
            if self._starts is not None:
                self._starts.append(self._starts[-1] + sealed.size)
            if self._latest is not None:
                latest, running = sealed.max_timestamp_ms, self._running_latest
                self._latest.append(latest)
                running.append(max(latest, running[-1]) if running else latest)
        else:
            self._starts = self._latest = None
        if segment.has_aborted:
            self._aborting = None
        self.all.append(segment)
        self._bases.append(segment.base_offset)

    def pop(self) -> Segment:
        """Remove and return the last segment. The one before it becomes the active one."""
        self._bases.pop()
        if self._starts is not None:
            self._starts.pop()
        if self._latest:
            self._latest.pop()
            self._running_latest.pop()
        self._aborting = None
        return self.all.pop()

    def take_out(self, first: int, end: int, instead: Segment | None) -> None:
        """Remove sealed segments, and insert ``instead`` in their place if it is given."""
        placed = [] if instead is None else [instead]
        self._take_out_sizes(first, end, placed)
        self._take_out_times(first, end, placed)
        self.all[first:end] = placed
        self._bases[first:end] = array("q", [segment.base_offset for segment in placed])
        self._aborting = None

    def _take_out_sizes(self, first: int, end: int, placed: list[Segment]) -> None:
        starts = self._starts
        if starts is None:
            return
        if first == 0 and not placed:
            del starts[:end]
            return
        added = sum(segment.size for segment in placed)
        less = starts[end] - starts[first] - added
        later = array("q", [start - less for start in starts[end:]])
        starts[first:] = array("q", [starts[first]] * len(placed)) + later

    def _take_out_times(self, first: int, end: int, placed: list[Segment]) -> None:
        latest, running = self._latest, self._running_latest
        if latest is None:
            return
        latest[first:end] = array("q", [segment.max_timestamp_ms for segment in placed])
        running[first:end] = array("q", [-1] * len(placed))
        largest = running[first - 1] if first else -1
        for index in range(first, len(latest)):
            largest = max(largest, latest[index])
            if index >= first + len(placed) and running[index] == largest:
                break  # from here on the removed segments never had the largest timestamp
            running[index] = largest


__all__ = ["SegmentList"]
