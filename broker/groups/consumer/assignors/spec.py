"""What an assignor gets, and what it gives. Pure."""

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
    """One member, as an assignor sees it."""

    member_id: str
    subscribed: frozenset[UUID]
    """The ids of topics that exist."""
    target: TargetAssignment = field(default_factory=dict)
    """What it should have so far."""
    instance_id: str | None = None
    rack_id: str | None = None
    """Kafka 4.3's assignors do not look at it either."""


@slotted(frozen=True)
class GroupSpec:
    """All members, in the order of Kafka's hash map, so that both assign alike; and what their topics are."""

    members: tuple[MemberSpec, ...]
    partition_count: Callable[[UUID], int]
    is_homogeneous: bool
    """All subscribe to the same topics."""

    @classmethod
    def of(
        cls, members: Iterable[MemberSpec], partition_count: Callable[[UUID], int], *, homogeneous: bool
    ) -> GroupSpec:
        by_id = {member.member_id: member for member in members}
        order = hash_map_order(by_id)
        return cls(tuple(by_id[member_id] for member_id in order), partition_count, homogeneous)


Assignment = Mapping[str, TargetAssignment]
"""Member id -> what it shall have. A member that is missing shall have nothing."""


class Assignor(Protocol):
    """Computes what each member shall have. No partition may go to two, or to one that does not subscribe to its topic."""

    def __call__(self, spec: GroupSpec) -> Assignment: ...
