"""Distribute segments over Spark tasks: small ones share a task, large ones are split between two batches.

The positions of the splits come from the offset index. A position is used only if the batch that begins there has the
last offset of the index entry. Without a usable index, the reader follows the lengths of the batches.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from odradek.spark.records import heads
from odradek.spark.segments.finding import Segment

MIB = 1 << 20
OPEN_COST_BYTES = 1 * MIB
"""Cost of opening a file, counted as bytes to read: so a task gets fewer segments if they are small."""
_TASK_BYTES_MIN = 4 * MIB
_SCAN_BYTES = 8 * MIB
_INDEX_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])


class Piece(NamedTuple):
    """A part of a segment: the bytes from ``start`` to ``end``.

    The part contains the offsets from ``first_offset`` to before ``end_offset`` (None: no bound). ``last``: whether the
    part ends with the segment.
    """

    segment: Segment
    start: int
    end: int
    first_offset: int
    end_offset: int | None
    last: bool


def plan(segments: Sequence[Segment], split_bytes: int, tasks_min: int) -> list[list[Piece]]:
    """Distribute the segments over Spark tasks, as pieces: about ``split_bytes`` for each task.

    The tasks get fewer bytes if there would otherwise be fewer than ``tasks_min`` tasks.
    """
    total = sum(segment.size for segment in segments)
    wanted = min(split_bytes, max(total // max(tasks_min, 1), _TASK_BYTES_MIN))
    tasks: list[list[Piece]] = []
    filled = 0
    for piece in (piece for segment in segments if segment.size for piece in pieces(segment, wanted)):
        cost = piece.end - piece.start + OPEN_COST_BYTES
        if not tasks or filled + cost > wanted + OPEN_COST_BYTES:
            tasks.append([])
            filled = 0
        tasks[-1].append(piece)
        filled += cost
    return tasks


def pieces(segment: Segment, wanted_bytes: int) -> Iterator[Piece]:
    """Split a segment into pieces of about ``wanted_bytes``."""
    cuts = list(_cuts(segment, wanted_bytes)) if segment.size >= 2 * wanted_bytes else []
    start, first_offset = 0, segment.base_offset
    for position, offset in cuts:
        yield Piece(segment, start, position, first_offset, offset, False)
        start, first_offset = position, offset
    yield Piece(segment, start, segment.size, first_offset, segment.next_offset, True)


def _cuts(segment: Segment, wanted_bytes: int) -> Iterator[tuple[int, int]]:
    """Starts of batches that are about ``wanted_bytes`` apart: position and base offset."""
    targets = range(wanted_bytes, segment.size - wanted_bytes // 2, wanted_bytes)
    try:
        descriptor = os.open(segment.path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        found = list(_by_index(segment, descriptor, targets)) or list(
            _by_lengths(segment, descriptor, targets)
        )
    finally:
        os.close(descriptor)
    before = (0, segment.base_offset)
    for position, offset in found:
        if position > before[0] and offset > before[1]:
            yield position, offset
            before = position, offset


def _by_index(segment: Segment, descriptor: int, targets: Iterable[int]) -> Iterator[tuple[int, int]]:
    try:
        entries = np.fromfile(segment.path.removesuffix(".log") + ".index", _INDEX_ENTRY)
    except (FileNotFoundError, ValueError):
        return
    positions = entries["position"].astype(np.int64)
    used = int(np.count_nonzero(positions))  # the index of an active segment ends in zeros
    for target in targets:
        at = int(np.searchsorted(positions[:used], target))
        if at == used:
            return
        position = int(positions[at])
        head = _header(descriptor, position)
        if head is not None and head["last_offset"] == segment.base_offset + int(entries["offset"][at]):
            yield position, int(head["base_offset"])


def _header(descriptor: int, position: int) -> np.void | None:
    data = os.pread(descriptor, heads.HEADER_BYTES, position)
    if len(data) < heads.HEADER_BYTES or data[16] != 2:
        return None
    found: np.void = heads.header_at(np.frombuffer(bytearray(data), np.uint8), 0)
    return found


def _by_lengths(segment: Segment, descriptor: int, targets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Follow the batches by their lengths, up to the first one that has no valid length."""
    wanted = iter(targets)
    target = next(wanted, None)
    start = 0
    while target is not None and start < segment.size:
        data = np.frombuffer(bytearray(os.pread(descriptor, _SCAN_BYTES, start)), np.uint8)
        found = heads.scan(data, 0, len(data), False)
        for head in found.heads[found.heads["position"] + start >= target]:
            if target is not None and head["position"] + start >= target and head["magic"] == 2:
                yield int(head["position"]) + start, int(head["base_offset"])
                target = next(wanted, None)
        if found.reason == heads.CUT:
            start += found.stop if found.stop else found.size
        elif found.reason in (heads.DONE, heads.SHORT) and found.stop:
            start += found.stop
        else:
            return
