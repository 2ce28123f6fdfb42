"""Tests of the kill storm's verdict: it counts lost, duplicated and reordered records, and fatal errors of producers."""

from __future__ import annotations

import pytest

from odradek import Broker
from tests.chaos.kill_storm import PARTITIONS, TOPIC, Numbers, verdict
from tests.support.deadlines import HANG_S


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        (["a/0", "b/0", "a/1", "a/2"], (0, 0, 0)),
        (["b/0", "a/0", "a/2"], (1, 0, 0)),
        (["a/0", "b/0", "a/1", "a/1", "a/2"], (0, 1, 0)),
        (["a/0", "b/0", "a/2", "a/1"], (0, 0, 1)),
        (["a/0", "a/1", "a/2"], (1, 0, 0)),
    ],
)
def test_lost_duplicated_and_reordered_records_are_counted(
    seen: list[str], found: tuple[int, int, int]
) -> None:
    acknowledged = {"a": {(0, 0), (0, 1), (0, 2)}, "b": {(0, 0)}}
    assert verdict(["a", "b"], {0: seen}, acknowledged) == found


def test_a_fatal_error_of_a_producer_is_seen() -> None:
    with Broker(1, {TOPIC: PARTITIONS}) as broker:
        broker.faults.add("Produce times=1 -> error OUT_OF_ORDER_SEQUENCE_NUMBER")
        producer = Numbers(broker.bootstrap_servers, "a")
        producer._thread.join(HANG_S)
        producer.end()
    (error,) = producer.fatal
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in error
