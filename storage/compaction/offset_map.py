"""Where each key was last written: the memory of one compaction pass."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

ENTRY_BYTES: Final = 160
"""What one key costs here at most: its bytes object, the offset's int, its share of a table that has just grown."""
PLAIN_KEY_BYTES_MAX: Final = 32
"""Longer keys are remembered by a digest, one byte longer than any plain key, so that the two are never confused."""
SHARDS: Final = 256
"""Many small tables: one large one would stop every thread for as long as it takes to grow or to free it."""


def capacity(memory_bytes: int, load_factor: float) -> int:
    """How many keys ``log.cleaner.dedupe.buffer.size`` and ``log.cleaner.io.buffer.load.factor`` allow.

    Kafka counts 24 bytes for a key (`SkimpyOffsetMap`); a pass gets less far here, and goes on in the next.
    """
    return max(int(memory_bytes // ENTRY_BYTES * load_factor), 1)


class OffsetMap:
    """Key -> offset of its last record, of at most ``capacity`` keys."""

    def __init__(self, capacity: int) -> None:
        self.latest_offset = -1
        """The map covers all offsets up to this one, inclusive; -1 while it is empty."""
        self._left = capacity
        self._shards: list[dict[bytes, int]] = [{} for _ in range(SHARDS)]

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    @property
    def is_full(self) -> bool:
        return self._left <= 0

    def put(self, key: bytes, offset: int) -> None:
        """The record at ``offset`` is the last one of ``key`` so far."""
        if len(key) > PLAIN_KEY_BYTES_MAX:
            key = _digest(key)
        shard = self._shards[hash(key) % SHARDS]
        if key not in shard:
            self._left -= 1
        shard[key] = offset
        self.latest_offset = offset

    def get(self, key: bytes) -> int:
        """The offset of the key's last record, -1 if the map has none."""
        if len(key) > PLAIN_KEY_BYTES_MAX:
            key = _digest(key)
        return self._shards[hash(key) % SHARDS].get(key, -1)

    def clear(self, tick: Callable[[], object]) -> None:
        """Free the memory, piece by piece."""
        for shard in self._shards:
            shard.clear()
            tick()


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=PLAIN_KEY_BYTES_MAX + 1).digest()
