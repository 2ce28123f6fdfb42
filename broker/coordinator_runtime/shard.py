"""What a coordinator knows of one partition of its topic: its memory, and the only way into its log.

Kafka's ``CoordinatorShard`` within its ``CoordinatorRuntime``. The memory is a view of the log: it is built by reading it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from broker.coordinator_runtime.append_errors import CLIENT_ERRORS
from broker.injection.points import FaultInjection, InjectionPoint
from broker.loop.coroutines import Waiter
from broker.replicas.partition.partition import AppendResult, Partition
from protocol.errors import NONE, ErrorCode

if TYPE_CHECKING:
    from storage.producers import VerificationGuard


class CoordinatorShard:
    """One partition, while this node leads it in one leader epoch. `CoordinatorRuntime` makes, loads and ends it."""

    client_errors: ClassVar[Mapping[ErrorCode, ErrorCode]] = CLIENT_ERRORS
    """What a failed append means to a client."""

    def __init__(self, partition: Partition, injection: FaultInjection | None = None) -> None:
        self.partition = partition
        self.leader_id = partition.leader_id
        self.coordinator_epoch = partition.leader_epoch
        self.refusal: ErrorCode | None = ErrorCode.coordinator_load_in_progress
        """The error of every request until the log has been read."""
        self.is_closed = False
        """It was unloaded, or its node was killed: what waits here does nothing any more."""
        self._injection = injection or FaultInjection()

    def is_current(self) -> bool:
        """Does this node still lead the partition, in the same epoch?"""
        partition = self.partition
        return (
            not self.is_closed
            and partition.leader_id == self.leader_id
            and partition.leader_epoch == self.coordinator_epoch
        )

    @property
    def is_loading(self) -> bool:
        return self.refusal is not None

    @classmethod
    def client_error(cls, error: ErrorCode) -> ErrorCode:
        """What a failed append means to a client."""
        return error if error is NONE else cls.client_errors.get(error, error)

    # -- loading and unloading ----------------------------------------------------------------------------------

    def load(self) -> Iterator[None]:
        """Read the log into memory, a piece at each step. To its end: what a new leader has, it will commit."""
        raise NotImplementedError

    def loaded(self) -> None:
        """All has been read: requests are served from now on."""
        raise NotImplementedError

    def unload(self, error: ErrorCode) -> None:
        """Another node leads the partition now, or none does. Requests that wait here fail with ``error``."""
        self.is_closed = True

    def abandon(self) -> None:
        """The node is killed: requests that wait here get no response."""
        self.is_closed = True

    # -- writing ------------------------------------------------------------------------------------------------

    def append(
        self,
        records: bytes,
        guard: VerificationGuard | None = None,
        verified: bool = False,
        required_acks: int = -1,
    ) -> AppendResult:
        """Append a batch, if this node still leads the partition in the epoch in which the shard was loaded."""
        if not self.is_current():
            return AppendResult(ErrorCode.not_leader_or_follower)
        return self.partition.append_internal(records, guard, verified, required_acks)

    async def committed(self, end_offset: int) -> ErrorCode:
        """NONE once all below ``end_offset`` is committed, and this shard is still current; otherwise the client's error."""
        partition = self.partition
        if partition.high_watermark >= end_offset and not self.is_closed:
            return NONE
        verdict: Waiter[ErrorCode] = Waiter()
        partition.on_committed(end_offset, verdict.wake)
        error = await verdict
        if error is NONE and not self.is_current():
            error = ErrorCode.not_coordinator
        return self.client_error(error)

    @property
    def is_intercepted(self) -> bool:
        """Whether a rule may hold an append up, or have it fail."""
        return self._injection.points is not None

    def verdict_at_append(
        self, point: str, *, transactional_id: str | None = None, group_id: str | None = None
    ) -> Waiter[ErrorCode]:
        """NONE when an append may be done: now, or once a rule lets it go; otherwise the error that the append ends in."""
        partition = self.partition
        at = InjectionPoint(
            point,
            self.leader_id,
            partition.topic,
            partition.index,
            transactional_id=transactional_id,
            group_id=group_id,
        )
        return verdict_at(self._injection, at)


def verdict_at(injection: FaultInjection, at: InjectionPoint) -> Waiter[ErrorCode]:
    """NONE when a step may be taken: now, or once a rule lets it go; otherwise the error that the step ends in."""
    verdict: Waiter[ErrorCode] = Waiter()
    injection.intercept(at, partial(verdict.wake, NONE), verdict.wake)
    return verdict
