"""The cost of a request to a share partition depends on the records that it changes, not on all records and members.

The lines that run are counted: their number is the same on every machine.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from broker.share.partition import Acknowledged, Fetched, Limits, SharePartition
from broker.share.settings import ShareGroupSettings
from broker.share.state import StoredState

MEMBERS = 500
FETCH_RECORDS = 200
LOCK_MS = 3_600_000
SETTINGS = ShareGroupSettings(record_lock_duration_ms=LOCK_MS, partition_max_record_locks=200_000)
LIMITS = Limits(FETCH_RECORDS, FETCH_RECORDS)
STATE_BYTES_MAX = 250
"""Bound on the memory of an acquired record that has a state of its own."""


class Members:
    """Members that fetch in turn, each 200 records in two record batches. All are acquired at the same time."""

    def __init__(self, acquired: int) -> None:
        self.expired = 0
        """Number of records whose lock has run out."""
        self.partition = SharePartition()
        self.partition.load(StoredState(start_offset=0), SETTINGS)
        for number in range(acquired // FETCH_RECORDS):
            self.fetch(f"m{number % MEMBERS}")

    def fetch(self, member: str) -> None:
        assert self.partition.can_acquire(SETTINGS.partition_max_record_locks)
        offset = self.partition.next_fetch_offset()
        batches = [(first, first + 99) for first in (offset, offset + 100)]
        acquired = self.partition.acquire(member, Fetched(offset, batches), LIMITS, SETTINGS, 0)
        assert [(each.first_offset, each.last_offset) for each in acquired] == [(offset, offset + 199)]
        assert self.partition.next_expiry_ms() == LOCK_MS

    def acknowledge(self, number: int, types: list[int]) -> None:
        """Acknowledge what one of the first fetches has acquired."""
        first = number * FETCH_RECORDS
        batches = [Acknowledged(first, first + FETCH_RECORDS - 1, types)]
        change = self.partition.acknowledge(f"m{number % MEMBERS}", batches, SETTINGS, 0)
        self.partition.commit(change)

    def expire(self) -> None:
        """Let all locks run out."""
        change = self.partition.expire(LOCK_MS, SETTINGS)
        assert change is not None
        self.expired += sum(last - first + 1 for first, last, _, _ in change.batches)

    def one_more(self, number: int, types: list[int]) -> None:
        """One ShareFetch: acknowledge a former fetch, and acquire as many records."""
        self.acknowledge(number, types)
        self.fetch(f"m{number % MEMBERS}")


def lines_of(work: Callable[[], object]) -> int:
    """Number of lines that run, each turn of a loop or comprehension counted."""
    lines, before = 0, sys.gettrace()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += 1
        return trace

    gc.disable()  # a collection would run finalizers of earlier tests
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return lines


@pytest.mark.parametrize(
    "types", [[1], [1] * FETCH_RECORDS], ids=["a type for all", "a type for each record"]
)
@pytest.mark.parametrize("number", [0, 3], ids=["the oldest", "between others"])
def test_a_fetch_costs_as_much_with_a_hundred_thousand_acquired_records(
    number: int, types: list[int]
) -> None:
    Members(1_000).one_more(number, types)  # classes compile their constructors at the first call
    costs = []
    for acquired in (1_000, 10_000, 100_000):
        members = Members(acquired)
        members.one_more(1, [1])
        costs.append(lines_of(lambda members=members: members.one_more(number, types)))  # type: ignore[misc]
    assert max(costs) <= min(costs) * 1.05, costs


def test_the_end_of_an_hours_locks_costs_as_much_for_each_of_many() -> None:
    Members(1_000).expire()
    costs = {}
    for acquired in (1_000, 100_000):
        members = Members(acquired)
        assert members.partition.expire(LOCK_MS - 1, SETTINGS) is None
        costs[acquired] = lines_of(members.expire) / (acquired // FETCH_RECORDS)
        assert members.expired == acquired
        assert members.partition.next_expiry_ms() is None
    assert costs[100_000] <= costs[1_000] * 1.05, costs


@pytest.mark.parametrize(("types", "bytes_max"), [([1], 10), ([1] * FETCH_RECORDS, STATE_BYTES_MAX)])
def test_memory_of_acquired_records_is_bounded(types: list[int], bytes_max: int) -> None:
    """A fetch takes one state for all its records, until a part of them is acknowledged: then one for each record."""
    acquired = 5_000
    tracemalloc.start()
    try:
        members = Members(acquired)
        for number in range(1, acquired // FETCH_RECORDS):
            members.acknowledge(number, types)
        # Threads of earlier tests allocate memory, too.
        own = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/broker/share/*")])
        used = sum(each.size for each in own.statistics("filename"))
    finally:
        tracemalloc.stop()
    assert members.partition.in_flight_count == acquired
    assert 0 < used / acquired <= bytes_max
