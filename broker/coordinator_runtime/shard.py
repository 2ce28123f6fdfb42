"""The base class of a coordinator's shards. A shard is one partition of the coordinator's topic, with its state.

The counterpart of Kafka's ``CoordinatorShard`` within ``CoordinatorRuntime``. The state is built by reading the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from broker.coordinator_runtime.append_errors import CLIENT_ERRORS
from broker.injection.points import FaultInjection, InjectionPoint
from broker.loop.coroutines import Waiter
from broker.replicas.partition.partition import AppendResult, Partition
from protocol.errors import NONE, ErrorCode

if TYPE_CHECKING:
    from storage.producers import VerificationGuard

COORDINATOR_SEQUENCE: Final = 0
"""Base sequence of every batch that a coordinator appends, as in Kafka. No replica checks this sequence."""


class CoordinatorShard:
    """One partition of the coordinator's topic, while this node leads it in one leader epoch.

    `CoordinatorRuntime` creates, loads and unloads it.
    """

    client_errors: ClassVar[Mapping[ErrorCode, ErrorCode]] = CLIENT_ERRORS
    """Error of a failed append -> error for the client."""

    def __init__(self, partition: Partition, injection: FaultInjection | None = None) -> None:
        self.partition = partition
        self.leader_id = partition.leader_id
        self.coordinator_epoch = partition.leader_epoch
        self.refusal: ErrorCode | None = ErrorCode.coordinator_load_in_progress
        """The error for every request until the log has been read; None afterwards."""
        self.is_closed = False
        """Whether the shard was unloaded or its node was killed; coroutines that still refer to the shard do nothing."""
        self._injection = injection or FaultInjection()

    def is_current(self) -> bool:
        """Whether this node still leads the partition, in the leader epoch in which the shard was created."""
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
        """Return the error for the client after an append has failed with ``error``."""
        return error if error is NONE else cls.client_errors.get(error, error)

    # -- loading and unloading ----------------------------------------------------------------------------------

    def load(self) -> Iterator[None]:
        """Read the log into memory; yields between slices.

        The load ends at the log end, not at the high watermark, because a new leader commits everything in its log.
        """
        raise NotImplementedError

    def loaded(self) -> None:
        """Called after the log has been read, before the first request is served."""
        raise NotImplementedError

    def unload(self, error: ErrorCode) -> None:
        """Close the shard, because this node no longer leads the partition; waiting requests fail with ``error``."""
        self.is_closed = True

    def abandon(self) -> None:
        """Close the shard, because the node was killed; waiting requests get no response."""
        self.is_closed = True

    # -- writing ------------------------------------------------------------------------------------------------

    def append(
        self,
        records: bytes,
        guard: VerificationGuard | None = None,
        verified: bool = False,
        required_acks: int = -1,
    ) -> AppendResult:
        """Append a batch. Fails with NOT_LEADER_OR_FOLLOWER if the shard is not current (see `is_current`)."""
        if not self.is_current():
            return AppendResult(ErrorCode.not_leader_or_follower)
        return self.partition.append_internal(records, guard, verified, required_acks)

    async def committed(self, end_offset: int) -> ErrorCode:
        """Wait until all records below ``end_offset`` are committed. Returns an error if the shard is no longer current."""
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
        """Whether a fault rule may hold or refuse an append."""
        return self._injection.points is not None

    def verdict_at_append(
        self, point: str, *, transactional_id: str | None = None, group_id: str | None = None
    ) -> Waiter[ErrorCode]:
        """Apply the fault rules of an injection point before an append. Returns what `verdict_at` returns."""
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
    """Apply the fault rules of an injection point, and return a waiter for the verdict.

    The waiter gets NONE at once if no rule matches, NONE later if a rule holds the step and is then released, or
    the error that a rule injects. If a rule loses the step, the waiter never gets a result.
    """
    verdict: Waiter[ErrorCode] = Waiter()
    injection.intercept(at, partial(verdict.wake, NONE), verdict.wake)
    return verdict
