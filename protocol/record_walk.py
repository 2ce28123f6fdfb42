"""Walks over the records of a batch without creating objects, and stops after each slice.

``LogValidator`` needs the structure of records, the presence of keys, timestamps and offset deltas, but not the contents. A
walk takes 0.6 µs per record, and a kilobyte of zstd can contain a million: the caller decides what happens between two
slices.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final

from .core import compiled, mirrored
from .named_tuple import NamedTuple
from .record import CorruptBatch, Reason
from .varint import VARINT_BYTES_MAX, VARLONG_BYTES_MAX, zigzag

RECORD_BYTES_MIN: Final = 7
"""Smallest size of a record: length, attributes, timestamp and offset delta, two null or empty fields, no headers."""
RECORDS_PER_SLICE: Final = 500
"""Number of records and headers in a slice. A slice takes half a millisecond."""
WALKED_PER_SLICE: Final = RECORDS_PER_SLICE if compiled is None else 5_000
"""Number of records and headers in a slice of `walk`. With the compiled core, a slice takes 0.1 ms."""

Buffer = bytes | memoryview
Suspect = Callable[[int, int, bool], object]


class Walked(NamedTuple):
    """The result of a walk over the records of a batch, all of which are valid."""

    max_timestamp_delta: int
    offsets_in_a_row: bool
    """Whether the offset deltas are 0, 1, 2, …"""


if compiled is not None:
    compiled.set_up_walk(
        corrupt_batch=CorruptBatch,
        records=Reason.RECORDS,
        length=Reason.LENGTH,
        count=Reason.COUNT,
        walked=Walked,
        slice_records=WALKED_PER_SLICE,
    )


def check_count(count: int, plain_bytes: int) -> None:
    """Raise `CorruptBatch` if ``count`` records need more than ``plain_bytes`` bytes."""
    if count * RECORD_BYTES_MIN > plain_bytes:
        raise CorruptBatch(Reason.COUNT, f"{plain_bytes} bytes cannot hold {count} records")


@mirrored("walk")
def walk(
    body: Buffer,
    count: int,
    *,
    earliest_delta: int,
    latest_delta: int,
    wants_keys: bool,
    suspect: Suspect,
    slice_records: int = WALKED_PER_SLICE,
) -> Generator[None, None, Walked]:
    """Walk over ``count`` uncompressed records that fill ``body`` exactly. Raises `CorruptBatch` otherwise.

    ``suspect(index, timestamp_delta, has_key)`` is called for records with a timestamp out of bounds, and, with
    ``wants_keys``, for records without a key.
    """
    check_count(count, len(body))
    try:
        return (
            yield from _walk(body, count, earliest_delta, latest_delta, wants_keys, suspect, slice_records)
        )
    except IndexError:
        raise CorruptBatch(Reason.RECORDS, "a record reaches past the end of its batch") from None


def _walk(  # noqa: C901 - straight-line, because a call costs as much as a record
    body: Buffer,
    count: int,
    earliest_delta: int,
    latest_delta: int,
    wants_keys: bool,
    suspect: Suspect,
    slice_records: int,
) -> Generator[None, None, Walked]:
    size, position, in_a_row, left = len(body), 0, True, slice_records
    latest = -(1 << 64)
    for index in range(count):
        if position == size:
            raise CorruptBatch(Reason.COUNT, f"there are fewer records than the {count} in the batch header")
        length = body[position]
        position += 1
        if length > 127:
            length, position = _length_rest(body, position, length)
        end = position + (length >> 1)
        position += 1  # skip the attributes of a record, which are unused
        delta = body[position]
        position += 1
        if delta > 127:
            delta, position = _rest(body, position, delta, VARLONG_BYTES_MAX)
        delta = (delta >> 1) ^ -(delta & 1)
        if delta > latest:
            latest = delta
        offset = body[position]
        position += 1
        if offset > 127:
            offset, position = _rest(body, position, offset, VARINT_BYTES_MAX)
        if offset != index << 1:
            in_a_row = False
        key = body[position]
        position += 1
        if key > 127:
            key, position = _rest(body, position, key, VARINT_BYTES_MAX)
        if not key & 1:
            position += key >> 1
            if not earliest_delta <= delta <= latest_delta:
                suspect(index, delta, True)
        elif wants_keys or not earliest_delta <= delta <= latest_delta:
            suspect(index, delta, False)
        value = body[position]
        position += 1
        if value > 127:
            value, position = _rest(body, position, value, VARINT_BYTES_MAX)
        if not value & 1:
            position += value >> 1
        headers = body[position]
        position += 1
        if headers:
            position, left = yield from _walk_headers(body, position - 1, end, left, slice_records)
        if position != end or length & 1:
            raise CorruptBatch(Reason.RECORDS, f"record {index} does not end where its length field says")
        left -= 1
        if left <= 0:
            left = slice_records
            yield
    if position != size:
        raise CorruptBatch(Reason.COUNT, f"{size - position} bytes follow the last of {count} records")
    return Walked(latest, in_a_row)


def _walk_headers(
    body: Buffer, position: int, end: int, left: int, slice_records: int
) -> Generator[None, None, tuple[int, int]]:
    """Walk over the headers of one record. Returns (position after the headers, number of records and headers left in the
    slice).
    """
    count, position = _varint(body, position)
    if count < 0 or count > end - position:
        raise CorruptBatch(Reason.RECORDS, f"a record cannot have {count} headers")
    for _ in range(count):
        size, position = _varint(body, position)
        if size < 0:
            raise CorruptBatch(Reason.RECORDS, "a header has no key")
        position += size
        size, position = _varint(body, position)
        if size > 0:
            position += size
        left -= 1
        if left <= 0:
            left = slice_records
            yield
    return position, left


def first_since(
    body: Buffer,
    count: int,
    timestamp_delta: int,
    offset_delta: int,
    slice_records: int = RECORDS_PER_SLICE,
    bytes_max: int = 1 << 31,
) -> Generator[None, None, tuple[int, int] | None]:
    """(offset delta, timestamp delta) of the first record at or above both deltas; None if there is none.

    Of each record, only the part before its key is read. Raises ``CorruptBatch`` if this part is malformed, or if a
    record up to the one that is found is larger than ``bytes_max``, without its length field.
    """
    size, position, left = len(body), 0, slice_records
    try:
        for _ in range(count):
            if position == size:
                raise CorruptBatch(
                    Reason.COUNT, f"there are fewer records than the {count} in the batch header"
                )
            length, position = _varint(body, position)
            if length < 1:
                raise CorruptBatch(Reason.RECORDS, f"a record has the invalid length {length}")
            if length > bytes_max:
                raise CorruptBatch(Reason.TOO_LARGE, f"a record has {length} bytes, more than {bytes_max}")
            end = position + length
            timestamp = body[position + 1]
            position += 2
            if timestamp > 127:
                timestamp, position = _rest(body, position, timestamp, VARLONG_BYTES_MAX)
            timestamp = (timestamp >> 1) ^ -(timestamp & 1)
            offset, position = _varint(body, position)
            if timestamp >= timestamp_delta and offset >= offset_delta:
                return offset, timestamp
            position = end
            left -= 1
            if left <= 0:
                left = slice_records
                yield
    except IndexError:
        raise CorruptBatch(Reason.RECORDS, "a record reaches past the end of its batch") from None
    return None


def check_sizes(
    body: Buffer, count: int, bytes_max: int, slice_records: int = RECORDS_PER_SLICE
) -> Generator[None, None, None]:
    """Raise `CorruptBatch` if one of ``count`` records is larger than ``bytes_max``, without its length field.

    Only the length fields are read: `walk` and `first_since` check everything else.
    """
    position = 0
    try:
        for index in range(count):
            length, position = _varint(body, position)
            if length < 0:
                raise CorruptBatch(Reason.RECORDS, f"record {index} has the invalid length {length}")
            if length > bytes_max:
                raise CorruptBatch(
                    Reason.TOO_LARGE, f"record {index} has {length} bytes, which are more than {bytes_max}"
                )
            position += length
            if index % slice_records == slice_records - 1:
                yield
    except IndexError:
        raise CorruptBatch(Reason.RECORDS, "a record reaches past the end of its batch") from None


def renumbered(
    body: Buffer, count: int, slice_records: int = RECORDS_PER_SLICE
) -> Generator[None, None, memoryview]:
    """A copy of the records with the offset deltas 0, 1, 2, …; ``body`` must have been validated by `walk`."""
    out = bytearray()
    position, left = 0, slice_records
    for index in range(count):
        length, position = _varint(body, position)
        end = position + length
        offset_at = _after_varint(body, position + 1)
        times = body[position + 1 : offset_at]
        rest = _after_varint(body, offset_at)
        delta = zigzag(index)
        out += zigzag(1 + len(times) + len(delta) + end - rest)
        out += b"\0"
        out += times
        out += delta
        out += body[rest:end]
        position = end
        left -= 1
        if left <= 0:
            left = slice_records
            yield
    return memoryview(out)


def _after_varint(body: Buffer, position: int) -> int:
    while body[position] > 127:
        position += 1
    return position + 1


def _rest(body: Buffer, position: int, value: int, bytes_max: int) -> tuple[int, int]:
    """(number, position after it) of a varint. ``value`` is its first byte, which has been read. The number is still zig-zag
    encoded.
    """
    byte = body[position]
    position += 1
    value = value & 127 | (byte & 127) << 7
    if byte < 128:
        return value, position
    for shift in range(14, 7 * bytes_max, 7):
        byte = body[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise CorruptBatch(Reason.RECORDS, f"a variable-length integer is longer than {bytes_max} bytes")


def _length_rest(body: Buffer, position: int, value: int) -> tuple[int, int]:
    try:
        return _rest(body, position, value, VARINT_BYTES_MAX)
    except CorruptBatch as error:
        raise CorruptBatch(Reason.LENGTH, str(error)) from None


def _varint(body: Buffer, position: int) -> tuple[int, int]:
    folded = body[position]
    position += 1
    if folded > 127:
        folded, position = _rest(body, position, folded, VARINT_BYTES_MAX)
    return (folded >> 1) ^ -(folded & 1), position
