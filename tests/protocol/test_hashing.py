"""Java's hash functions, compared with values of the specification and of Java itself."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.core import TWINS
from protocol.hashing import java_string_hash, murmur2, partition_for, partition_of_key

CASES = json.loads((Path(__file__).parent / "data" / "hashes.json").read_text())


@pytest.mark.parametrize(
    ("key", "partition"),
    [("tx-a", 18), ("v1", 7), ("v2", 8), ("ash-2", 41), ("polygenelubricants", 0), ("", 0)],
)
def test_a_coordinator_partition(key: str, partition: int) -> None:
    assert partition_for(key, 50) == partition


def test_the_smallest_int_has_no_absolute_value_in_java() -> None:
    assert java_string_hash("polygenelubricants") == -(2**31)
    assert partition_for("polygenelubricants", 7) == 0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["text"][:12])
def test_hashes_are_javas(case: dict[str, object]) -> None:
    text = str(case["text"])
    assert java_string_hash(text) == case["string"]
    assert murmur2(text.encode()) == int(str(case["murmur2"])) & 0xFFFF_FFFF


@given(st.text(st.characters()), st.integers(1, 2**31 - 1))
def test_the_core_says_what_its_twin_says(text: str, partitions: int) -> None:
    assert partition_for(text, partitions) == TWINS["partition_for"](text, partitions)


@given(st.text(), st.integers(1, 1000))
def test_every_text_has_a_partition(text: str, partitions: int) -> None:
    assert 0 <= partition_for(text, partitions) < partitions
    assert 0 <= partition_of_key(text.encode(), partitions) < partitions


@given(st.text())
def test_the_hash_goes_over_utf_16_units(text: str) -> None:
    encoded = text.encode("utf-16-be")
    units = [int.from_bytes(encoded[i : i + 2], "big") for i in range(0, len(encoded), 2)]
    total = sum(unit * 31 ** (len(units) - 1 - index) for index, unit in enumerate(units))
    assert java_string_hash(text) == (total + 2**31) % 2**32 - 2**31
