"""The common part of consumer groups and share groups, as in Kafka: epochs, members, target assignments. Pure."""

from __future__ import annotations

from typing import ClassVar, Final, Generic, TypeVar

from broker.groups.consumer.assignments import TargetAssignment
from broker.groups.consumer.subscriptions import Subscriptions

FIRST_GROUP_EPOCH: Final = 1
FIRST_ASSIGNMENT_EPOCH: Final = 1

M = TypeVar("M")


class ModernGroup(Generic[M]):
    """A group that changes only by its records: a consumer group or a share group. ``M``: its member."""

    type: ClassVar[str]

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_GROUP_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_ASSIGNMENT_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, M] = {}
        self.targets: dict[str, TargetAssignment] = {}
        self.subscriptions = Subscriptions()
        self.compared_at = -1
        """``TopicsImage.changes`` at the last comparison of the metadata hash. Not in the log, so a load resets it."""

    @property
    def is_empty(self) -> bool:
        return not self.members

    def image(self) -> dict[str, object]:
        """The state as plain values; a group rebuilt from the log must have an equal image."""
        return {
            "epoch": self.epoch,
            "hash": self.metadata_hash,
            "assignment": (self.assignment_epoch, self.assignment_timestamp_ms),
            "members": dict(sorted(self.members.items())),
            "targets": dict(sorted(self.targets.items())),
            "topics": dict(sorted(self.subscriptions.topics.items())),
        }
