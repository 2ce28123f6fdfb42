"""A share partition with the record batches of its log, for tests."""

from __future__ import annotations

from collections.abc import Sequence

from broker.share.partition import Acknowledged, Acquired, Change, Fetched, Limits, Refused, SharePartition
from broker.share.settings import ShareGroupSettings
from broker.share.state import StateBatch, StoredState

ACCEPT, RELEASE, REJECT, RENEW, GAP = [1], [2], [3], [4], [0]


def batches(count: int, size: int, base: int = 0) -> list[tuple[int, int]]:
    """``count`` record batches with ``size`` records each: base offset and last offset."""
    return [(offset, offset + size - 1) for offset in range(base, base + count * size, size)]


class Share:
    """A share partition whose changes are written at once, from a log with the given record batches."""

    def __init__(
        self, log: Sequence[tuple[int, int]], *, stored: StoredState | None = None, **settings: object
    ) -> None:
        self.log = list(log)
        self.settings = ShareGroupSettings(**settings)  # type: ignore[arg-type]
        self.partition = SharePartition()
        self.loaded = self.partition.load(stored or StoredState(start_offset=0), self.settings)
        self.now_ms = 0
        self.written: list[tuple[int, int, list[tuple[int, ...]]]] = []
        """Start offset, delivery complete count and state batches of each write."""
        self.changes: list[Change] = []

    def fetch(
        self,
        member: str = "m1",
        records_max: int = 500,
        batch_size: int = 500,
        *,
        record_limit: bool = False,
        read: int | None = None,
        aborted: Sequence[tuple[int, int]] = (),
    ) -> list[Acquired]:
        """Read the log (only ``read`` record batches of it) and acquire records."""
        partition = self.partition
        if not partition.can_acquire(self.settings.partition_max_record_locks):
            return []
        offset = partition.next_fetch_offset()
        found = [batch for batch in self.log if batch[1] >= offset][:read]
        fetched = Fetched(offset, found, [batch for batch in found if batch in aborted])
        limits = Limits(records_max, batch_size, record_limit)
        return partition.acquire(member, fetched, limits, self.settings, self.now_ms)

    def acknowledge(self, member: str, *acknowledged: tuple[int, int, list[int]]) -> Change:
        return self.partition.acknowledge(
            member, [Acknowledged(*each) for each in acknowledged], self.settings, self.now_ms
        )

    def ack(self, *acknowledged: tuple[int, int, list[int]], member: str = "m1") -> tuple[int, str] | None:
        """Acknowledge records, and write that. Returns the error, if it is refused."""
        try:
            change = self.acknowledge(member, *acknowledged)
        except Refused as refused:
            return refused.error.value, str(refused)
        self.write(change)
        return None

    def write(self, change: Change | None) -> None:
        if change is not None and change.batches:
            stored = change.stored
            states = [tuple(map(int, batch)) for batch in change.batches]
            self.written.append((stored.start_offset, stored.delivery_complete_count, states))
            self.changes.append(change)
            self.partition.commit(change)

    def release(self, member: str = "m1") -> None:
        self.write(self.partition.release(member, self.settings))

    def pass_ms(self, duration_ms: int) -> None:
        """Let time pass, and end the locks that run out."""
        self.now_ms += duration_ms
        self.write(self.partition.expire(self.now_ms, self.settings))

    @property
    def states(self) -> list[tuple[int, ...]]:
        """The records in flight: first offset, last offset, state, delivery count."""
        return [tuple(map(int, each[:4])) for each in self.partition.in_flight()]


def stored(start_offset: int, *states: tuple[int, int, int, int]) -> StoredState:
    return StoredState(start_offset=start_offset, batches=[StateBatch(*state) for state in states])
