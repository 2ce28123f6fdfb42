"""One member of a consumer group as a value (KIP-848): its subscription, and the progress of its reconciliation. Pure."""

from __future__ import annotations

from dataclasses import field, replace
from enum import IntEnum
from typing import Final, Self

from broker.groups.consumer.assignments import NO_PARTITIONS, AssignedPartitions
from protocol.records.group_log import ClassicMemberMetadata, ClassicProtocol
from protocol.slotted import slotted

LEAVE_EPOCH: Final = -1
"""Member epoch in the heartbeat of a member that leaves."""
STATIC_LEAVE_EPOCH: Final = -2
"""Member epoch of a static member that leaves temporarily: in its heartbeat, and in its record until it returns."""
NO_REBALANCE_TIMEOUT: Final = -1


class MemberState(IntEnum):
    """Progress of a member towards its target assignment. The values are those in the member's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def of(cls, value: int) -> MemberState:
        """Parse the value in a record. Returns `UNKNOWN` for a state of a newer version."""
        try:
            return cls(value)
        except ValueError:
            return cls.UNKNOWN


class Immutable:
    """Base of the members of consumer groups and share groups."""

    __slots__ = ()

    def evolve(self, **changes: object) -> Self:
        """Return a copy with these fields changed, or the member itself if no value differs."""
        if all(getattr(self, name) == value for name, value in changes.items()):
            return self
        return replace(self, **changes)  # type: ignore[type-var]


@slotted(frozen=True, kw_only=True)
class ConsumerGroupMember(Immutable):
    """One member of a consumer group, immutable; ``evolve`` returns a changed copy."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_REBALANCE_TIMEOUT
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str | None = ""
    server_assignor: str | None = None
    assigned: AssignedPartitions = field(default_factory=dict)
    pending_revocation: AssignedPartitions = field(default_factory=dict)
    """Partitions that the member must revoke and has not reported as revoked yet."""
    classic: ClassicMemberMetadata | None = None
    """Fields of the member's JoinGroup; None if the member uses the consumer protocol."""

    @property
    def uses_classic_protocol(self) -> bool:
        return self.classic is not None

    @property
    def regex(self) -> str | None:
        """The regular expression to which the member subscribes; None without one."""
        return self.subscribed_topic_regex or None

    @property
    def classic_protocols(self) -> tuple[ClassicProtocol, ...]:
        return () if self.classic is None else tuple(self.classic.supported_protocols)

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def at_epoch(
        self,
        epoch: int,
        *,
        assigned: AssignedPartitions,
        pending_revocation: AssignedPartitions = NO_PARTITIONS,
        state: MemberState = MemberState.STABLE,
    ) -> ConsumerGroupMember:
        """Return the member after a step of its reconciliation. Its present epoch becomes the previous epoch."""
        return replace(
            self,
            member_epoch=epoch,
            previous_member_epoch=self.member_epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )
