"""The assignor ``simple`` (``SimpleAssignor``): several members may have one partition, and keep what they have. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from uuid import UUID

from broker.groups.consumer.assignments import TargetAssignment
from broker.groups.consumer.assignors.spec import GroupSpec

Spot = tuple[UUID, int]
Assigned = dict[str, dict[UUID, set[int]]]


def assign(spec: GroupSpec, assignable: Callable[[UUID], Iterable[int]]) -> Mapping[str, TargetAssignment]:
    """Compute the target assignment of each member of ``spec``. ``assignable``: topic -> its initialized partitions.

    If all members subscribe to the same topics, the partitions of all topics are balanced together, otherwise those
    of each topic among its subscribers.
    """
    topics = list(
        dict.fromkeys(topic_id for member in spec.members for topic_id in sorted(member.subscribed))
    )
    assigned: Assigned = {
        member.member_id: {
            topic_id: set(partitions)
            for topic_id, partitions in member.target.items()
            if not spec.is_homogeneous or topic_id in member.subscribed
        }
        for member in spec.members
    }
    if not topics:
        return {member_id: {} for member_id in assigned}
    if spec.is_homogeneous:
        _Balance(assigned, list(assigned), topics, assignable).run()
    else:
        for topic_id in topics:
            subscribers = [each.member_id for each in spec.members if topic_id in each.subscribed]
            _Balance(assigned, subscribers, [topic_id], assignable).run()
    return {
        member_id: {topic_id: frozenset(partitions) for topic_id, partitions in of_member.items()}
        for member_id, of_member in assigned.items()
    }


class _Balance:
    """Balances the partitions of some topics among the members that subscribe to them."""

    def __init__(
        self,
        assigned: Assigned,
        members: Sequence[str],
        topics: Sequence[UUID],
        assignable: Callable[[UUID], Iterable[int]],
    ) -> None:
        self.assigned = assigned
        self.members = members
        self.topics = topics
        self.partitions = [
            (topic_id, partition) for topic_id in topics for partition in sorted(assignable(topic_id))
        ]
        count = len(self.partitions)
        self.sharing = -(-len(members) // count) if count else 0
        """Number of members to which each partition is assigned."""
        mean = self.sharing * count / len(members)
        self.wanted = {
            member_id: ceil(mean * (number + 1)) - ceil(mean * number)
            for number, member_id in enumerate(members)
        }
        """Number of partitions of each member. Their sum is the number of partitions times ``sharing``."""
        self.of_partition: dict[Spot, dict[str, None]] = {}
        self.of_member: dict[str, dict[Spot, None]] = {member_id: {} for member_id in assigned}

    def run(self) -> None:
        self._keep()
        self._take_surplus()
        self._fill()

    def _give(self, member_id: str, spot: Spot) -> None:
        self.assigned[member_id].setdefault(spot[0], set()).add(spot[1])
        self.of_partition.setdefault(spot, {})[member_id] = None
        self.of_member[member_id][spot] = None

    def _take(self, member_id: str, spot: Spot) -> None:
        self.assigned[member_id][spot[0]].remove(spot[1])
        del self.of_partition[spot][member_id]
        del self.of_member[member_id][spot]

    def _keep(self) -> None:
        for member_id, of_topics in self.assigned.items():
            for topic_id in self.topics:
                for partition in sorted(of_topics.get(topic_id, ())):
                    self._give(member_id, (topic_id, partition))

    def _take_surplus(self) -> None:
        for member_id, spots in self.of_member.items():
            for spot in list(spots)[: max(len(spots) - self.wanted.get(member_id, 0), 0)]:
                self._take(member_id, spot)
        for spot, holders in self.of_partition.items():
            for member_id in list(holders)[: max(len(holders) - self.sharing, 0)]:
                self._take(member_id, spot)

    def _fill(self) -> None:
        """Assign each partition to as many members as it lacks, in turn to those that have too few partitions."""
        unfilled = [each for each in self.members if len(self.of_member[each]) < self.wanted[each]]
        for spot in self.partitions:
            self.of_partition.setdefault(spot, {})
        turn = 0
        for spot, holders in self.of_partition.items():
            passed = 0
            while len(holders) < self.sharing and passed < len(unfilled):
                turn %= len(unfilled)
                member_id = unfilled[turn]
                if member_id in holders:
                    passed += 1
                    turn += 1
                    continue
                self._give(member_id, spot)
                passed = 0
                if len(self.of_member[member_id]) < self.wanted[member_id]:
                    turn += 1
                else:
                    del unfilled[turn]
