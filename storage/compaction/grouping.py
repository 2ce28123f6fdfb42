"""Which neighbouring segments become one (`Cleaner.groupSegmentsBySize`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from protocol.named_tuple import NamedTuple
from storage.room import RELATIVE_OFFSET_MAX

GROUP_SEGMENTS_MAX: Final = 32
"""Each source is four renames when the result is put in its place, and that happens in one turn of the loop: no reader
may see a log of which some is old and some new. 32 of them take about 5 ms. Kafka has no such bound; the next pass joins
what this one has left apart."""


class Source(NamedTuple):
    """One sealed segment as a pass finds it: what it needs to know without touching the log's objects."""

    base_offset: int
    size: int


class Sized(NamedTuple):
    """A source and the bytes of its indexes."""

    source: Source
    offset_index_bytes: int
    time_index_bytes: int


def groups(
    segments: Sequence[Sized], segment_bytes: int, index_bytes: int, upper_bound: int
) -> Iterator[list[Source]]:
    """Neighbours that fit into one segment by size, by the size of either index, and by their range of offsets."""
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
            # A segment's last offset is not known without reading it: the next one's base says enough.
            end = segments[at + 1].source.base_offset if at + 1 < len(segments) else upper_bound
            too_distant = end - 1 - first.source.base_offset > RELATIVE_OFFSET_MAX
            if log > segment_bytes or max(offsets, times) > index_bytes:
                break
            if following.source.size and too_distant:
                break
            group.append(following.source)
            at += 1
        yield group
