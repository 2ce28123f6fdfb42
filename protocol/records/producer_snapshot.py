"""The producer snapshot file (`.snapshot`) of a partition: the producer state at an offset.

`int16 version = 1, uint32 CRC-32C of the rest, int32 count`, then 46 bytes per producer (Kafka's `ProducerSnapshot.json`).
It contains only the last batch of each producer.
"""

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError

from google_crc32c import value as crc32c

from protocol.named_tuple import NamedTuple

VERSION = 1

_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")


class MalformedSnapshot(ValueError):
    """The snapshot file cannot be used: the caller must delete it and use the previous snapshot."""


class ProducerSnapshotEntry(NamedTuple):
    """State of one producer. A field is -1 if there is no batch, no marker or no open transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    # Last minus first sequence of the last batch.
    offset_delta: int
    timestamp: int
    coordinator_epoch: int = -1
    current_txn_first_offset: int = -1


def encode(entries: Iterable[ProducerSnapshotEntry]) -> bytes:
    packed = [_ENTRY.pack(*entry) for entry in entries]
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _HEAD.pack(VERSION, crc32c(body)) + body


def decode(data: bytes) -> list[ProducerSnapshotEntry]:
    """Decode the entries of a whole snapshot file."""
    try:
        version, crc = _HEAD.unpack_from(data)
        (count,) = _COUNT.unpack_from(data, _HEAD.size)
    except StructError:
        raise MalformedSnapshot(f"a file of {len(data)} bytes is too short for a producer snapshot") from None
    if version != VERSION:
        raise MalformedSnapshot(f"unknown version {version}; only version {VERSION} can be read")
    if crc32c(data[_HEAD.size :]) != crc:
        raise MalformedSnapshot("the checksum does not match")
    entries = data[_HEAD.size + _COUNT.size :]
    if len(entries) != count * _ENTRY.size:
        raise MalformedSnapshot(
            f"{count} entries do not fit exactly into the {len(entries)} bytes after the header"
        )
    return [ProducerSnapshotEntry._make(entry) for entry in _ENTRY.iter_unpack(entries)]
