"""The base class of the shards of groups and share partitions, whose state is a replay of all records that are appended.

A record changes the state as soon as it is appended, so that the next request sees the change; the response is sent once the
record is committed. If the record is never committed, the node no longer leads the partition, and the state is dropped with
the shard.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.clock import Domain
from broker.coordinator_runtime.shard import CoordinatorShard
from broker.loop.coroutines import Waiter
from protocol.errors import NONE, ErrorCode

if TYPE_CHECKING:
    from broker.clock import Clock
    from broker.injection.points import FaultInjection
    from broker.replicas.partition import Partition


class HeldCommits:
    """Context manager of an append: wakes those that wait for a commit only when its records are applied to the state.

    The append may commit earlier records. A coroutine that waits for these must not decide by a state that lacks the new
    records: its own would follow them in the log.
    """

    __slots__ = ("_depth", "_woken")

    def __init__(self) -> None:
        self._depth = 0
        self._woken: list[tuple[Waiter[ErrorCode], ErrorCode]] = []

    def wake(self, waiter: Waiter[ErrorCode], error: ErrorCode) -> None:
        if self._depth:
            self._woken.append((waiter, error))
        else:
            waiter.wake(error)

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *exc_info: object) -> None:
        self._depth -= 1
        while self._woken and not self._depth:
            waiter, error = self._woken.pop(0)
            waiter.wake(error)


class ReplayedShard(CoordinatorShard):
    """A partition of the coordinator's topic, while this node leads it, and the coroutines that wait for its commits."""

    def __init__(self, partition: Partition, clock: Clock, injection: FaultInjection | None = None) -> None:
        super().__init__(partition, injection)
        self.clock = clock
        self.held_commits = HeldCommits()
        self._waiting: dict[Waiter[ErrorCode], None] = {}
        """The waiters for a commit or for a fault rule, in the order in which the waits began."""

    @property
    def commit_timeout_ms(self) -> int:
        """Time after which a request that waits for a commit gets an error."""
        raise NotImplementedError

    def unload(self, error: ErrorCode) -> None:
        super().unload(error)
        for verdict in tuple(self._waiting):
            verdict.wake(error)

    async def committed(self, end_offset: int) -> ErrorCode:
        """Wait until all records below ``end_offset`` are committed. Returns NONE or an error for the client.

        Usually they are committed already. The wait ends with an error after ``commit_timeout_ms``; the records may still be
        committed after that.
        """
        if self.partition.high_watermark >= end_offset:
            return NONE
        return self.client_error(await self.committed_in_time(end_offset))

    async def committed_in_time(self, end_offset: int) -> ErrorCode:
        """Wait as `committed` does, but return the append's own error, such as REQUEST_TIMED_OUT, not the client's."""
        verdict = self._commit(end_offset)
        late = partial(verdict.wake, ErrorCode.request_timed_out)
        timer = self.clock.call_later_ms(self.commit_timeout_ms, late, Domain.GROUPS)
        try:
            return await self.await_verdict(verdict)
        finally:
            timer.cancel()

    async def committed_eventually(self, end_offset: int) -> ErrorCode:
        """Wait as `committed_in_time` does, but without a timeout."""
        return await self.await_verdict(self._commit(end_offset))

    def _commit(self, end_offset: int) -> Waiter[ErrorCode]:
        verdict: Waiter[ErrorCode] = Waiter()
        self.partition.on_committed(end_offset, partial(self.held_commits.wake, verdict))
        return verdict

    async def await_verdict(self, verdict: Waiter[ErrorCode]) -> ErrorCode:
        """Wait for ``verdict``, the result of a commit or of a fault rule, and return it. `unload` ends the wait."""
        self._waiting[verdict] = None
        try:
            return await verdict
        finally:
            del self._waiting[verdict]
