"""The digest of rows: equal rows give the same digest in any order and any chunks, and different rows give another."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.spark.records.digest import digest_columns, name_hash

MODULUS = 1 << 64
values = st.none() | st.binary(max_size=20)
rows = st.tuples(
    st.sampled_from(["a", "b", "topic"]),
    st.none() | st.integers(0, 5),
    values,
    values,
    st.lists(st.tuples(st.text(max_size=9), values), max_size=3),
)
HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))


def total(some: list[tuple]) -> int:
    topics, partitions, keys, data, headers = zip(*some, strict=True) if some else ((),) * 5
    return digest_columns(
        pa.array(data, pa.binary()),
        topics=pa.array(topics, pa.string()),
        partitions=pa.array(partitions, pa.int32()),
        keys=pa.array(keys, pa.binary()),
        headers=pa.array(
            [[{"key": key, "value": value} for key, value in each] for each in headers], HEADERS
        ),
    )


@settings(deadline=None)
@given(st.lists(rows, max_size=12), st.randoms(), st.integers(0, 12))
def test_order_and_pieces_do_not_matter(some, random, at):
    shuffled = random.sample(some, len(some))
    assert (total(shuffled[:at]) + total(shuffled[at:])) % MODULUS == total(some)


@settings(deadline=None)
@given(st.lists(rows, max_size=6), st.lists(rows, max_size=6))
@example([("a", None, None, b"")], [("a", None, b"", None)])
def test_other_rows_have_another_sum(one, other):
    one, other = ([(*each, [])[:5] for each in some] for some in (one, other))
    assert (total(one) == total(other)) == (sorted(map(repr, one)) == sorted(map(repr, other)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((None, b"v"), (b"", b"v")),
        ((b"ab", b"c"), (b"a", b"bc")),
        ((b"a" * 8, b""), (b"a" * 7, b"a")),
        ((b"a\0", b"v"), (b"a", b"v")),
        ((b"k", b"v"), (b"v", b"k")),
    ],
)
def test_the_ends_of_values_count(one, other):
    assert total([("a", None, *one, [])]) != total([("a", None, *other, [])])


def test_a_row_that_is_there_twice_counts_twice():
    row: tuple[Any, ...] = ("a", None, b"k", b"v", [])
    assert len({total([row] * count) for count in range(4)}) == 4


def test_a_topic_of_the_option_is_as_one_of_the_column():
    column = pa.array([b"x", b"y"])
    by_option = digest_columns(column, topic="out")
    assert by_option == digest_columns(column, topics=pa.array(["out", "out"]))
    assert by_option == digest_columns(column, topics=pa.array(["out", "out"]).dictionary_encode())
    assert by_option != digest_columns(column, topics=pa.array(["out", "other"]))


def test_slices_and_layouts_do_not_matter():
    column = pa.array([b"left out", b"x" * 100, None, b""])
    for layout in (pa.binary(), pa.large_binary(), pa.binary_view()):
        assert digest_columns(column.cast(layout).slice(1), topic="t") == digest_columns(
            column[1:], topic="t"
        )


def test_the_sum_is_the_same_in_each_version_and_on_each_machine():
    """The digest must be the same in each version and on each machine, because decision records contain it."""
    assert name_hash("out") == 0xE248E0C20BD470DA
    assert (
        total([("out", 3, b"key", b"a value of 18 byte", [("h", b"1"), ("i", None)])]) == 0x6C3CD62048EDCA4F
    )
