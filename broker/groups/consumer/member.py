"""One member of a consumer group, as a value (KIP-848): what it said of itself, and how far it is reconciled. Pure."""

from __future__ import annotations

from dataclasses import field, replace
from enum import IntEnum
from typing import Final

from broker.groups.consumer.assignments import NO_PARTITIONS, AssignedPartitions
from protocol.records.group_log import ClassicMemberMetadata, ClassicProtocol
from protocol.slotted import slotted

LEAVE_EPOCH: Final = -1
"""The epoch of a member that leaves for good."""
STATIC_LEAVE_EPOCH: Final = -2
"""The epoch of a static member that will be back, and of what it has left behind."""
NO_REBALANCE_TIMEOUT: Final = -1


class MemberState(IntEnum):
    """How far a member is reconciled with its target assignment; the values stand in its records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def of(cls, value: int) -> MemberState:
        """A state that a newer version has written is unknown here."""
        try:
            return cls(value)
        except ValueError:
            return cls.UNKNOWN


@slotted(frozen=True, kw_only=True)
class ConsumerGroupMember:
    """One member. A change makes a new one (``evolve``)."""

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
    """Partitions that the member shall give up, and has not yet said that it has."""
    classic: ClassicMemberMetadata | None = None
    """What it said in its JoinGroup, if it speaks the classic protocol."""

    @property
    def uses_classic_protocol(self) -> bool:
        return self.classic is not None

    @property
    def regex(self) -> str | None:
        """The regular expression that it subscribes to; None without one."""
        return self.subscribed_topic_regex or None

    @property
    def classic_protocols(self) -> tuple[ClassicProtocol, ...]:
        return () if self.classic is None else tuple(self.classic.supported_protocols)

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def evolve(self, **changes: object) -> ConsumerGroupMember:
        """The member with other values; itself, if none of them is another."""
        if all(getattr(self, name) == value for name, value in changes.items()):
            return self
        return replace(self, **changes)  # type: ignore[arg-type]

    def at_epoch(
        self,
        epoch: int,
        *,
        assigned: AssignedPartitions,
        pending_revocation: AssignedPartitions = NO_PARTITIONS,
        state: MemberState = MemberState.STABLE,
    ) -> ConsumerGroupMember:
        """The member after a step of its reconciliation: its epoch so far becomes the previous one."""
        return replace(
            self,
            member_epoch=epoch,
            previous_member_epoch=self.member_epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )
