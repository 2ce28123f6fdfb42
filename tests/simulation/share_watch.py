"""Checks of share partitions inside the leaders: of locks and delivery counts, with a model that is much simpler.

The model has, for each share partition in a leader's memory, who may have each record until when. It follows the calls of
`SharePartition` and knows nothing of batches, gaps and start offsets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final
from unittest.mock import patch

from broker.requests.share_fetching import ShareFetching
from broker.share.manager import ManagedSharePartition, SharePartitionManager
from broker.share.partition import Acquired, Change, SharePartition
from broker.share.state import TERMINAL, RecordState
from tests.simulation.ledger import Broken

RENEW: Final = 4


class Model:
    """The records of one share partition in memory."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.locks: dict[int, tuple[str, int]] = {}
        """By offset: the member and the end of its lock, in ms of the domain of groups."""
        self.counts: dict[int, int] = {}
        self.writing: dict[int, tuple[str, int] | None] = {}
        """The records whose change is being written, with their lock."""
        self.done: set[int] = set()
        """Acknowledged or archived, and written."""
        self.start_offset = -1
        self.log_start_offset = 0
        self.overdue: set[int] = set()
        """The records whose lock had run out at the last look."""

    def acquire(
        self, member_id: str, acquired: list[Acquired], now_ms: int, until_ms: int, limit: int
    ) -> None:
        for first, last, count in acquired:
            for offset in range(first, last + 1):
                holder = self.locks.get(offset)
                if holder is not None and now_ms < holder[1]:
                    self._fail(f"{offset} is acquired by {member_id}, and locked by {holder} at {now_ms}")
                if offset in self.writing or offset in self.done:
                    self._fail(f"{offset} is acquired, but it is acknowledged or being written")
                if count > limit or count != self.counts.get(offset, count - 1) + 1:
                    self._fail(f"{offset} has the delivery count {count} after {self.counts.get(offset)}")
                self.locks[offset], self.counts[offset] = (member_id, until_ms), count

    def renew(self, member_id: str, first: int, last: int, until_ms: int) -> None:
        for offset in range(first, last + 1):
            if self.locks.get(offset, ("", 0))[0] == member_id:
                self.locks[offset] = (member_id, until_ms)

    def begin(self, member_id: str, change: Change) -> None:
        """The member's acknowledgements, or the end of its session, are being written."""
        for first, last, _, _ in change.batches:
            for offset in range(first, last + 1):
                lock = self.writing[offset] = self.locks.pop(offset, None)
                if lock is not None and lock[0] != member_id:
                    self._fail(f"{member_id} has acknowledged {offset}, which is locked by {lock}")

    def commit(self, change: Change, start_offset: int) -> None:
        for first, last, state, _ in change.batches:
            for offset in range(first, last + 1):
                self.writing.pop(offset, None)
                self.locks.pop(offset, None)
                if state in TERMINAL or state == RecordState.ARCHIVING:
                    self.done.add(offset)
        passed = [offset for offset in self.writing if self.log_start_offset <= offset < start_offset]
        if passed:
            self._fail(f"the start offset {start_offset} has passed {passed}, whose states are being written")

    def roll_back(self, change: Change, now_ms: int) -> None:
        for first, last, _, _ in change.batches:
            for offset in range(first, last + 1):
                lock = self.writing.pop(offset, None)
                if lock is not None and now_ms < lock[1]:
                    self.locks[offset] = lock

    def expire(self, change: Change, now_ms: int) -> None:
        for first, last, state, _ in change.batches:
            for offset in range(first, last + 1):
                lock = self.locks.pop(offset, None)
                if lock is not None and now_ms < lock[1]:
                    self._fail(f"the lock of {offset} ends at {now_ms}, too early: {lock}")
                if state != RecordState.AVAILABLE:
                    self.done.add(offset)

    def look(self, start_offset: int, now_ms: int) -> None:
        if start_offset < self.start_offset:
            self._fail(f"the start offset goes back from {self.start_offset} to {start_offset}")
        self.start_offset = start_offset
        overdue = {
            offset for offset, lock in self.locks.items() if offset >= start_offset and lock[1] < now_ms
        }
        late = sorted(overdue & self.overdue)
        if late:
            self._fail(f"locks have not ended at {now_ms}: {[(each, self.locks[each]) for each in late]}")
        self.overdue = overdue

    def _fail(self, text: str) -> None:
        raise Broken(f"{self.name}: {text}")


