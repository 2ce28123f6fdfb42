"""Write ascending numbers under faults, each to the partition number % partitions, and check the result."""

from collections.abc import Iterable

import pyarrow as pa

from odradek.spark.wire import TransactionalWriter
from tests.support.clients import read_messages


def write_numbers(writer: TransactionalWriter, topic: str, numbers: Iterable[int], partitions: int) -> None:
    numbers = list(numbers)
    writer.write(
        pa.array([b"%0100d" % number for number in numbers]),
        topic=topic,
        partitions=pa.array([number % partitions for number in numbers]),
    )


def assert_once_and_in_order(
    bootstrap: str, topic: str, rows: int, partitions: int, *, wait: bool = False
) -> None:
    """Check that each number is there once and in order. With ``wait``, first wait until ``rows`` records can be read."""
    found = read_messages(bootstrap, topic, expected=rows if wait else None)
    for partition in range(partitions):
        numbers = [int(each.value()) for each in found if each.partition() == partition]
        assert numbers == list(range(partition, rows, partitions)), f"partition {partition}"
