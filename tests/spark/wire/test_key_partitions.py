"""The partition of a row, compared with the hash of other clients."""

import numpy as np
import pyarrow as pa
from aiokafka.partitioner import murmur2 as other_murmur2
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.spark.records.columns import bytes_column
from odradek.spark.records.partitioner import murmur2, partition_by_key, partition_sticky


def test_the_vectors_of_kafkas_own_test():
    """Our hash gives the results of Kafka's own test: clients/src/test/java/org/apache/kafka/common/utils/UtilsTest.java."""
    vectors = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    assert {key: np.uint32(murmur2(key)).astype(np.int32) for key in vectors} == vectors


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_any_key_has_the_hash_that_another_client_gives_it(key):
    assert murmur2(key) == other_murmur2(key)


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=12), max_size=20), st.integers(1, 50))
def test_rows_with_a_key_are_partitioned_by_it_and_others_are_not(keys, count):
    partitions = np.full(len(keys), -1, np.int64)
    partition_by_key(bytes_column(pa.array(keys, pa.binary())), np.full(len(keys), count), partitions)
    expected = [-1 if key is None else (other_murmur2(key) & 0x7FFFFFFF) % count for key in keys]
    assert partitions.tolist() == expected


def test_a_row_that_says_its_partition_keeps_it():
    partitions = np.array([4, -1, 0], np.int64)
    partition_by_key(bytes_column(pa.array([b"a", b"a", b"a"])), np.full(3, 5), partitions)
    assert partitions.tolist() == [4, (other_murmur2(b"a") & 0x7FFFFFFF) % 5, 0]


def test_rows_without_a_key_fill_one_partition_after_the_other():
    sizes = np.full(10, 100, np.int64)
    partitions, go_on = partition_sticky(sizes, 3, 250, 250)
    assert partitions.tolist() == [1, 1, 1, 2, 2, 0, 0, 0, 1, 1]
    assert go_on == 1250
    more, _ = partition_sticky(sizes[:2], 3, 250, go_on)
    assert more.tolist() == [2, 2]
