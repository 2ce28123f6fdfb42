"""Decides which neighbouring segments are merged into one (`Cleaner.groupSegmentsBySize`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from protocol.named_tuple import NamedTuple
from storage.room import RELATIVE_OFFSET_MAX

GROUP_SEGMENTS_MAX: Final = 32
"""Largest number of segments merged into one. Each source costs four renames when the result replaces it, and all renames
happen in one turn of the event loop, because no reader may see a log that is partly old and partly new. 32 segments take
about 5 ms. Kafka has no such bound. The next pass merges what this one has left separate."""


class Source(NamedTuple):
    """Base offset and size in bytes of a sealed segment, copied for a compaction pass.

    The pass runs in a thread, which must not use the log's `Segment`.
    """

    base_offset: int
    size: int


class Sized(NamedTuple):
    """A `Source` and the sizes of its indexes in bytes."""

    source: Source
    offset_index_bytes: int
    time_index_bytes: int


def groups(
    segments: Sequence[Sized], segment_bytes: int, index_bytes: int, upper_bound: int
) -> Iterator[list[Source]]:
    """Split the segments into groups of neighbours. A group fits into one segment by size, indexes and offset range."""
    at = 0
    while at < len(segments):
        first = segments[at]
        log, offsets, times = first.source.size, first.offset_index_bytes, first.time_index_bytes
        group = [first.source]
        at += 1
        while at < len(segments) and len(group) < GROUP_SEGMENTS_MAX:
            following = segments[at]
            log += following.source.size
            offsets += following.offset_index_bytes
            times += following.time_index_bytes
            # A segment's last offset is known only after reading the segment. The next segment's base offset bounds it.
            end = segments[at + 1].source.base_offset if at + 1 < len(segments) else upper_bound
            too_distant = end - 1 - first.source.base_offset > RELATIVE_OFFSET_MAX
            if log > segment_bytes or max(offsets, times) > index_bytes:
                break
            if following.source.size and too_distant:
                break
            group.append(following.source)
            at += 1
        yield group
