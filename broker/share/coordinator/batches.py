"""Merges the state batches of a share partition (Kafka's ``PersisterStateBatchCombiner``). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import pairwise

from broker.share.state import NO_START_OFFSET, StateBatch


def combined(batches: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Return the batches from the start offset on (-1: all of them), in order, without overlaps, neighbours joined.

    An offset that is in several batches gets the highest delivery count, then the highest state.
    """
    kept = sorted(_cut(batches, start_offset))
    if len(kept) < 2:
        return tuple(kept)
    edges = sorted({edge for first, last, _, _ in kept for edge in (first, last + 1)})
    found: list[StateBatch] = []
    covering: list[tuple[int, int, int]] = []
    """Heap of (-delivery count, -state, last offset) of the batches that have begun. The first one wins."""
    begun = 0
    for first, end in pairwise(edges):
        while begun < len(kept) and kept[begun].first_offset == first:
            batch = kept[begun]
            heappush(covering, (-batch.delivery_count, -batch.state, batch.last_offset))
            begun += 1
        while covering and covering[0][2] < first:
            heappop(covering)
        if covering:
            count, state, _ = covering[0]
            _append(found, StateBatch(first, end - 1, -state, -count))
    return tuple(found)


def _cut(batches: Iterable[StateBatch], start_offset: int) -> Iterable[StateBatch]:
    for batch in batches:
        if start_offset == NO_START_OFFSET or batch.first_offset >= start_offset:
            yield batch
        elif batch.last_offset >= start_offset:
            yield batch._replace(first_offset=start_offset)


def _append(found: list[StateBatch], batch: StateBatch) -> None:
    last = found[-1] if found else None
    if last is not None and last.last_offset + 1 == batch.first_offset and last[2:] == batch[2:]:
        found[-1] = last._replace(last_offset=batch.last_offset)
    else:
        found.append(batch)
