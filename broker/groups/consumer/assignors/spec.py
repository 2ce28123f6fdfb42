"""Input and output of an assignor. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Protocol
from uuid import UUID

from broker.groups.consumer.assignments import TargetAssignment
from protocol.hashing import hash_map_order
from protocol.slotted import slotted


@slotted(frozen=True)
class MemberSpec:
    """One member as input of an assignor."""

    member_id: str
    subscribed: frozenset[UUID]
    """Ids of the subscribed topics that exist."""
    target: TargetAssignment = field(default_factory=dict)
    """The member's present target assignment."""
    instance_id: str | None = None
    rack_id: str | None = None
    """Not used, as in Kafka's assignors."""


@slotted(frozen=True)
class GroupSpec:
    """The group as input of an assignor.

    The members are in the order in which Java's ``HashMap`` iterates over them, so that the assignments equal Kafka's.
    """

    members: tuple[MemberSpec, ...]
    partition_count: Callable[[UUID], int]
    is_homogeneous: bool
    """Whether all members subscribe to the same topics."""

    @classmethod
    def of(
        cls, members: Iterable[MemberSpec], partition_count: Callable[[UUID], int], *, homogeneous: bool
    ) -> GroupSpec:
        by_id = {member.member_id: member for member in members}
        order = hash_map_order(by_id)
        return cls(tuple(by_id[member_id] for member_id in order), partition_count, homogeneous)


Assignment = Mapping[str, TargetAssignment]
"""Member id -> target assignment. A member that is not included gets no partitions."""


class Assignor(Protocol):
    """Function that computes target assignments. Each partition goes to at most one member, a subscriber of its topic."""

    def __call__(self, spec: GroupSpec) -> Assignment: ...
