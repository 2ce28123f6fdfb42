"""A 64-bit digest of a set of rows, independent of their order and partitioning, in compiled code.

The digest is the sum of a hash per row, modulo 2^64, so a row that occurs twice counts twice. The hash covers topic,
explicit partition, key, value and headers; nulls differ from empty values. It is not a cryptographic hash: it finds errors,
not forgeries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from odradek.spark.records.columns import (
    Column,
    int_column,
    one_piece,
    row_columns,
)
from odradek.spark.records.compiled import compiled, inlined

# The constants of splitmix64's finalizer (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)

Hashes = np.ndarray[Any, np.dtype[np.uint64]]


@inlined
def _mixed(h: Any, value: Any) -> Any:  # pragma: no cover - compiled
    h = (h ^ value) * _M1
    return (h ^ (h >> np.uint64(29))) + _GAMMA


@inlined
def _mixed_bytes(h: Any, data: Any, start: int, length: int) -> Any:  # pragma: no cover - compiled
    """Mix the length of a value and then its bytes into the hash ``h``, so that "ab", "c" differs from "a", "bc"."""
    h = _mixed(h, np.uint64(length))
    position = start
    for _ in range(length >> 3):
        word = np.uint64(data[position])
        for index in range(1, 8):
            word |= np.uint64(data[position + index]) << np.uint64(8 * index)
        h = _mixed(h, word)
        position += 8
    left = max(length, 0) & 7
    if left:
        word = np.uint64(0)
        for index in range(left):
            word |= np.uint64(data[position + index]) << np.uint64(8 * index)
        h = _mixed(h, word)
    return h


@compiled
def _digest(  # pragma: no cover - compiled
    key_data: Any, key_starts: Any, key_lengths: Any,
    value_data: Any, value_starts: Any, value_lengths: Any,
    header_starts: Any, header_counts: Any,
    hkey_data: Any, hkey_starts: Any, hkey_lengths: Any,
    hvalue_data: Any, hvalue_starts: Any, hvalue_lengths: Any,
    topics: Any, partitions: Any,
) -> Any:  # fmt: skip
    total = np.uint64(0)
    for row in range(len(partitions)):
        h = _mixed(topics[row], np.uint64(partitions[row]))
        h = _mixed_bytes(h, key_data, key_starts[row], key_lengths[row])
        h = _mixed_bytes(h, value_data, value_starts[row], value_lengths[row])
        h = _mixed(h, np.uint64(header_counts[row]))
        for header in range(header_starts[row], header_starts[row] + header_counts[row]):
            h = _mixed_bytes(h, hkey_data, hkey_starts[header], hkey_lengths[header])
            h = _mixed_bytes(h, hvalue_data, hvalue_starts[header], hvalue_lengths[header])
        h = (h ^ (h >> np.uint64(30))) * _M1
        h = (h ^ (h >> np.uint64(27))) * _M2
        total += h ^ (h >> np.uint64(31))
    return total


@compiled
def _hash(data: Any) -> Any:  # pragma: no cover - compiled
    return _mixed_bytes(_GAMMA, data, 0, len(data))


def name_hash(name: str) -> np.uint64:
    """The hash of a topic's name."""
    return np.uint64(_hash(np.frombuffer(name.encode() or b"\0", np.uint8)))


def digest_columns(
    values: Column,
    *,
    topic: str | None = None,
    keys: Column | None = None,
    headers: Column | None = None,
    topics: Column | None = None,
    partitions: Column | None = None,
) -> int:
    """The digest of rows, below 2^64. The columns are those of `wire.TransactionalWriter.write`."""
    rows = len(values)
    key, value, header = row_columns(values, keys, headers)
    return int(
        _digest(
            *key, *value, header.starts, header.counts, *header.keys, *header.values,
            _topic_hashes(topic, topics, rows), int_column(partitions, rows, -1),
        )
    )  # fmt: skip


def _topic_hashes(topic: str | None, topics: Column | None, rows: int) -> Hashes:
    if topics is None:
        return np.full(rows, name_hash(topic or ""), np.uint64)
    encoded = one_piece(topics).fill_null(topic or "")
    if not pa.types.is_dictionary(encoded.type):
        encoded = encoded.dictionary_encode()
    hashes: Hashes = np.array([name_hash(each) for each in encoded.dictionary.to_pylist()], np.uint64)
    taken: Hashes = hashes[encoded.indices.to_numpy()]
    return taken
