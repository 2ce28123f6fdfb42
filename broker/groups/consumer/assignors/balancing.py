"""Uniform assignment for members with different subscriptions (``UniformHeterogeneousAssignmentBuilder``). Pure.

Each member keeps the partitions of topics to which it still subscribes. Unassigned partitions go to the subscribers with the
fewest partitions. Then, topic by topic, partitions move from the subscribers with the most partitions to those with the
fewest, until no move in any topic improves the balance. Topics with many partitions for each subscriber come first, since
the other topics can even out the remaining imbalance.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from broker.groups.consumer.assignors.spec import Assignment, GroupSpec

ROUNDS_MAX: Final = 16
"""Maximum number of passes over all topics. Usually two or three passes are enough."""
UNOWNED: Final = -1


def assign_balanced(spec: GroupSpec) -> Assignment:
    if not any(member.subscribed for member in spec.members):
        return {}
    balancing = _Balancing(spec)
    balancing.give_free_partitions()
    balancing.balance()
    return balancing.assignment()


class _Balancing:
    """The assignment in progress: the owner of each partition, and the partition count of each member.

    Members are represented by their index in the group.
    """

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._subscribers: dict[UUID, list[int]] = {}
        for number, member in enumerate(spec.members):
            for topic_id in member.subscribed:
                self._subscribers.setdefault(topic_id, []).append(number)
        self._owners = {
            topic_id: [UNOWNED] * spec.partition_count(topic_id) for topic_id in self._subscribers
        }
        self._sizes = [0] * len(spec.members)
        for number, member in enumerate(spec.members):
            for topic_id, indexes in member.target.items():
                for index in indexes if topic_id in member.subscribed else ():
                    self._give(topic_id, index, number)
        self._topics = sorted(self._subscribers, key=self._rank)

    def _rank(self, topic_id: UUID) -> tuple[float, int, UUID]:
        subscribers = len(self._subscribers[topic_id])
        return -len(self._owners[topic_id]) / subscribers, subscribers, topic_id

    def _give(self, topic_id: UUID, index: int, number: int) -> None:
        owners = self._owners[topic_id]
        # Kafka's logs never have an index beyond the topic's partitions: a recreated topic has a new id.
        if index >= len(owners):
            return
        if owners[index] != UNOWNED:
            self._sizes[owners[index]] -= 1
        owners[index] = number
        self._sizes[number] += 1

    def _least_loaded_first(self, members: Iterable[int]) -> list[int]:
        return sorted(members, key=lambda number: (self._sizes[number], number))

    def give_free_partitions(self) -> None:
        for topic_id in self._topics:
            free = [index for index, owner in enumerate(self._owners[topic_id]) if owner == UNOWNED]
            ranges = _Ranges(self._least_loaded_first(self._subscribers[topic_id]), self._sizes)
            for index in free:
                self._give(topic_id, index, ranges.next_least_loaded())

    def balance(self) -> None:
        """Move partitions, topic by topic, until all topics were visited once without a move."""
        topics = [topic_id for topic_id in self._topics if len(self._subscribers[topic_id]) > 1]
        last_moved: UUID | None = None
        for _ in range(ROUNDS_MAX):
            for topic_id in topics:
                if topic_id == last_moved:
                    return
                if self._balance_topic(topic_id) or last_moved is None:
                    last_moved = topic_id

    def _balance_topic(self, topic_id: UUID) -> int:
        """Balance one topic; returns the number of partitions moved."""
        members = self._least_loaded_first(self._subscribers[topic_id])
        if self._sizes[members[-1]] - self._sizes[members[0]] <= 1:
            return 0
        movable: dict[int, list[int]] = {}
        for index, owner in enumerate(self._owners[topic_id]):
            movable.setdefault(owner, []).append(index)
        ranges = _Ranges(members, self._sizes)
        moved = 0
        while not ranges.are_balanced:
            source = ranges.next_most_loaded()
            while source != UNOWNED and not movable.get(source):
                ranges.exclude_most_loaded()
                source = ranges.next_most_loaded()
            if source == UNOWNED:
                break
            index = movable[source].pop()
            target = ranges.next_least_loaded()
            if ranges.are_balanced:
                break
            self._give(topic_id, index, target)
            moved += 1
        return moved

    def assignment(self) -> Assignment:
        assigned: list[dict[UUID, set[int]]] = [{} for _ in self._spec.members]
        # Sorted by topic id, as in the other assignors: subscriptions are sets, whose order differs between processes.
        for topic_id in sorted(self._owners):
            for index, owner in enumerate(self._owners[topic_id]):
                if owner != UNOWNED:
                    assigned[owner].setdefault(topic_id, set()).add(index)
        return {
            member.member_id: {topic_id: frozenset(indexes) for topic_id, indexes in of_member.items()}
            for member, of_member in zip(self._spec.members, assigned, strict=True)
        }


class _Ranges:
    """The subscribers of one topic, ordered by load and consumed from both ends (``MemberAssignmentBalancer``).

    The load of a member is its number of partitions. The members with the lowest load form a range at the left
    end. In a pass each of them gets one partition, so their load is one higher. Then the members outside of the
    range with this load join the range, and the next pass begins. The members with the highest load form a range
    at the right end. In a pass each of them loses one partition, and then the members with the new, lower load
    join this range.
    """

    def __init__(self, members: list[int], sizes: list[int]) -> None:
        self._members = members
        self._sizes = sizes
        self._least_end = 0
        self._least_count = sizes[members[0]] - 1
        self._next_least = 0
        self._most_start = len(members)
        self._most_end = len(members)
        self._most_count = sizes[members[-1]] + 1
        self._next_most = len(members) - 1

    @property
    def are_balanced(self) -> bool:
        return self._most_count - self._least_count <= 1

    def next_least_loaded(self) -> int:
        if self._next_least >= self._least_end:
            self._least_count += 1
            while (
                self._least_end < len(self._members)
                and self._sizes[self._members[self._least_end]] == self._least_count
            ):
                self._least_end += 1
            self._next_least = 0
        member = self._members[self._next_least]
        self._next_least += 1
        return member

    def next_most_loaded(self) -> int:
        """Return the next member from the right end; `UNOWNED` if no member remains."""
        if self._next_most < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                self._most_count = self._sizes[self._members[self._most_start - 1]]
            else:
                self._most_count -= 1
            while (
                self._most_start > 0 and self._sizes[self._members[self._most_start - 1]] == self._most_count
            ):
                self._most_start -= 1
            self._next_most = self._most_end - 1
        if self._next_most < 0:
            return UNOWNED
        member = self._members[self._next_most]
        self._next_most -= 1
        return member

    def exclude_most_loaded(self) -> None:
        """Exclude the member just returned by `next_most_loaded`: it has no partition of this topic left to move."""
        at, last = self._next_most + 1, self._most_end - 1
        self._members[at], self._members[last] = self._members[last], self._members[at]
        self._most_end -= 1
