"""One share group (KIP-932) as built from its records. Pure.

As a consumer group, it is changed only by records (``broker.groups.share.records.apply``).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final
from uuid import UUID

from broker.groups.consumer.modern_group import ModernGroup
from broker.groups.share.member import ShareGroupMember
from broker.groups.share.partitions import NOTHING, StatePartitions


class ShareGroupState(StrEnum):
    EMPTY = "Empty"
    STABLE = "Stable"


class ShareGroup(ModernGroup[ShareGroupMember]):
    """A share group: its members, their assignments, and which share partitions are initialized."""

    type = "share"
    protocol_type: Final = "share"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.state_partitions: StatePartitions | None = None
        """None if the log has no ShareGroupStatePartitionMetadata of the group."""
        self.initializing_since_ms = 0
        """Time of the last ShareGroupStatePartitionMetadata. Not in the log: after a load, the time of the load."""

    @property
    def partitions(self) -> StatePartitions:
        return self.state_partitions or NOTHING

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def update_member(self, member: ShareGroupMember) -> None:
        self.subscriptions.replace_member(self.members.get(member.member_id), member)
        self.members[member.member_id] = member

    def remove_member(self, member_id: str) -> None:
        old = self.members.pop(member_id, None)
        if old is not None:
            self.subscriptions.replace_member(old, None)

    def initialized(self, topic_id: UUID) -> frozenset[int]:
        """The initialized partitions of a topic: only these can be assigned."""
        topic = self.partitions.initialized.get(topic_id)
        return frozenset() if topic is None else topic.partitions

    def image(self) -> dict[str, object]:
        return super().image() | {"partitions": self.state_partitions}
