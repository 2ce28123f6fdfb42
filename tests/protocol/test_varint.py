"""Variable-length integers: encoded to the fewest bytes, and decoded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.varint import VARLONG_BYTES_MAX, read_unsigned_varint, read_zigzag, unsigned_varint, zigzag


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (127, "7f"), (128, "8001"), (1023, "ff07"), (1024, "8008"), (2**32 - 1, "ffffffff0f")],
)
def test_unsigned_numbers(value: int, encoded: str) -> None:
    assert unsigned_varint(value).hex() == encoded


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001"), (-512, "ff07"), (-(2**31), "ffffffff0f")],
)
def test_signed_numbers_are_folded(value: int, encoded: str) -> None:
    assert zigzag(value).hex() == encoded


@given(st.integers(0, 2**32 - 1), st.binary(max_size=3))
def test_unsigned_numbers_come_back(value: int, rest: bytes) -> None:
    encoded = unsigned_varint(value)
    assert read_unsigned_varint(encoded + rest, 0) == (value, len(encoded))


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3))
def test_signed_numbers_come_back(value: int, rest: bytes) -> None:
    encoded = zigzag(value)
    assert read_zigzag(encoded + rest, 0, VARLONG_BYTES_MAX) == (value, len(encoded))


def test_a_negative_length_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot hold -1"):
        unsigned_varint(-1)


def test_a_number_without_end_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than 5 bytes"):
        read_unsigned_varint(b"\xff" * 9, 0)
    with pytest.raises(IndexError):
        read_unsigned_varint(b"\xff\xff", 0)
