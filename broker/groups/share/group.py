"""One share group (KIP-932) as built from its records. Pure.

As a consumer group, it is changed only by records (``broker.groups.share.records.apply``).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final
from uuid import UUID

from broker.groups.consumer.assignments import TargetAssignment
from broker.groups.consumer.group import FIRST_ASSIGNMENT_EPOCH, FIRST_GROUP_EPOCH
from broker.groups.consumer.subscriptions import Subscriptions
from broker.groups.share.member import ShareGroupMember
from broker.groups.share.partitions import NOTHING, StatePartitions


class ShareGroupState(StrEnum):
    EMPTY = "Empty"
    STABLE = "Stable"


class ShareGroup:
    """A share group: its members, their assignments, and which share partitions are initialized."""

    type: Final = "share"
    protocol_type: Final = "share"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_GROUP_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_ASSIGNMENT_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ShareGroupMember] = {}
        self.targets: dict[str, TargetAssignment] = {}
        self.subscriptions = Subscriptions()
        self.state_partitions: StatePartitions | None = None
        """None if the log has no ShareGroupStatePartitionMetadata of the group."""
        self.compared_at = -1
        """``TopicsImage.changes`` at the last comparison of the metadata hash. Not in the log, so a load resets it."""
        self.initializing_since_ms = 0
        """Time of the last ShareGroupStatePartitionMetadata. Not in the log: after a load, the time of the load."""

    @property
    def partitions(self) -> StatePartitions:
        return self.state_partitions or NOTHING

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def is_empty(self) -> bool:
        return not self.members

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

    def image(self) -> Mapping[str, object]:
        """The state as plain values; a group rebuilt from the log must have an equal image."""
        return {
            "epoch": self.epoch,
            "hash": self.metadata_hash,
            "assignment": (self.assignment_epoch, self.assignment_timestamp_ms),
            "members": dict(sorted(self.members.items())),
            "targets": dict(sorted(self.targets.items())),
            "topics": dict(sorted(self.subscriptions.topics.items())),
            "partitions": self.state_partitions,
        }
