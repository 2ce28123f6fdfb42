"""The acquisition locks of a share partition: by the time at which they run out, and by member. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from protocol.slotted import slotted

_STALE_MAX = 64


@slotted(eq=False)
class AcquisitionLock:
    """The lock of records that one member has acquired, or renewed, in one step."""

    member_id: str
    first_offset: int
    last_offset: int
    """Not all records between the two offsets need to have the lock."""
    expires_ms: int
    holders: int = 0
    """Number of states with this lock."""
    has_expired: bool = False


class AcquisitionLocks:
    """All locks that are held, and when the next one runs out."""

    __slots__ = ("_by_member", "_heap", "_heap_max", "_number")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, AcquisitionLock]] = []
        """(expires_ms, number, lock). A lock that nothing holds any more stays for a while."""
        self._heap_max = _STALE_MAX
        self._number = 0
        self._by_member: dict[str, dict[AcquisitionLock, None]] = {}

    def add(self, lock: AcquisitionLock) -> None:
        """Add a lock that states hold already."""
        self._by_member.setdefault(lock.member_id, {})[lock] = None
        self._number += 1
        heappush(self._heap, (lock.expires_ms, self._number, lock))
        if len(self._heap) > self._heap_max:
            self._heap = [entry for entry in self._heap if entry[2].holders]
            heapify(self._heap)
            self._heap_max = 2 * len(self._heap) + _STALE_MAX

    def release(self, lock: AcquisitionLock) -> None:
        """One state less holds the lock."""
        lock.holders -= 1
        if not lock.holders:
            self._forget(lock)

    def of(self, member_id: str) -> Sequence[AcquisitionLock]:
        """The locks of a member, by offset."""
        return sorted(self._by_member.get(member_id, ()), key=lambda lock: lock.first_offset)

    def next_expiry_ms(self) -> int | None:
        """When the first lock runs out."""
        while self._heap and not self._heap[0][2].holders:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_expired(self, now_ms: int) -> AcquisitionLock | None:
        """Return a lock that has run out, and remove it."""
        expires_ms = self.next_expiry_ms()
        if expires_ms is None or expires_ms > now_ms:
            return None
        lock = heappop(self._heap)[2]
        lock.has_expired = True
        self._forget(lock)
        return lock

    def _forget(self, lock: AcquisitionLock) -> None:
        held = self._by_member.get(lock.member_id, {})
        held.pop(lock, None)
        if not held:
            self._by_member.pop(lock.member_id, None)
