"""The uniform assignor: equal numbers of partitions for all members, with as few moves as possible. Pure.

Members with equal subscriptions get partitions up to a quota (``UniformHomogeneousAssignmentBuilder``). With different
subscriptions partitions are moved until no move improves the balance (`balancing`).
"""

from __future__ import annotations

from uuid import UUID

from broker.groups.consumer.assignors.balancing import assign_balanced
from broker.groups.consumer.assignors.spec import Assignment, GroupSpec


def assign_uniformly(spec: GroupSpec) -> Assignment:
    if not spec.members:
        return {}
    return _fill(spec) if spec.is_homogeneous else assign_balanced(spec)


def _fill(spec: GroupSpec) -> Assignment:
    """Assign partitions to each member up to a quota. A member keeps its partitions up to the quota and loses the others."""
    subscribed = sorted(spec.members[0].subscribed)
    if not subscribed:
        return {}
    taken = {
        (topic_id, index)
        for member in spec.members
        for topic_id, indexes in member.target.items()
        for index in indexes
    }
    free = [
        (topic_id, index)
        for topic_id in subscribed
        for index in range(spec.partition_count(topic_id))
        if (topic_id, index) not in taken
    ]
    count = sum(spec.partition_count(topic_id) for topic_id in subscribed)
    quota, larger_quotas = divmod(count, len(spec.members))
    wanted = set(subscribed)
    kept: dict[str, dict[UUID, set[int]]] = {}
    unfilled: list[tuple[str, int]] = []
    for number, member in enumerate(spec.members):
        is_larger = larger_quotas > 0
        room = quota + is_larger
        of_member = kept[member.member_id] = {}
        for topic_id, indexes in member.target.items():
            if topic_id not in wanted:
                continue
            ordered = sorted(indexes)
            if ordered[:room]:
                of_member[topic_id] = set(ordered[:room])
            free += ((topic_id, index) for index in ordered[room:])
            room -= min(room, len(ordered))
        # A member gets a larger quota only if it has that many partitions, or if too few members remain for the larger
        # quotas.
        if room > 0 and is_larger and len(spec.members) - number > larger_quotas:
            room -= 1
            is_larger = False
        if room > 0:
            unfilled.append((member.member_id, room))
        larger_quotas -= is_larger
    rest = iter(free)
    for member_id, room in unfilled:
        for _, (topic_id, index) in zip(range(room), rest, strict=False):
            kept[member_id].setdefault(topic_id, set()).add(index)
    return {
        member_id: {topic_id: frozenset(indexes) for topic_id, indexes in of_member.items()}
        for member_id, of_member in kept.items()
    }
