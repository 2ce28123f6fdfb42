"""The last offset of each key, for one compaction pass."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

ENTRY_BYTES: Final = 160
"""Upper bound of the memory for one key: its bytes object, the offset's int, its share of a table that has just grown."""
PLAIN_KEY_BYTES_MAX: Final = 32
"""Largest size of a key that the map contains as it is. A longer key is replaced by its digest, which is one byte
longer than this, so that it never equals another key."""
SHARDS: Final = 256
"""Number of tables that the keys are spread over: growing or freeing a single large table would block all threads."""


def capacity(memory_bytes: int, load_factor: float) -> int:
    """Number of keys that ``log.cleaner.dedupe.buffer.size`` and ``log.cleaner.io.buffer.load.factor`` allow.

    Kafka counts 24 bytes for a key (`SkimpyOffsetMap`). Here a key needs more, so a pass covers a smaller part of the log,
    and the next pass continues after it.
    """
    return max(int(memory_bytes // ENTRY_BYTES * load_factor), 1)


class OffsetMap:
    """Maps each of at most ``capacity`` keys to the offset of its last record."""

    def __init__(self, capacity: int) -> None:
        self.latest_offset = -1
        """The map covers all offsets up to this one, inclusive; -1 while the map is empty."""
        self._left = capacity
        self._shards: list[dict[bytes, int]] = [{} for _ in range(SHARDS)]

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    @property
    def is_full(self) -> bool:
        return self._left <= 0

    def put(self, key: bytes, offset: int) -> None:
        """Set the last offset of ``key`` to ``offset``."""
        if len(key) > PLAIN_KEY_BYTES_MAX:
            key = _digest(key)
        shard = self._shards[hash(key) % SHARDS]
        if key not in shard:
            self._left -= 1
        shard[key] = offset
        self.latest_offset = offset

    def get(self, key: bytes) -> int:
        """Offset of the key's last record, -1 if the key is not in the map."""
        if len(key) > PLAIN_KEY_BYTES_MAX:
            key = _digest(key)
        return self._shards[hash(key) % SHARDS].get(key, -1)

    def clear(self, tick: Callable[[], object]) -> None:
        """Empty the map and free its memory. Calls ``tick`` after each of its hash tables."""
        for shard in self._shards:
            shard.clear()
            tick()


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=PLAIN_KEY_BYTES_MAX + 1).digest()
