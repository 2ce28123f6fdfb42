"""The partition of a key, as Kafka's Java producer chooses it (BuiltInPartitioner.java, Utils.murmur2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from odradek.spark.records.columns import Bytes
from odradek.spark.records.compiled import compiled

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_POSITIVE = np.uint32(0x7FFFFFFF)


@compiled
def _murmur2(data: Any, start: int, length: int) -> Any:  # pragma: no cover - compiled
    h = _SEED ^ np.uint32(length)
    position = start
    for _ in range(length >> 2):
        k = np.uint32(data[position])
        k |= np.uint32(data[position + 1]) << np.uint32(8)
        k |= np.uint32(data[position + 2]) << np.uint32(16)
        k |= np.uint32(data[position + 3]) << np.uint32(24)
        k = np.uint32(k * _M)
        k ^= k >> np.uint32(24)
        k = np.uint32(k * _M)
        h = np.uint32(h * _M) ^ k
        position += 4
    left = length & 3
    if left == 3:
        h ^= np.uint32(data[position + 2]) << np.uint32(16)
    if left >= 2:
        h ^= np.uint32(data[position + 1]) << np.uint32(8)
    if left >= 1:
        h ^= np.uint32(data[position])
        h = np.uint32(h * _M)
    h ^= h >> np.uint32(13)
    h = np.uint32(h * _M)
    h ^= h >> np.uint32(15)
    return h


@compiled
def _assign(
    data: Any, starts: Any, lengths: Any, counts: Any, out: Any
) -> None:  # pragma: no cover - compiled
    for row in range(len(out)):
        if out[row] < 0 and lengths[row] >= 0:
            h = _murmur2(data, starts[row], lengths[row])
            out[row] = np.int64(h & _POSITIVE) % counts[row]


def murmur2(key: bytes) -> int:
    """Kafka's hash of one key, unsigned."""
    data = np.frombuffer(key, np.uint8) if key else np.frombuffer(b"\0", np.uint8)
    return int(_murmur2(data, 0, len(key)))


def partition_by_key(
    keys: Bytes,
    partition_counts: np.ndarray[Any, np.dtype[np.int64]],
    partitions: np.ndarray[Any, np.dtype[np.int64]],
) -> None:
    """Replace, in place, each negative element of ``partitions`` whose row has a key.

    ``partition_counts`` is the number of partitions of each row's topic. Rows without a key stay negative."""
    _assign(*keys, partition_counts, partitions)


def partition_sticky(
    sizes_bytes: np.ndarray[Any, np.dtype[np.int64]], partition_count: int, batch_size_bytes: int, first: int
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], int]:
    """Partitions for rows without a key: rows go to one partition until a batch is full, then to the next (KIP-480).

    ``first`` is the number of bytes that earlier calls have assigned; the number of whole batches in it determines the
    partition. The second result is ``first`` for the next call.
    """
    ends = np.cumsum(sizes_bytes) + first
    turns = (ends - sizes_bytes) // batch_size_bytes
    return turns % partition_count, int(ends[-1]) if len(ends) else first
