"""Single records inside a batch of format 2 (Kafka's `DefaultRecord`).

Lengths, timestamps and offsets are zig-zag varints. Timestamps and offsets are relative to the batch.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum

from .core import mirrored
from .named_tuple import NamedTuple
from .varint import VARINT_BYTES_MAX, VARLONG_BYTES_MAX, read_zigzag, zigzag

Header = tuple[str, bytes | None]

NO_SEQUENCE = -1
SEQUENCE_MASK = 0x7FFF_FFFF


class Reason(StrEnum):
    """What is wrong with a batch."""

    SHORT = "short"  # the buffer ends before the batch does
    SIZE = "size"  # the length is too small for a header
    MAGIC = "magic"  # another record format
    COMPRESSION = "compression"
    RECORDS = "records"
    TOO_LARGE = "too large"  # a record is larger than max.decompressed.message.bytes
    LENGTH = "length"  # the length of a record is not a valid varint
    COUNT = "count"  # the records are valid, but their number differs from the header's


class CorruptBatch(ValueError):
    """Bytes that are not a batch of format 2."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Record(NamedTuple):
    """One record, with absolute offset, timestamp and sequence."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    sequence: int = NO_SEQUENCE


def decode_records(
    body: bytes,
    count: int,
    *,
    base_offset: int = 0,
    base_timestamp: int = 0,
    base_sequence: int = NO_SEQUENCE,
    log_append_time_ms: int | None = None,
) -> Iterator[Record]:
    """Decode `count` uncompressed records that fill `body` exactly. Raises `CorruptBatch` otherwise."""
    if count < 0:
        raise CorruptBatch(Reason.RECORDS, f"a batch cannot hold {count} records")
    position = 0
    for _ in range(count):
        if position == len(body):
            raise CorruptBatch(Reason.COUNT, f"there are fewer records than the {count} in the batch header")
        try:
            offset_delta, timestamp_delta, key, value, headers, position = _decode_record(body, position)
        except IndexError:
            raise CorruptBatch(Reason.RECORDS, "a record reaches past the end of its batch") from None
        except ValueError as error:
            raise CorruptBatch(Reason.RECORDS, str(error)) from None
        yield Record(
            base_offset + offset_delta,
            base_timestamp + timestamp_delta if log_append_time_ms is None else log_append_time_ms,
            key,
            value,
            headers,
            NO_SEQUENCE if base_sequence < 0 else (base_sequence + offset_delta) & SEQUENCE_MASK,
        )
    if position != len(body):
        raise CorruptBatch(Reason.COUNT, f"{len(body) - position} bytes follow the last of {count} records")


def decode_only_record(buffer: bytes, position: int, end: int) -> tuple[bytes | None, bytes | None]:
    """Key and value of the only record of an uncompressed batch.

    Raises ``CorruptBatch`` unless the record fills exactly the bytes from `position` to `end`.
    """
    try:
        found = _decode_short_record(buffer, position, end)
        if found is not None:
            return found
        _, _, key, value, _, after = _decode_record(buffer, position)
    except IndexError:
        raise CorruptBatch(Reason.RECORDS, "a record reaches past the end of its batch") from None
    except ValueError as error:
        raise CorruptBatch(Reason.RECORDS, str(error)) from None
    if after != end:
        raise CorruptBatch(
            Reason.COUNT, f"the only record of a batch ends {end - after} bytes before the end of the batch"
        )
    return key, value


def _decode_short_record(buffer: bytes, position: int, end: int) -> tuple[bytes, bytes] | None:
    """Return (key, value) of a typical coordinator record; None for any other record.

    The record has deltas of 0, no headers, a key shorter than 64 bytes and a value shorter than 8 KiB, neither
    null.
    """
    # Every other varint must have one byte. The record's length is skipped, because `end` gives it, too.
    position += 1 if buffer[position] < 0x80 else 2
    if buffer[position + 1] or buffer[position + 2]:
        return None
    key_length, start = buffer[position + 3], position + 4
    if key_length & 0x81:
        return None
    stop = start + (key_length >> 1)
    low, value_start = buffer[stop], stop + 1
    if low >= 0x80:
        high, value_start = buffer[stop + 1], stop + 2
        if high >= 0x80:
            return None
        low = low & 0x7F | high << 7
    value_stop = value_start + (low >> 1)
    if low & 1 or value_stop + 1 != end or buffer[value_stop]:
        return None
    return buffer[start:stop], buffer[value_start:value_stop]


def _decode_record(
    body: bytes, position: int
) -> tuple[int, int, bytes | None, bytes | None, tuple[Header, ...], int]:
    """(offset delta, timestamp delta, key, value, headers, position after the record)"""
    length, position = _read_length(body, position)
    end = position + length
    if length < 0 or end > len(body):
        raise ValueError(f"a record of {length} bytes does not fit into its batch")
    position += 1  # the attributes of a record are unused
    timestamp_delta, position = read_zigzag(body, position, VARLONG_BYTES_MAX)
    offset_delta, position = _read_length(body, position)
    key, position = _read_nullable(body, position, end)
    value, position = _read_nullable(body, position, end)
    if body[position]:
        headers, position = _read_headers(body, position, end)
    else:
        headers = ()
        position += 1
    if position != end:
        raise ValueError(f"a record does not end after the {length} bytes of its length field")
    return offset_delta, timestamp_delta, key, value, headers, position


def _read_length(body: bytes, position: int) -> tuple[int, int]:
    """Read a varint that nearly always has one or two bytes."""
    low = body[position]
    if low < 0x80:
        return (low >> 1) ^ -(low & 1), position + 1
    high = body[position + 1]
    if high < 0x80:
        folded = low & 0x7F | high << 7
        return (folded >> 1) ^ -(folded & 1), position + 2
    return read_zigzag(body, position, VARINT_BYTES_MAX)


def _read_nullable(body: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = _read_length(body, position)
    if length < 0:
        return None, position
    stop = position + length
    if stop > end:
        raise ValueError(f"a field of {length} bytes does not fit into its record")
    return body[position:stop], stop


def _read_headers(body: bytes, position: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, position = _read_length(body, position)
    if count < 0 or count > end - position:
        raise ValueError(f"a record cannot have {count} headers")
    headers = []
    for _ in range(count):
        key, position = _read_nullable(body, position, end)
        if key is None:
            raise ValueError("a header has no key")
        value, position = _read_nullable(body, position, end)
        headers.append((key.decode(errors="surrogateescape"), value))
    return tuple(headers), position


@mirrored("encode_record")
def encode_record(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[Header] = (),
) -> bytes:
    """Encode a record, preceded by its length."""
    parts = [b"\0", zigzag(timestamp_delta), zigzag(offset_delta)]
    if key is None:
        parts.append(b"\1")
    else:
        parts += (zigzag(len(key)), key)
    if value is None:
        parts.append(b"\1")
    else:
        parts += (zigzag(len(value)), value)
    if headers:
        _encode_headers(tuple(headers), parts)
    else:
        parts.append(b"\0")
    body = b"".join(parts)
    return zigzag(len(body)) + body


def _encode_headers(headers: tuple[Header, ...], parts: list[bytes]) -> None:
    parts.append(zigzag(len(headers)))
    for name, value in headers:
        key = name.encode(errors="surrogateescape")
        parts += (zigzag(len(key)), key)
        parts += (zigzag(-1),) if value is None else (zigzag(len(value)), value)
