"""Parser for the headers of record batches, with only `struct` and the message format of KIP-98.

Tests compare this parser with `protocol.batch`, which wrote the bytes, so the parser shares no code with
`protocol.batch`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
CHECKED_AT: Final = 21  # offset of the first byte that the CRC covers: the attributes
OFFSET_AND_LENGTH_BYTES: Final = 12  # batch_length counts the bytes after these
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20


class Batch(NamedTuple):
    """One batch of a `.log` file or of a Fetch response, and the batch's byte position in this file or response."""

    position: int
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    records: bytes
    """The bytes of the records; compressed if `codec` is not "none"."""

    @property
    def size(self) -> int:
        return self.length + OFFSET_AND_LENGTH_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def codec(self) -> str:
        return CODECS[self.attributes & 7]

    @property
    def marker(self) -> str:
        """COMMIT or ABORT, for a control batch. The type is in the key, after length, attributes, deltas and key length."""
        assert self.is_control
        return ("ABORT", "COMMIT")[struct.unpack_from(">h", self.records, 7)[0]]


def whole_batches(content: bytes) -> Iterator[Batch]:
    """Yield the batches before the first truncated batch or zeros.

    The truncated batch or the zeros begin at `position + size` of the last batch that is yielded.
    """
    position = 0
    while position + HEADER.size <= len(content):
        fields = HEADER.unpack_from(content, position)
        end = position + fields[1] + OFFSET_AND_LENGTH_BYTES
        if end < position + HEADER.size or end > len(content):
            return
        yield Batch._make((position, *fields, content[position + HEADER.size : end]))
        position = end


def stored(content: bytes) -> Iterator[Batch]:
    """Yield the batches of a whole `.log` file. Fails if the file contains anything else."""
    position = 0
    for batch in whole_batches(content):
        assert batch.magic == 2
        position += batch.size
        yield batch
    assert position == len(content)
