"""Variable-length integers: 7 bits per byte, low group first, the top bit set if more bytes follow.

Unsigned varints are the lengths and tags of flexible messages, zig-zag varints the fields of a record. Readers return
`(value, next position)`. They raise `IndexError` beyond the end and `ValueError` for a number that is too long; callers
replace both by the error of the format that they read.
"""

VARINT_BYTES_MAX = 5
VARLONG_BYTES_MAX = 10

_TABLE_SIZE = 1024


def _unsigned(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# Lengths and deltas are nearly always small, and a table lookup costs a tenth of the loop.
_SMALL = tuple(_unsigned(value) for value in range(_TABLE_SIZE))


def unsigned_varint(value: int) -> bytes:
    """Encode a non-negative number."""
    if 0 <= value < _TABLE_SIZE:
        return _SMALL[value]
    if value < 0:
        raise ValueError(f"an unsigned varint cannot hold {value}")
    return _unsigned(value)


def zigzag(value: int) -> bytes:
    """Encode a signed number: 0, -1, 1, -2, … are stored as 0, 1, 2, 3, …"""
    folded = value << 1 if value >= 0 else ~(value << 1)
    return _SMALL[folded] if folded < _TABLE_SIZE else _unsigned(folded)


def read_unsigned_varint(
    buffer: bytes | bytearray | memoryview, position: int, bytes_max: int = VARINT_BYTES_MAX
) -> tuple[int, int]:
    """Decode an unsigned number; returns (number, position after it)."""
    byte = buffer[position]
    position += 1
    if byte < 0x80:
        return byte, position
    value = byte & 0x7F
    last_shift = 7 * (bytes_max - 1)
    shift = 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        if shift == last_shift:
            raise ValueError(f"a variable-length integer is longer than {bytes_max} bytes")
        shift += 7


def read_zigzag(
    buffer: bytes | bytearray | memoryview, position: int, bytes_max: int = VARINT_BYTES_MAX
) -> tuple[int, int]:
    """Decode a signed number; returns (number, position after it)."""
    folded, position = read_unsigned_varint(buffer, position, bytes_max)
    return (folded >> 1) ^ -(folded & 1), position
