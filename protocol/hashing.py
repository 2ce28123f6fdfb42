"""The hashes that select partitions.

Coordinators map a group or a transactional id to `abs(String.hashCode) mod partitions`; producers map a key by murmur2. Both
hashes must be equal to Java's, or a client looks for its state or records in the wrong partition.
"""

from collections.abc import Iterable
from functools import lru_cache
from struct import unpack
from typing import Final

from .core import mirrored

_INT32_MIN = -(2**31)
_UINT32 = 0xFFFF_FFFF
_POSITIVE = 0x7FFF_FFFF


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode()`: over UTF-16 code units, in signed 32 bits."""
    encoded = text.encode("utf-16-be", errors="surrogatepass")
    value = 0
    for unit in unpack(f">{len(encoded) // 2}H", encoded):
        value = (31 * value + unit) & _UINT32
    return value - 2**32 if value >> 31 else value


IDS_REMEMBERED: Final = 16_384
"""Number of recently used ids whose partition is cached. A client sends the same id in each of its requests."""


@mirrored("partition_for")
@lru_cache(IDS_REMEMBERED)
def partition_for(key: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` or `__transaction_state` for an id (with Kafka's `Utils.abs`)."""
    value = java_string_hash(key)
    return 0 if value == _INT32_MIN else abs(value) % partitions


_MURMUR_SEED = 0x9747B28C
_MURMUR_M = 0x5BD1E995
_MURMUR_R = 24


def murmur2(data: bytes) -> int:
    """Kafka's murmur2, in unsigned 32 bits (`Utils.murmur2`)."""
    length = len(data)
    value = _MURMUR_SEED ^ length
    whole = length & ~3
    for k in unpack(f"<{whole // 4}I", data[:whole]):
        k = k * _MURMUR_M & _UINT32
        k ^= k >> _MURMUR_R
        value = value * _MURMUR_M & _UINT32 ^ k * _MURMUR_M & _UINT32
    if length != whole:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MURMUR_M & _UINT32
    value = (value ^ value >> 13) * _MURMUR_M & _UINT32
    return value ^ value >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition that a producer's default partitioner selects for a key."""
    return (murmur2(key) & _POSITIVE) % partitions


def hash_map_order(keys: Iterable[str]) -> list[str]:
    """The keys in the iteration order of a ``java.util.HashMap`` that has grown from its default size."""
    names = list(keys)
    buckets = 16
    while len(names) > buckets * 3 // 4:
        buckets *= 2

    def bucket(name: str) -> int:
        spread = java_string_hash(name) & _UINT32
        return (spread ^ (spread >> 16)) & (buckets - 1)

    return sorted(names, key=bucket)