class ShareWatch:
    """The models of all share partitions of a cluster."""

    def __init__(self, acquired: Callable[[ManagedSharePartition, list[Acquired]], None]) -> None:
        """``acquired`` is called with the records that a leader has acquired for a member."""
        self._acquired = acquired
        self.now_ms: Callable[[], int] = lambda: 0
        """Time in the domain of groups. It is read from the cluster's clock, not from the arguments of a call."""
        self.models: dict[SharePartition, Model] = {}
        self.broken: Broken | None = None

    def model(self, state: SharePartition) -> Model:
        return self.models.setdefault(state, Model("share partition"))

    def look(self, managed: ManagedSharePartition) -> None:
        if self.broken is not None:
            raise self.broken
        if managed.is_active:
            self.model(managed.state).look(managed.state.start_offset, self.now_ms())

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Context manager: follow the calls of all share partitions of this process."""
        with contextlib.ExitStack() as patched:
            for owner, name, follow in (
                (SharePartition, "acquire", self._follow_acquire),
                (SharePartition, "acknowledge", self._follow_acknowledge),
                (SharePartition, "release", self._follow_release),
                (SharePartition, "expire", self._follow_expire),
                (SharePartition, "commit", self._follow_commit),
                (SharePartition, "roll_back", self._follow_roll_back),
                (SharePartition, "advance_start", self._follow_advance_start),
                (ShareFetching, "_acquire", self._follow_fetch),
                (SharePartitionManager, "_load", self._follow_load),
            ):
                patched.enter_context(patch.object(owner, name, self._then(getattr(owner, name), follow)))
            yield

    def _then(self, call: Callable[..., Any], follow: Callable[..., None]) -> Callable[..., Any]:
        def followed(*arguments: Any, **named: Any) -> Any:
            result = call(*arguments, **named)
            try:
                follow(result, *arguments)
            except Broken as broken:
                self.broken = self.broken or broken
            return result

        return followed

    def _follow_load(self, _: Any, __: Any, managed: ManagedSharePartition, *___: Any) -> None:
        key = managed.key
        self.model(
            managed.state
        ).name = (
            f"{key.group_id} of {managed.partition.topic}-{key.partition} in epoch {managed.leader_epoch}"
        )

    def _follow_fetch(self, result: Any, _: Any, __: Any, managed: ManagedSharePartition, *___: Any) -> None:
        self._acquired(managed, result[1])

    def _follow_acquire(
        self,
        result: list[Acquired],
        state: SharePartition,
        member_id: str,
        _: Any,
        __: Any,
        settings: Any,
        ___: Any,
    ) -> None:
        now_ms = self.now_ms()
        until_ms = now_ms + settings.record_lock_duration_ms
        self.model(state).acquire(member_id, result, now_ms, until_ms, settings.delivery_count_limit)

    def _follow_acknowledge(
        self, change: Change, state: SharePartition, member_id: str, batches: Any, settings: Any, _: Any
    ) -> None:
        model = self.model(state)
        for first, last, types in batches:
            if RENEW in types:
                model.renew(member_id, first, last, self.now_ms() + settings.record_lock_duration_ms)
        model.begin(member_id, change)

    def _follow_release(self, change: Change | None, state: SharePartition, member_id: str, *_: Any) -> None:
        if change is not None:
            self.model(state).begin(member_id, change)

    def _follow_expire(self, change: Change | None, state: SharePartition, *_: Any) -> None:
        if change is not None:
            self.model(state).expire(change, self.now_ms())

    def _follow_commit(self, _: bool, state: SharePartition, change: Change) -> None:
        self.model(state).commit(change, state.start_offset)

    def _follow_advance_start(self, _: None, state: SharePartition, log_start_offset: int) -> None:
        self.model(state).log_start_offset = log_start_offset

    def _follow_roll_back(self, _: bool, state: SharePartition, change: Change) -> None:
        self.model(state).roll_back(change, self.now_ms())
