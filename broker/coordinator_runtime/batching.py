"""Splits the records of one decision into batches that the coordinator's topic accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from protocol.batch import HEADER_BYTES

RECORD_OVERHEAD_BYTES: Final = 32
"""Maximum size of a record without headers, in addition to its key and value: the lengths and deltas."""

R = TypeVar("R")


def split(
    records: Sequence[R], size_bytes: Callable[[R], int], max_message_bytes: int
) -> Iterator[Sequence[R]]:
    """Yield batches of at most ``max_message_bytes``, or of one record. ``size_bytes`` is the size of key and value."""
    if len(records) == 1:
        yield records  # whatever its size
        return
    room = left = max_message_bytes - HEADER_BYTES
    batch: list[R] = []
    for record in records:
        size = size_bytes(record) + RECORD_OVERHEAD_BYTES
        if batch and size > left:
            yield batch
            batch, left = [], room
        batch.append(record)
        left -= size
    if batch:
        yield batch
