"""The range assignor: each member gets a contiguous range of each topic's partitions (``RangeAssignor``). Pure.

If all members subscribe to the same topics, and the topics have equally many partitions, a member gets the same range of all
topics, so that co-partitioned topics can be joined.
"""

from __future__ import annotations

from uuid import UUID

from broker.groups.consumer.assignors.spec import Assignment, GroupSpec, MemberSpec
from protocol.slotted import slotted


@slotted
class _Topic:
    """The partitions of one topic, from which each member takes the next range."""

    partitions: int
    members: int
    next_partition: int = 0
    next_member: int = 0

    def take(self) -> frozenset[int]:
        """Return the range of the next member.

        If the partitions cannot be divided evenly, each of the first members gets one partition more.
        """
        size = self.partitions // self.members + (self.next_member < self.partitions % self.members)
        start = self.next_partition
        self.next_partition += size
        self.next_member += 1
        return frozenset(range(start, self.next_partition))


def assign_ranges(spec: GroupSpec) -> Assignment:
    subscribers: dict[UUID, int] = {}
    for member in spec.members:
        for topic_id in member.subscribed:
            subscribers[topic_id] = subscribers.get(topic_id, 0) + 1
    topics = {
        topic_id: _Topic(spec.partition_count(topic_id), count) for topic_id, count in subscribers.items()
    }
    assigned: dict[str, dict[UUID, frozenset[int]]] = {}
    for member in sorted(spec.members, key=_static_members_first):
        ranges = {topic_id: topics[topic_id].take() for topic_id in sorted(member.subscribed)}
        assigned[member.member_id] = {topic_id: taken for topic_id, taken in ranges.items() if taken}
    return assigned


def _static_members_first(member: MemberSpec) -> tuple[bool, bytes]:
    """Sort key: static members first, by instance id, so that a static member keeps its range under a new member id."""
    name = member.member_id if member.instance_id is None else member.instance_id
    return member.instance_id is None, name.encode("utf-16-be", "surrogatepass")
